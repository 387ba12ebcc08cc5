"""What is left of processes that were to end."""

from __future__ import annotations

from collections.abc import Iterable

import psutil


def left_running(processes: Iterable[psutil.Process]) -> list[psutil.Process]:
    """Return those that still run. One that has ended and waits for the system to take note of it does not."""
    return [process for process in processes if _is_running(process)]


def _is_running(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
