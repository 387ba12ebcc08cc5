"""All subscriber groups of one center: their handlers and their streams."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from msgbroker.client.background import cancel_and_wait
from msgbroker.client.dispatch import Dispatcher
from msgbroker.client.handlers import Handler, HandlerTable, Registration
from msgbroker.client.texts import text_of
from msgbroker.contract.errors import CenterClosedError

log = logging.getLogger("msgbroker.client")


class GroupStream(Protocol):
    """What keeps one group supplied."""

    @property
    def attached(self) -> asyncio.Event:
        """Set while the group is served."""

    @property
    def task(self) -> asyncio.Task[None]:
        """Ends with an error where the group cannot be subscribed at all."""

    async def close(self) -> None:
        """Stop taking messages, finish what is running, send the verdicts."""


class Subscribers:
    """Collects handlers, then runs them."""

    def __init__(
        self,
        open_stream: Callable[[str, Dispatcher], GroupStream],
        register: Callable[[Registration], Awaitable[object]],
    ) -> None:
        self._open_stream = open_stream
        self._register = register
        self._tables: dict[str, HandlerTable] = {}
        self._streams: dict[str, GroupStream] = {}
        self._closed: asyncio.Event | None = None
        self._failure: BaseException | None = None
        self._failed = asyncio.Event()
        self._listeners = 0

    def attach(self, handler: Handler) -> None:
        """Add a handler; only before the start."""
        if self._closed is not None:
            raise CenterClosedError("handlers are declared before start() or run()")
        self._tables.setdefault(handler.group, HandlerTable()).add(handler)

    async def start(self) -> None:
        """Register what asks for it, connect each group, and return once all are attached."""
        self._closed = self._closed or asyncio.Event()
        for group, table in self._tables.items():
            if group not in self._streams:
                for handler in table:
                    if handler.registration is not None:
                        await self._register(handler.registration)
                self._streams[group] = self._open_stream(group, Dispatcher(table, self.fail))
        await asyncio.gather(*(_attached(stream) for stream in self._streams.values()))

    async def run(self) -> None:
        """Start, and wait until `close`; raise what makes a group impossible to subscribe, or ended a part of us."""
        serving = asyncio.ensure_future(self._serve())
        failed = asyncio.ensure_future(self._failed.wait())
        try:
            with self.listening():
                await asyncio.wait([serving, failed], return_when=asyncio.FIRST_COMPLETED)
            # Here, and not in a task of its own: a SystemExit would end the loop there.
            self.raise_failure()
            serving.result()
        finally:
            await cancel_and_wait(serving, failed)

    async def _serve(self) -> None:
        await self.start()
        assert self._closed is not None  # start made it
        closed = asyncio.ensure_future(self._closed.wait())
        try:
            await asyncio.wait(
                [closed, *(stream.task for stream in self._streams.values())], return_when=asyncio.FIRST_EXCEPTION
            )
            for stream in self._streams.values():
                if stream.task.done():
                    stream.task.result()
        finally:
            await cancel_and_wait(closed)

    def fail(self, what: str, error: BaseException) -> bool:
        """Take note that a part of the client has ended for a reason that nobody foresaw, and say so loudly.

        Returns whether somebody waits in `run`, who gets it raised.
        """
        self._failure = self._failure or error
        self._failed.set()
        if isinstance(error, Exception) or not self._listeners:
            log.critical(
                "client.failed: %s has ended: %s: %s", what, type(error).__name__, text_of(error), exc_info=error
            )
        return self._listeners > 0

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Say that whatever ends a part of the client now is raised to somebody, by `raise_failure`."""
        self._listeners += 1
        try:
            yield
        finally:
            self._listeners -= 1

    @property
    def has_failed(self) -> bool:
        """Whether a part of the client has ended for a reason that nobody foresaw."""
        return self._failure is not None

    def raise_failure(self) -> None:
        """Raise what has ended a part of the client, if anything has."""
        if self._failure is not None:
            raise self._failure

    async def close(self) -> None:
        """Stop taking messages, finish what is running, send the verdicts."""
        await asyncio.gather(*(stream.close() for stream in self._streams.values()))

    def announce_closed(self) -> None:
        """Let `run` return."""
        if self._closed is not None:
            self._closed.set()


async def _attached(stream: GroupStream) -> None:
    """Wait until a stream is attached; raise what ended it if it cannot be."""
    attached = asyncio.ensure_future(stream.attached.wait())
    try:
        await asyncio.wait([attached, stream.task], return_when=asyncio.FIRST_COMPLETED)
        if stream.task.done():
            stream.task.result()
    finally:
        await cancel_and_wait(attached)
