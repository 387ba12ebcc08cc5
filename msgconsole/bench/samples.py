"""CPU and memory of the processes of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import psutil


@dataclass(frozen=True, slots=True)
class Usage:
    """What a process and its children used."""

    cpu_seconds: float
    rss_bytes: int


def usage_of(pid: int) -> Usage:
    """Return what the process and its living children have used so far."""
    try:
        process = psutil.Process(pid)
        family = [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return Usage(0.0, 0)
    cpu_seconds = 0.0
    rss_bytes = 0
    for member in family:
        try:
            times = member.cpu_times()
            cpu_seconds += times.user + times.system
            rss_bytes += member.memory_info().rss
        except psutil.NoSuchProcess:
            continue
    return Usage(cpu_seconds, rss_bytes)


def usage_by_role(pids: Mapping[str, int]) -> dict[str, Usage]:
    """Return the usage of each named process."""
    return {role: usage_of(pid) for role, pid in pids.items()}


def percentile(ordered: list[float], share: float) -> float:
    """Return the value below which *share* of the ordered values are; 0 where there are none."""
    if not ordered:
        return 0.0
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
