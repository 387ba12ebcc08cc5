"""The core of every center: its publisher, its subscribers, and how both begin and end. It lives on one event loop.

`MessageCenter` and `SyncMessageCenter` are what applications see of it; each has one. The center in memory, for tests,
has a core that stores and delivers by itself (`testing.memory_core`): it overrides what is said to be `open`ed here.
"""

from __future__ import annotations

import asyncio
import dataclasses
import secrets
import signal
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, Final

from msgbroker.client.connect import forks
from msgbroker.client.connect.background import LoopEndedError
from msgbroker.client.connect.directory import register_through_any, until_answered
from msgbroker.client.connect.outages import OutageLog
from msgbroker.client.core.last_words import log_closing, log_left_unanswered, log_not_closed, log_waiting
from msgbroker.client.core.stop_signals import stopped_by_signals
from msgbroker.client.handle.group_handlers import GroupHandlers
from msgbroker.client.handle.handlers import HandlerOptions, make_handler
from msgbroker.client.handle.signatures import HandlerFunction
from msgbroker.client.publish.publisher import Publisher, PublishingBuffer
from msgbroker.client.publish.stream import PublisherStream
from msgbroker.client.publish.wire import MessageEncoder
from msgbroker.client.subscribe.stream import SubscriberStream
from msgbroker.client.subscribe.subscribers import GroupStream, Subscribers
from msgbroker.client.values.config import (
    AddressesGiven,
    CenterSettings,
    ClientConfig,
    check_call_timeout,
    default_instance_id,
    make_config,
)
from msgbroker.client.values.registration import REGISTER_TIMEOUT_SECONDS, Registration
from msgbroker.contract import limits
from msgbroker.contract.errors import CenterClosedError, MessageCenterError

_LAST_ANSWERS_SECONDS: Final = 1.0
"""How long closing waits at least for answers to what was published, where it may wait at all."""
_QUIET_SECONDS: Final = 1.0
"""How long closing may take before the client logs what it waits for."""


def make_core(addresses: AddressesGiven, settings: CenterSettings) -> CenterCore:
    """Return a core for what the application gave its center; raise InvalidSettingError or InvalidNameError."""
    return CenterCore(make_config(addresses, settings), is_instance_named=bool(settings.get("instance_id")))


class CenterCore:
    """Opens a publisher when the first message comes, and the subscribers' streams when they are started."""

    def __init__(self, config: ClientConfig, *, is_instance_named: bool) -> None:
        """Make it; unless the application *is_instance_named*, a forked process makes up another instance id."""
        self.config = config
        self.encode = MessageEncoder().encode
        """Makes bytes of a message, in the caller's thread: what is published is what it was when it was given."""
        self._is_instance_named = is_instance_named
        self._publisher: Publisher | None = None
        self._is_publishing_over = False
        self._subscribers = Subscribers(self._open_stream, self._register_for_handler)
        self._process_id = b""
        self._is_closed = False
        self._closing: asyncio.Task[None] | None = None
        forks.watch_center(self)

    def begin_anew(self) -> None:
        """Go on in a forked process as if this had never been used, with the same handlers."""
        forks.never_free(self._publisher, self._subscribers, self._closing)
        self._publisher = self._closing = None
        self._subscribers = self._subscribers.anew()
        self._process_id = b""
        self._is_publishing_over = self._is_closed
        if not self._is_instance_named:
            self.config = dataclasses.replace(self.config, instance_id=default_instance_id(self.config.host))

    # --- publishing ---------------------------------------------------------------------------------------------

    def open_buffer(self) -> PublishingBuffer:
        """Return where encoded messages go in; raise CenterClosedError where nothing can be published any more."""
        if self._publisher is None:
            if self._is_publishing_over:
                raise CenterClosedError
            self._publisher = self._open_publisher()
        return self._publisher.buffer

    @property
    def unanswered_count(self) -> int:
        """How many published messages wait for their answer, or for room."""
        return 0 if self._publisher is None else self._publisher.buffer.unanswered_count

    @property
    def left_count(self) -> int | None:
        """How many messages are unanswered, were it to end now; None where nothing is under way."""
        count = self.unanswered_count
        return count if count or self._subscribers.is_started else None

    async def flush(self) -> None:
        """Wait until everything published so far has been answered, or has failed."""
        if self._publisher is not None:
            await self._publisher.buffer.flush()

    # --- subscribing --------------------------------------------------------------------------------------------

    def attach(self, function: HandlerFunction, options: HandlerOptions) -> None:
        """Make *function* a handler; only before the start."""
        self.check_open()
        self._subscribers.attach(make_handler(function, options))

    async def start(self) -> None:
        """Connect the subscribers, and return once each group has been attached by a broker."""
        self.check_open()
        await self._subscribers.start()

    async def run(self, *, handle_signals: bool | None) -> dict[str, MessageCenterError]:
        """Run the subscribers until a signal, or until the center is closed; return the groups that have ended."""
        self.check_open()
        loop = asyncio.get_running_loop()

        def stop(number: signal.Signals) -> None:
            with suppress(RuntimeError):
                # Else the loop is closed, and so is the center.
                loop.call_soon_threadsafe(self.close_by_signal, number)

        with stopped_by_signals(stop, handle_signals):
            return await self._subscribers.run()

    @property
    def ended_groups(self) -> dict[str, MessageCenterError]:
        """The groups that are not served any more, and why."""
        return self._subscribers.ended

    async def register(self, wanted: Registration, timeout_seconds: float = REGISTER_TIMEOUT_SECONDS) -> list[str]:
        """Register what does not exist, and return what was made."""
        check_call_timeout(timeout_seconds)
        self.check_open()
        return await self._register(wanted, timeout_seconds)

    # --- closing ------------------------------------------------------------------------------------------------

    def check_open(self) -> None:
        """Raise CenterClosedError where the center is closed, or closes."""
        if self._is_closed:
            raise CenterClosedError

    async def close(self) -> None:
        """Stop in good order; every call waits until it is closed, but for that of a handler."""
        closing = self._begin_to_close()
        if not self._subscribers.is_handling(asyncio.current_task()):
            await asyncio.shield(closing)

    def close_by_signal(self, number: signal.Signals) -> None:
        """Begin to close, as a signal asks for it, and say so in the log."""
        log_closing(number.name, self.config.drain_timeout_seconds)
        self._begin_to_close()

    def _begin_to_close(self) -> asyncio.Task[None]:
        self._is_closed = True
        if self._closing is None:
            self._closing = asyncio.get_running_loop().create_task(self._close(), name="close")
        return self._closing

    async def _close(self) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() + self.config.drain_timeout_seconds
        saying = loop.call_later(_QUIET_SECONDS, self._say_what_is_waited_for, until)
        try:
            try:
                # Handlers publish: the publisher stays until they are done, and opens for them if it must.
                await self._subscribers.close(until)
            finally:
                self._is_publishing_over = True
                # What the last handler published has a moment, even if that one has used all the time there was.
                moment_seconds = min(self.config.drain_timeout_seconds, _LAST_ANSWERS_SECONDS)
                await self._close_publisher(max(until, loop.time() + moment_seconds))
        finally:
            saying.cancel()
            self._subscribers.announce_closed()

    async def _close_publisher(self, until: float) -> None:
        if self._publisher is None:
            return
        try:
            async with asyncio.timeout_at(until):
                await self._publisher.buffer.flush()
        except TimeoutError:
            log_left_unanswered(self.unanswered_count)
        await self._publisher.close(CenterClosedError())
        self._publisher = None

    def _say_what_is_waited_for(self, until: float) -> None:
        seconds_left = max(0.0, until - asyncio.get_running_loop().time())
        log_waiting(seconds_left, self._subscribers.running_counts, self.unanswered_count)

    # --- what the center in memory does otherwise ---------------------------------------------------------------

    def _open_publisher(self) -> Publisher:
        forks.check()
        return PublisherStream(self.config, OutageLog("publisher"), self._take_failure)

    def _open_stream(self, group: str, handlers: GroupHandlers) -> GroupStream:
        forks.check()
        # Made when it is needed: two processes must not have the same one.
        self._process_id = self._process_id or secrets.token_bytes(limits.PROCESS_ID_BYTES)
        return SubscriberStream(
            self.config,
            group,
            handlers,
            outages=OutageLog("subscriber", group=group),
            process_id=self._process_id,
            on_failure=self._take_failure,
        )

    async def _register(self, wanted: Registration, timeout_seconds: float) -> list[str]:
        forks.check()
        return await register_through_any(self.config, wanted, timeout_seconds)

    async def _register_for_handler(self, wanted: Registration) -> None:
        def register() -> Coroutine[Any, Any, list[str]]:
            return self.register(wanted)

        await until_answered(register, self.config, OutageLog("registration", group=wanted.group))

    def _take_failure(self, what: str, error: BaseException) -> bool:
        """Take note that a part of us has ended; where the whole loop has, say that nobody closed us.

        Returns whether somebody waits in `run`, who gets it raised.
        """
        if not isinstance(error, LoopEndedError):
            return self._subscribers.fail(what, error)
        if not self._is_closed:
            self._is_closed = self._is_publishing_over = True
            log_not_closed("MessageCenter", "use `async with`, or await close()", self.unanswered_count)
            # They work in no other loop; and what they ended with has gRPC's objects at hand, which hold up forks.
            self._publisher = None
            self._subscribers = self._subscribers.anew()
        return False
