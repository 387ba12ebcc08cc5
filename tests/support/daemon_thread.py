"""Blocking calls that a test makes beside others."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any


def in_thread(function: Callable[[], Any]) -> Future[Any]:
    """Call in a daemon's thread: what hangs must not hold up the tests."""
    future: Future[Any] = Future()

    def call() -> None:
        try:
            future.set_result(function())
        except Exception as error:  # noqa: BLE001 - the test's business
            future.set_exception(error)

    threading.Thread(target=call, daemon=True).start()
    return future
