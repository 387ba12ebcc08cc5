"""Keeps one subscriber group attached to a broker: one session after the other, at the broker that serves the group.

Where a broker sends it, it goes at once; but who is sent on again and again, or loses each session soon after it began,
knocks ever more slowly. That a broker attached it proves nothing: each does so first. A session that lasted does.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final

import grpc

from msgbroker.client.connect import forks
from msgbroker.client.connect.addresses import RELOCATIONS_IN_A_ROW_MAX, Addresses, Backoff
from msgbroker.client.connect.background import OnFailure, cancel_and_wait, cancelled_by_others, first_of
from msgbroker.client.connect.channel import connect, list_brokers, why_ended
from msgbroker.client.connect.outages import OutageLog
from msgbroker.client.handle.group_handlers import GroupHandlers
from msgbroker.client.subscribe.closing import Closing
from msgbroker.client.subscribe.missing_subscriptions import MissingSubscriptions
from msgbroker.client.subscribe.session import SessionOverError, SubscriberSession
from msgbroker.client.values.config import ClientConfig
from msgbroker.client.values.log_lines import log_line
from msgbroker.contract.errors import BrokerUnavailableError, MessageCenterError, NotUnderstoodError
from msgbroker.v1 import subscriber_pb2, subscriber_pb2_grpc

_LEARN_SECONDS: Final = 1.0
"""How long a broker that does not serve the group may take to tell who else there is."""
_LAST_WORDS_SECONDS: Final = 4.0
"""How long a session that closes may take beyond the time of its handlers; it bounds each step itself."""
_CANCEL_SECONDS: Final = 1.0


class SubscriberStream:
    """The task that keeps one group attached to a broker, whichever takes it."""

    def __init__(
        self,
        config: ClientConfig,
        group: str,
        handlers: GroupHandlers,
        *,
        outages: OutageLog,
        process_id: bytes,
        on_failure: OnFailure,
    ) -> None:
        self.attached = asyncio.Event()
        """Set while a broker serves the group."""
        self.was_attached = False
        """Whether a broker has ever served the group."""
        self.ended_by: MessageCenterError | None = None
        """The error that a broker refused the group with for good."""
        self._config = config
        self._group = group
        self._handlers = handlers
        self._outages = outages
        self._process_id = process_id
        self._on_failure = on_failure
        self.loop = self._loop = asyncio.get_running_loop()
        self._addresses = Addresses(config.addresses)
        self._backoff = Backoff(config.backoff_initial_seconds, config.backoff_max_seconds)
        self._missing = MissingSubscriptions(group)
        self._sent_away = 0
        """How many times in a row the group was sent away, without a session that lasted in between."""
        self._attached_at: float | None = None
        self._served_by = ""
        self._closing = Closing()
        self._session: SubscriberSession | None = None
        self._is_disconnecting = False
        self._must_disconnect = asyncio.Event()
        self._is_disconnected = asyncio.Event()
        self._is_disconnected.set()
        self.task = self._loop.create_task(self._run(), name=f"subscriber {group}")
        """Ends with an error where the group cannot be subscribed (any more)."""
        self.task.add_done_callback(self._ended)
        handlers.end_with(self.task)
        forks.watch_connection(self)

    @property
    def is_connected(self) -> bool:
        """Whether a connection is open, or being made."""
        return not self._is_disconnected.is_set()

    def can_disconnect(self, here: asyncio.AbstractEventLoop | None) -> bool:
        """Whether that would disturb nobody: what a handler is at must not go to others for it.

        To leave in good order takes a loop that goes on; to leave otherwise looks like the end of a process.
        """
        is_elsewhere = self.loop is not here and self.loop.is_running()
        return is_elsewhere and self._handlers.is_at_rest and not self._closing.has_begun

    async def disconnect(self) -> None:
        """Give the connection up, in good order; the next one is made at once, or when it may be."""
        self._is_disconnecting = True
        if self._session is not None:
            self._session.leave()
        else:
            self._must_disconnect.set()
        await self._is_disconnected.wait()

    def break_off(self) -> None:
        """Do nothing: no fork asks, as `can_disconnect` says no on its own loop."""

    async def close(self, until: float) -> None:
        """Stop taking messages, finish what is running, if it is done by then, send the verdicts, and leave."""
        self._closing.begin(until)
        await asyncio.wait([self.task], timeout=self._closing.seconds_left + _LAST_WORDS_SECONDS)
        if not self.task.done():
            self.task.cancel()
            await asyncio.wait([self.task], timeout=_CANCEL_SECONDS)
        if self.task.done() and not self.task.cancelled():
            # Looked at, so that asyncio does not report it once more: it was logged, or raised by `start`.
            self.task.exception()
        self._handlers.drop_waiting()
        # The broker may have gone before they were done.
        await self._handlers.join(self._closing.seconds_left)
        await self._handlers.close()

    def _ended(self, task: asyncio.Task[None]) -> None:
        if task.cancelled() and self._closing.has_begun:
            return
        error = cancelled_by_others() if task.cancelled() else task.exception()
        if error is not None and error is not self.ended_by:
            self._on_failure(f"the stream of group {self._group}", error)

    async def _run(self) -> None:
        closing = self._loop.create_task(self._closing.wait())
        try:
            while not self._closing.has_begun:
                await self._serve_and_choose_next(closing)
        finally:
            await cancel_and_wait(closing)

    async def _serve_and_choose_next(self, closing: asyncio.Task[None]) -> None:
        """Serve one session; then point at the next broker, after a wait where something failed."""
        address = self._addresses.current()
        self._attached_at = None
        try:
            await self._serve_until_told(address, closing)
        except SessionOverError as over:
            if self._has_lasted():
                self._backoff.reset()
                self._sent_away = 0
            cause = over.cause
            if cause is not None and not cause.retryable:
                self.ended_by = cause
                raise cause from over
            if cause is None and self._is_disconnecting:
                return
            if cause is None and self._sent_away < RELOCATIONS_IN_A_ROW_MAX:
                self._sent_away += 1
                self._follow(over.relocation)
                return
            # Sent in circles counts as a failure: the brokers have not agreed yet.
            self._sent_away = 0
            self._addresses.advance()
            if cause is not None:
                self._outages.lost(address, cause, has_others=len(self._addresses.known) > 1)
            log_line(logging.INFO, "subscriber.disconnected", str(over), group=self._group, address=address)
            await asyncio.wait([closing], timeout=self._backoff.next_seconds())

    def _has_lasted(self) -> bool:
        """Whether the session was attached for as long as a wait may take: it proves that the broker serves us."""
        attached_at = self._attached_at
        return attached_at is not None and self._loop.time() - attached_at >= self._config.backoff_max_seconds

    async def _serve_until_told(self, address: str, closing: asyncio.Task[None]) -> None:
        self._is_disconnecting = False
        self._must_disconnect.clear()
        self._is_disconnected.clear()
        try:
            await first_of(self._serve(address, closing), self._disconnect_if_told())
        finally:
            self._is_disconnected.set()

    async def _disconnect_if_told(self) -> None:
        await self._must_disconnect.wait()
        raise SessionOverError

    def _follow(self, relocation: tuple[str, ...]) -> None:
        if relocation:
            self._addresses.prefer(relocation)
        else:
            self._addresses.advance()

    async def _serve(self, address: str, closing: asyncio.Task[None]) -> None:
        connecting = self._loop.create_task(connect(address, self._config))
        await asyncio.wait([connecting, closing], return_when=asyncio.FIRST_COMPLETED)
        if not connecting.done():
            await cancel_and_wait(connecting)
            if not connecting.cancelled() and connecting.exception() is None:
                # It came up at the last moment.
                await connecting.result().close()
            raise SessionOverError
        try:
            channel = connecting.result()
        except BrokerUnavailableError as error:
            raise SessionOverError(error) from error
        stub: Any = subscriber_pb2_grpc.SubscriberStub(channel)
        self._served_by = address
        session = SubscriberSession(self._config, self._group, self._handlers, self._process_id, self._on_attached)
        self._session = session
        try:
            await first_of(session.serve(stub.Subscribe(), self._closing), self._learn(channel, address))
        except grpc.aio.AioRpcError as error:
            cause = await why_ended(error, channel, address, self._config)
            if isinstance(cause, NotUnderstoodError):
                # Another broker may understand it; where only this one was named, it tells of the others.
                await self._learn_at_once(channel, address, closing)
            raise SessionOverError(cause) from error
        finally:
            self._session = None
            self.attached.clear()
            await channel.close()

    async def _learn_at_once(self, channel: grpc.aio.Channel, address: str, closing: asyncio.Task[None]) -> None:
        learning = self._loop.create_task(self._learn(channel, address))
        await asyncio.wait([learning, closing], timeout=_LEARN_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        await cancel_and_wait(learning)

    def _on_attached(self, attached: subscriber_pb2.Attached) -> None:
        self._missing.take(attached.missing)
        self.attached.set()
        self.was_attached = True
        self._attached_at = self._loop.time()
        self._outages.back(self._served_by)

    async def _learn(self, channel: grpc.aio.Channel, address: str) -> None:
        try:
            self._addresses.learn(await list_brokers(channel, address, self._config))
        except MessageCenterError as error:
            # The addresses that were given go on serving.
            log_line(logging.DEBUG, "subscriber.brokers_not_listed", group=self._group, reason=error.reason)
