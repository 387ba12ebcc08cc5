"""Having things done by a loop, from whatever thread: handlers that are not async run in others."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from msgbroker.client.values.log_lines import log_line


class InLoop:
    """Has things done on the loop that it was made on."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()

    def __call__(self, do: Callable[[], None]) -> None:
        """Do it now where the caller runs on the loop, else soon."""
        try:
            is_here = asyncio.get_running_loop() is self._loop
        except RuntimeError:
            is_here = False
        if is_here:
            do()
            return
        try:
            self._loop.call_soon_threadsafe(do)
        except RuntimeError:
            # The loop is closed: nobody is told of anything any more.
            log_line(logging.DEBUG, "handler.answered_too_late")
