"""How a worker talks to the driver: a JSON document a line, both ways."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import time
from collections.abc import AsyncIterator, Callable
from typing import Any, Final, Self

_PROGRESS_SECONDS: Final = 0.1


def say(what: dict[str, Any]) -> None:
    """Tell the driver something, as a line on standard output."""
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


class Orders:
    """Reads what the driver says, line by line."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader

    @classmethod
    async def open(cls) -> Self:
        """Read standard input, without a thread that could not be interrupted."""
        reader = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        return cls(reader)

    async def next(self) -> None:
        """Wait for a line. The end of the input is one, too: nobody is there any more."""
        await self._reader.readline()

    async def begin(self) -> None:
        """Tell the driver that the work can begin, and wait until it says so."""
        say({"ready": True})
        await self.next()

    @contextlib.asynccontextmanager
    async def setting(self, stop: asyncio.Event) -> AsyncIterator[None]:
        """Set *stop* when the driver says so, while the block lasts."""

        async def watch() -> None:
            await self.next()
            stop.set()

        task = asyncio.create_task(watch())
        try:
            yield
        finally:
            task.cancel()


@contextlib.asynccontextmanager
async def reporting(progress: Callable[[], dict[str, Any]]) -> AsyncIterator[None]:
    """Tell the driver what *progress* returns, some times a second, until the block ends."""

    async def report() -> None:
        last: dict[str, Any] = {}
        while True:
            now = progress()
            if now != last:
                say({"progress": now, "at": time.time()})
                last = now
            await asyncio.sleep(_PROGRESS_SECONDS)

    task = asyncio.create_task(report())
    try:
        yield
    finally:
        task.cancel()
