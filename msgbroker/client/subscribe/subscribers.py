"""All subscriber groups of one center: their handlers and their streams.

Closing may come at any moment, in the middle of starting too: after each wait it is looked whether it has, and nothing
is opened any more.

A group that a broker refuses for good takes its own handlers down, and nobody else's. Refused before it was ever
attached, a typo probably, it is raised by `start`; later it is logged at once, and told by `run` in the end.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from msgbroker.client.connect.background import cancel_and_wait, unless
from msgbroker.client.handle.group_handlers import GroupHandlers
from msgbroker.client.handle.handlers import Handler, HandlerTable
from msgbroker.client.values.log_lines import log_line
from msgbroker.client.values.registration import Registration
from msgbroker.client.values.texts import text_of
from msgbroker.contract.errors import CenterClosedError, MessageCenterError


class GroupStream(Protocol):
    """What gets one group its messages: a stream to a broker, or the lanes of a center in memory."""

    @property
    def attached(self) -> asyncio.Event:
        """An event that is set while the group is served."""

    @property
    def was_attached(self) -> bool:
        """Whether the group has ever been served."""

    @property
    def ended_by(self) -> MessageCenterError | None:
        """What the group was refused with for good, if it was."""

    @property
    def task(self) -> asyncio.Task[None]:
        """Ends with an error where the group cannot be subscribed (any more)."""

    async def close(self, until: float) -> None:
        """Stop taking messages, finish what is running, if it is done by then, send the verdicts."""


class Subscribers:
    """Collects the handlers that are declared, by group, and runs them once the center is started."""

    def __init__(
        self,
        open_stream: Callable[[str, GroupHandlers], GroupStream],
        register: Callable[[Registration], Coroutine[Any, Any, object]],
    ) -> None:
        self._open_stream = open_stream
        self._register = register
        self._tables: dict[str, HandlerTable] = {}
        self._handlers: dict[str, GroupHandlers] = {}
        self._streams: dict[str, GroupStream] = {}
        self._ended: dict[str, MessageCenterError] = {}
        """What each group was refused with for good, in the order of the refusals."""
        self._finishing: set[asyncio.Task[None]] = set()
        """The tasks that wait for the handlers of groups that have ended."""
        self._is_started = False
        self._opening = asyncio.Lock()
        """Held by who opens streams: `start` and `run` may be called beside each other."""
        self._closing = asyncio.Event()
        self._is_closed = False
        self._is_over = asyncio.Event()
        """Set when nothing is left to serve, or the center is closed."""
        self._failure: BaseException | None = None
        self._failed = asyncio.Event()
        self._listeners = 0

    def anew(self) -> Subscribers:
        """Return the same handlers, started by nobody."""
        subscribers = Subscribers(self._open_stream, self._register)
        for table in self._tables.values():
            for handler in table:
                subscribers.attach(handler)
        return subscribers

    @property
    def is_started(self) -> bool:
        """Whether handlers were started."""
        return self._is_started

    def attach(self, handler: Handler) -> None:
        """Add a handler; only before the start."""
        if self._is_started:
            raise CenterClosedError("handlers are declared before start() or run()")
        self._tables.setdefault(handler.group, HandlerTable()).add(handler)

    @property
    def running_counts(self) -> dict[str, int]:
        """How many messages the handlers of each group are at, where they are at any."""
        counts = {group: handlers.running_count for group, handlers in self._handlers.items()}
        return {group: count for group, count in counts.items() if count}

    @property
    def ended(self) -> dict[str, MessageCenterError]:
        """The groups that are served no more, as they were refused for good, and what with."""
        return dict(self._ended)

    async def start(self) -> None:
        """Register what asks for it, connect each group, and return once all are attached.

        Raises CenterClosedError where the center is closed before they are, and what a group cannot be subscribed for;
        the other groups are served all the same. The next call tries those again that are not served.
        """
        await self._start(are_ended_tried=True)

    async def _start(self, *, are_ended_tried: bool) -> None:
        self._is_started = True
        async with self._opening:
            await self._open_all(are_ended_tried=are_ended_tried)
        await asyncio.gather(*(_attached(stream) for stream in self._streams.values()))

    async def _open_all(self, *, are_ended_tried: bool) -> None:
        refused: MessageCenterError | None = None
        for group, table in self._tables.items():
            stream = self._streams.get(group)
            if stream is not None and not (stream.task.done() and (are_ended_tried or not _has_ended(stream))):
                continue
            try:
                await self._open(group, table)
            except CenterClosedError:
                raise
            except MessageCenterError as error:
                # The groups behind it are none the worse for it.
                self._ended[group] = error
                refused = refused or error
        if refused is not None:
            raise refused

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
        handlers = GroupHandlers(table, self.fail)
        stream = self._open_stream(group, handlers)
        self._handlers[group], self._streams[group] = handlers, stream
        self._ended.pop(group, None)
        self._is_over.clear()
        stream.task.add_done_callback(functools.partial(self._take_end, group, stream))

    def _take_end(self, group: str, stream: GroupStream, _: asyncio.Task[None]) -> None:
        """Take note that a group was refused for good, if it was: its handlers end with it, the others go on."""
        error = stream.ended_by
        if error is None:
            return
        # Before it was ever attached, `start` raises it. Later perhaps nobody waits who could.
        level, event = (logging.ERROR, "ended") if stream.was_attached else (logging.DEBUG, "refused")
        sentence = f"the group is not served any more: {error.message}"
        log_line(level, f"subscriber.{event}", sentence, group=group, reason=error.reason)
        self._ended[group] = error
        finishing = asyncio.ensure_future(_finish(self._handlers[group]))
        self._finishing.add(finishing)
        finishing.add_done_callback(self._finishing.discard)
        if self._ended.keys() >= self._tables.keys() and not self._closing.is_set():
            self._is_over.set()

    async def run(self) -> dict[str, MessageCenterError]:
        """Start, and wait until `close`; return the groups that have ended meanwhile, while others went on.

        Raises what makes a group impossible to subscribe, or ended a part of us; and where no group is left to serve,
        what ended the last one.
        """
        if not self._tables:
            log_line(
                logging.WARNING,
                "center.run_without_handlers",
                "no handler is declared: run() only waits until the center is closed. Handlers are declared before it: "
                "is the module that does so imported?",
            )
        serving = asyncio.ensure_future(self._serve())
        failed = asyncio.ensure_future(self._failed.wait())
        try:
            with self.listening():
                await asyncio.wait([serving, failed], return_when=asyncio.FIRST_COMPLETED)
            # Here, and not in a task of its own: a SystemExit would end the loop there.
            self.raise_failure()
            return serving.result()
        finally:
            await cancel_and_wait(serving, failed)

    async def _serve(self) -> dict[str, MessageCenterError]:
        # A group that has ended since `start` is no reason for the others not to go on.
        is_serving = any(not stream.task.done() for stream in self._streams.values())
        try:
            await self._start(are_ended_tried=not is_serving)
        except CenterClosedError:
            if not self._closing.is_set():
                raise
            # Closed before it had begun: it ends as it would have later.
        while not self._is_closed:
            await self._is_over.wait()
            # Somebody may have started one of them again meanwhile.
            if self._is_over.is_set() and not self._is_closed:
                raise _last_of(self._ended)
        return self.ended

    def fail(self, what: str, error: BaseException) -> bool:
        """Take note that a part of the client has ended for a reason that nobody foresaw, and say so loudly.

        Returns whether somebody waits in `run`, who gets it raised.
        """
        self._failure = self._failure or error
        self._failed.set()
        if isinstance(error, Exception) or not self._listeners:
            sentence = f"{what} has ended: {type(error).__name__}: {text_of(error)}"
            log_line(logging.CRITICAL, "client.failed", sentence, error)
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
        return any(handlers.is_handling(task) for handlers in self._handlers.values())

    async def close(self, until: float) -> None:
        """Stop taking messages, finish what is running, if it is done by then, send the verdicts."""
        self._closing.set()
        await asyncio.gather(*(stream.close(until) for stream in self._streams.values()))
        await cancel_and_wait(*self._finishing)

    def announce_closed(self) -> None:
        """Note that the center is closed, so that `run` returns."""
        self._is_closed = True
        self._is_over.set()


async def _attached(stream: GroupStream) -> None:
    """Wait until a stream is attached; raise what ended it if it never was."""
    attached = asyncio.ensure_future(stream.attached.wait())
    try:
        await asyncio.wait([attached, stream.task], return_when=asyncio.FIRST_COMPLETED)
        if stream.task.done() and not _has_ended(stream):
            stream.task.result()
            # Without an error only closing ends it.
            raise CenterClosedError
    finally:
        await cancel_and_wait(attached)


def _has_ended(stream: GroupStream) -> bool:
    """Whether a group was refused for good after it had been served."""
    return stream.was_attached and stream.ended_by is not None


async def _finish(handlers: GroupHandlers) -> None:
    """End the handlers of a group that has ended: those that run when they are done, whosever their messages are."""
    await handlers.join()
    await handlers.close()


def _last_of(ended: dict[str, MessageCenterError]) -> MessageCenterError:
    """Return what ended the last group, with a note of each of the others."""
    *before, (_, last) = ended.items()
    told = last.again()
    for group, error in before:
        told.add_note(f"group {group} had ended before: {error.reason}: {error.message}")
    return told
