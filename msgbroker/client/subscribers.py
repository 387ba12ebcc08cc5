"""All subscriber groups of one center: their handlers and their streams.

Closing may come at any moment, in the middle of starting too: after each wait it is looked whether it has, and nothing
is opened any more.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from msgbroker.client.background import cancel_and_wait, unless
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

    async def close(self, until: float) -> None:
        """Stop taking messages, finish what is running, if it is done by then, send the verdicts."""


class Subscribers:
    """Collects handlers, then runs them."""

    def __init__(
        self,
        open_stream: Callable[[str, Dispatcher], GroupStream],
        register: Callable[[Registration], Coroutine[Any, Any, object]],
    ) -> None:
        self._open_stream = open_stream
        self._register = register
        self._tables: dict[str, HandlerTable] = {}
        self._dispatchers: dict[str, Dispatcher] = {}
        self._streams: dict[str, GroupStream] = {}
        self._is_started = False
        self._opening = asyncio.Lock()
        """One at a time: `start` and `run` may be called beside each other."""
        self._closing = asyncio.Event()
        self._closed = asyncio.Event()
        self._failure: BaseException | None = None
        self._failed = asyncio.Event()
        self._listeners = 0

    def attach(self, handler: Handler) -> None:
        """Add a handler; only before the start."""
        if self._is_started:
            raise CenterClosedError("handlers are declared before start() or run()")
        self._tables.setdefault(handler.group, HandlerTable()).add(handler)

    async def start(self) -> None:
        """Register what asks for it, connect each group, and return once all are attached.

        Raises CenterClosedError where the center is closed before they are. The next call tries a group again that
        could not be subscribed.
        """
        self._is_started = True
        async with self._opening:
            for group, table in self._tables.items():
                stream = self._streams.get(group)
                if stream is None or stream.task.done():
                    await self._open(group, table)
        await asyncio.gather(*(_attached(stream) for stream in self._streams.values()))

    async def _open(self, group: str, table: HandlerTable) -> None:
        for handler in table:
            if handler.registration is not None:
                await unless(self._closing, self._register(handler.registration))
        before = self._streams.get(group)
        if before is not None:
            # It has ended; what is left of it is what still runs.
            await unless(self._closing, before.close(asyncio.get_running_loop().time()))
        if self._closing.is_set():
            raise CenterClosedError
        dispatcher = self._dispatchers[group] = Dispatcher(table, self.fail)
        self._streams[group] = self._open_stream(group, dispatcher)

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
        try:
            await self.start()
        except CenterClosedError:
            if not self._closing.is_set():
                raise
            # Closed before it had begun: it ends as it would have later.
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

    def is_handling(self, task: asyncio.Task[Any] | None) -> bool:
        """Whether a handler runs in that task."""
        return any(dispatcher.is_handling(task) for dispatcher in self._dispatchers.values())

    async def close(self, until: float) -> None:
        """Stop taking messages, finish what is running, if it is done by then, send the verdicts."""
        self._closing.set()
        await asyncio.gather(*(stream.close(until) for stream in self._streams.values()))

    def announce_closed(self) -> None:
        """Let `run` return."""
        self._closed.set()


async def _attached(stream: GroupStream) -> None:
    """Wait until a stream is attached; raise what ended it if it cannot be."""
    attached = asyncio.ensure_future(stream.attached.wait())
    try:
        await asyncio.wait([attached, stream.task], return_when=asyncio.FIRST_COMPLETED)
        if stream.task.done():
            stream.task.result()
            # Without an error only closing ends it.
            raise CenterClosedError
    finally:
        await cancel_and_wait(attached)
