"""Carries the outbox to a broker: connects, writes frames, reads answers, and starts again elsewhere when that fails.

All decisions about frames are the outbox's; this module does what it says.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final

import grpc

from msgbroker.client.connect import forks
from msgbroker.client.connect.addresses import Addresses, Backoff
from msgbroker.client.connect.background import (
    LoopEndedError,
    OnFailure,
    cancel_and_wait,
    cancelled_by_others,
    first_of,
)
from msgbroker.client.connect.channel import close_at_once, connect, list_brokers, why_ended
from msgbroker.client.connect.outages import OutageLog
from msgbroker.client.connect.unreachable import none_of, unavailable, why
from msgbroker.client.publish.answers import Answers, hint_seconds
from msgbroker.client.publish.buffer import PublishBuffer, new_publisher_id
from msgbroker.client.publish.frames import Mark
from msgbroker.client.publish.given_up import broken_by
from msgbroker.client.publish.silence import Silence
from msgbroker.client.publish.wire import frame_messages
from msgbroker.client.values.client_version import client_version
from msgbroker.client.values.config import ClientConfig
from msgbroker.client.values.log_lines import log_line
from msgbroker.contract.errors import BrokerUnavailableError, MessageCenterError, UnavailableCause
from msgbroker.v1 import publisher_pb2

_METHOD: Final = "/msgbroker.v1.Publisher/PublishStream"
_LOOK_SECONDS: Final = 0.25


class _LeaveStreamError(Exception):
    """The stream works no longer (then there is a cause), or is not wanted any more."""

    def __init__(self, cause: MessageCenterError | None = None, *, is_draining: bool = False) -> None:
        super().__init__(str(cause or "on purpose"))
        self.cause = cause
        self.is_draining = is_draining


class PublisherStream:
    """The task that carries one publisher's buffer to whichever broker takes it."""

    def __init__(self, config: ClientConfig, outages: OutageLog, on_failure: OnFailure) -> None:
        self.buffer = PublishBuffer(config)
        self._outbox = self.buffer.outbox
        self._answers = Answers(self.buffer, is_patient=config.on_unavailable == "wait")
        self._config = config
        self._outages = outages
        self._on_failure = on_failure
        self.loop = self._loop = asyncio.get_running_loop()
        self._addresses = Addresses(config.addresses)
        self._backoff = Backoff(config.backoff_initial_seconds, config.backoff_max_seconds)
        self._silence = Silence(config.answer_timeout_seconds)
        self._is_closing = False
        self._is_leaving = False
        """Whether the broker has told this stream to go: then its end is no trouble, however it comes."""
        self._round: Mark | None = None
        """A mark set before the first of the attempts whose failures are kept; for those who do not want to wait."""
        self._failures: dict[str, MessageCenterError] = {}
        self._connected: tuple[Any, grpc.aio.Channel] | None = None
        self._must_disconnect = asyncio.Event()
        self._is_disconnected = asyncio.Event()
        self._is_disconnected.set()
        self._task = self._loop.create_task(self._run(), name="publisher")
        self._clock = self._loop.create_task(self._expire(), name="publisher clock")
        for task in (self._task, self._clock):
            task.add_done_callback(self._ended)
        forks.watch_connection(self)

    @property
    def is_connected(self) -> bool:
        """Whether a connection is open, or being made."""
        return not self._is_disconnected.is_set()

    def can_disconnect(self, here: asyncio.AbstractEventLoop | None) -> bool:
        """Whether that would disturb nobody: what is sent again is stored once. Else its loop must go on meanwhile."""
        return self.loop is here or self.loop.is_running()

    async def disconnect(self) -> None:
        """Give the connection up, if there is one; the next one goes on with what is unanswered."""
        self._must_disconnect.set()
        await self._is_disconnected.wait()

    def break_off(self) -> None:
        """Do the same where the loop cannot go on before the connection must be closed."""
        self._must_disconnect.set()
        if self._connected is not None:
            call, channel = self._connected
            call.cancel()
            close_at_once(channel)

    async def close(self, reason: MessageCenterError) -> None:
        """Stop; whatever is unanswered fails with *reason*."""
        self._is_closing = True
        await cancel_and_wait(self._task, self._clock)
        self.buffer.close(reason)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if task.cancelled() and self._is_closing:
            return
        error = cancelled_by_others() if task.cancelled() else task.exception()
        if error is None:
            return
        if not isinstance(error, LoopEndedError):
            # Nobody may wait for ever because of it. Where the loop ends nobody does.
            self.buffer.close(broken_by(error))
        self._on_failure("the publisher", error)

    async def _expire(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            self.buffer.expire(self._loop.time())

    async def _run(self) -> None:
        while True:
            if self._outbox.is_given_up:
                # Nobody waits for these frames any more: what is published now shall not queue behind them.
                self._outbox.drop_frames()
                self._outbox.restart(new_publisher_id())
                self.buffer.after_removal()
            if self._outbox.count == 0:
                self._end_round()
                self.buffer.work.clear()
                await self.buffer.work.wait()
            self._round = self._round or self._outbox.mark()
            address = self._addresses.current()
            try:
                await self._serve_until_told(address)
            except _LeaveStreamError as left:
                if left.cause is not None:
                    await self._step_back(address, left.cause)
                elif left.is_draining:
                    self._addresses.advance()
                    # There may be no other broker, and this one takes a while to end.
                    await asyncio.sleep(self._backoff.next_seconds())

    async def _serve_until_told(self, address: str) -> None:
        self._must_disconnect.clear()
        self._is_disconnected.clear()
        try:
            # Leaving first: a call that is broken off looks like one that was cancelled.
            await first_of(self._disconnect_if_told(), self._serve(address))
        finally:
            self._is_disconnected.set()

    async def _disconnect_if_told(self) -> None:
        await self._must_disconnect.wait()
        raise _LeaveStreamError

    async def _step_back(self, address: str, cause: MessageCenterError) -> None:
        """Turn to the next broker after a while; fail what waits where waiting does not help or is not wanted."""
        self._addresses.advance()
        if not cause.retryable:
            # A hello that was refused (unknown namespace or group): so it would be everywhere.
            is_heard = self.buffer.refuse_all(cause)
            # One-way messages have nobody who is told.
            level = logging.DEBUG if is_heard else logging.ERROR
            log_line(level, "publisher.refused", cause.message, reason=cause.reason)
            return
        self.buffer.trouble = cause
        if self._outbox.count:
            # Or nobody misses it.
            self._outages.lost(address, cause, has_others=len(self._addresses.known) > 1)
        log_line(logging.INFO, "publisher.disconnected", why(address, cause), address=address, reason=cause.reason)
        if self._config.on_unavailable == "raise":
            self._failures[address] = cause
            if not self._failures.keys() >= set(self._addresses.known):
                # Who does not want to wait hears of it as soon as all have been tried.
                return
            self.buffer.fail_all(none_of(self._failures), before=self._round)
            self._end_round()
            self._backoff.reset()
        await asyncio.sleep(self._backoff.next_seconds())

    def _end_round(self) -> None:
        self._failures.clear()
        if self._round is not None:
            self._outbox.unmark(self._round)
            self._round = None

    async def _serve(self, address: str) -> None:
        """Publish through *address* until that works no longer; always ends with _LeaveStreamError."""
        try:
            channel = await connect(address, self._config)
        except BrokerUnavailableError as error:
            raise _LeaveStreamError(error) from error
        self._outbox.rewind()
        self._silence.begin()
        self._end_round()
        self._is_leaving = False
        call: Any = channel.stream_stream(_METHOD, response_deserializer=publisher_pb2.PublishResult.FromString)()
        self._connected = call, channel
        try:
            await first_of(
                self._read(call, address), self._write(call), self._watch(address), self._learn(channel, address)
            )
        except grpc.aio.AioRpcError as error:
            if self._is_leaving:
                raise _LeaveStreamError(is_draining=True) from error
            raise _LeaveStreamError(await why_ended(error, channel, address, self._config)) from error
        finally:
            self._connected = None
            # What was published until here was tried here.
            self._round = self._outbox.mark()
            call.cancel()
            await channel.close()

    async def _learn(self, channel: grpc.aio.Channel, address: str) -> None:
        try:
            self._addresses.learn(await list_brokers(channel, address, self._config))
        except MessageCenterError as error:
            # The addresses that were given go on serving.
            log_line(logging.DEBUG, "publisher.brokers_not_listed", address=address, reason=error.reason)

    async def _write(self, call: Any) -> None:
        try:
            await call.write(self._hello())
            while True:
                frame = self._outbox.next_frame()
                if frame is None:
                    self.buffer.work.clear()
                    # A sealing that found only cancelled messages has made room.
                    self.buffer.after_removal()
                    await self.buffer.work.wait()
                    continue
                self._silence.wrote(self._outbox.in_flight)
                for part in frame_messages(frame.sequence, frame.messages):
                    await call.write(part)
                    self._silence.wrote(self._outbox.in_flight)
        except asyncio.InvalidStateError:
            # grpc.aio's word for a call that has ended; the reader hears why.
            return

    def _hello(self) -> bytes:
        hello = publisher_pb2.PublisherHello(
            publisher_id=self._outbox.publisher_id,
            namespace=self._config.namespace,
            publisher_group=self._config.publisher_group,
            born_host=self._config.host,
            client_version=client_version(),
        )
        return publisher_pb2.PublishFrame(hello=hello).SerializeToString()

    async def _read(self, call: Any, address: str) -> None:
        while True:
            result = await call.read()
            if result is grpc.aio.EOF:
                if self._is_leaving:
                    raise _LeaveStreamError(is_draining=True)
                raise _LeaveStreamError(unavailable(address, "it has ended the stream", UnavailableCause.LOST))
            self._silence.begin()
            if result.sequence:
                self._take_answer(result, address)
            if result.draining and not self._is_leaving:
                self._is_leaving = True
                self._outbox.hold()
            if self._is_leaving and self._outbox.in_flight == 0:
                raise _LeaveStreamError(is_draining=True)
            if self._outbox.is_quiet:
                # All frames of the stream are answered: nothing is missed while this waits.
                await asyncio.sleep(self._backoff.next_seconds(hint_seconds(result)))
                self._outbox.rewind()
            self.buffer.work.set()

    def _take_answer(self, result: publisher_pb2.PublishResult, address: str) -> None:
        if not result.HasField("failure"):
            self._backoff.reset()
            self._outages.back(address)
        if not self._answers.take(result):
            raise _LeaveStreamError

    async def _watch(self, address: str) -> None:
        """Leave a broker that answers nothing any more, and frames that nobody waits for."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            if self._outbox.is_given_up:
                raise _LeaveStreamError
            if not self._outbox.in_flight:
                continue
            seconds_max = self._silence.seconds_max(self._outbox.oldest_bytes)
            if self._silence.seconds > seconds_max:
                words = f"it has answered nothing for {seconds_max:.3g} s"
                raise _LeaveStreamError(unavailable(address, words, UnavailableCause.TIMEOUT))
