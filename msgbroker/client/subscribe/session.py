"""One Subscribe stream from hello to end.

It has its own `Settlements`: what was not started when the stream ends is dropped, and a verdict on one of its
messages goes nowhere afterwards, because the broker has given that message to somebody else by then.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import Callable
from typing import Any, Final

import grpc

from msgbroker.client.connect.background import first_of
from msgbroker.client.handle.group_handlers import GroupHandlers
from msgbroker.client.handle.handed import HandedMessage
from msgbroker.client.handle.holding import Hold
from msgbroker.client.handle.turns import Turns
from msgbroker.client.subscribe.closing import Closing
from msgbroker.client.subscribe.confirmations import Confirmations
from msgbroker.client.subscribe.credit import CreditGauge
from msgbroker.client.subscribe.in_loop import InLoop
from msgbroker.client.subscribe.requests import hello_of, request_of
from msgbroker.client.subscribe.settlements import RequestRoom, Settlements
from msgbroker.client.values.config import ClientConfig
from msgbroker.client.values.log_lines import log_line
from msgbroker.contract import limits
from msgbroker.contract.errors import BrokerUnavailableError, MessageCenterError
from msgbroker.v1 import subscriber_pb2

OnAttached = Callable[[subscriber_pb2.Attached], None]

_FAREWELL_SECONDS: Final = 2.0
"""How long the last verdicts may take to arrive."""
BEGUN_SECONDS: Final = 0.025
"""What is begun is said with the next request once its handler has taken so long, alone before it has taken twice as
long. A handler that is done sooner never needs it: most messages are never said to be begun."""


class SessionOverError(Exception):
    """The session has ended.

    With a cause: because something failed. With addresses: the broker sends us there. With neither: on purpose.
    """

    def __init__(self, cause: MessageCenterError | None = None, relocation: tuple[str, ...] = ()) -> None:
        super().__init__(str(cause or relocation or "on purpose"))
        self.cause = cause
        self.relocation = relocation


class SubscriberSession:
    """What one stream knows: its lanes, its verdicts, its credit."""

    def __init__(
        self,
        config: ClientConfig,
        group: str,
        handlers: GroupHandlers,
        process_id: bytes,
        on_attached: OnAttached,
    ) -> None:
        self._config = config
        self._group = group
        self._handlers = handlers
        self._process_id = process_id
        self._on_attached = on_attached
        self._loop = asyncio.get_running_loop()
        self._ready = asyncio.Event()
        self._settlements = Settlements(self._ready.set, InLoop())
        asked = handlers.credit
        credit_min = min(asked or handlers.concurrency, limits.CREDIT_MAX)
        self._gauge = CreditGauge(credit_min, asked or limits.UNSETTLED_MAX_DEFAULT, self._loop.time())
        self._attached = asyncio.Event()
        self._hold = Hold()
        self._look_seconds = math.inf
        self._is_time_changed = asyncio.Event()
        self._looking: asyncio.TimerHandle | None = None
        self._looked_at = 0.0
        self._confirmations = Confirmations(self._ready.set)
        self._turns = Turns(self._confirmations.wait)
        self._is_sent_away = asyncio.Event()
        self._relocation: tuple[str, ...] = ()
        self._is_leaving = False
        self._is_finished = False

    async def serve(self, call: Any, closing: Closing) -> None:
        """Take deliveries and return verdicts until the stream ends; always ends with an exception."""
        try:
            await first_of(
                self._read(call),
                self._write(call),
                self._close_when_told(closing),
                self._leave_when_sent(),
                self._extend_when_due(),
                self._expect_attached(),
            )
        finally:
            self._settlements.close()
            self._handlers.lose_stream(self._hold.ack_timeout_seconds)
            if self._looking is not None:
                self._looking.cancel()
            self._handlers.take_turns(None)
            self._turns.end()
            self._confirmations.end()
            call.cancel()

    def leave(self) -> None:
        """Finish what runs, give back the rest and end, as if the broker had asked for it."""
        self._is_sent_away.set()

    # --- down ---------------------------------------------------------------------------------------------------

    async def _read(self, call: Any) -> None:
        while True:
            response = await call.read()
            if response is grpc.aio.EOF:
                if self._is_leaving:
                    raise SessionOverError(relocation=self._relocation)
                raise SessionOverError(BrokerUnavailableError("the broker ended the stream"))
            self._take(response)

    async def _expect_attached(self) -> None:
        """Give up a broker that takes the stream and says nothing: another one may serve it."""
        seconds = self._config.answer_timeout_seconds
        try:
            async with asyncio.timeout(seconds):
                await self._attached.wait()
        except TimeoutError:
            raise SessionOverError(BrokerUnavailableError(f"the broker did not answer within {seconds:g} s")) from None

    def _take(self, response: subscriber_pb2.SubscribeResponse) -> None:
        if response.HasField("attached"):
            self._take_attached(response.attached)
        for revoked in response.revoked:
            self._revoke(revoked)
        for taken in response.taken_back:
            self._take_back(taken)
        deadline = self._loop.time() + self._hold.start_seconds
        for batch in response.batches:
            lane = self._settlements.lane(batch.queue_id, batch.epoch)
            if self._is_leaving:
                self._handlers.give_back(batch.deliveries, lane)
            else:
                self._handlers.take_in(batch.deliveries, lane, deadline, are_suspect=batch.suspect)
        if response.batches:
            self._look_out()
        if response.confirmed:
            self._confirmations.take(response.confirmed)
        if response.HasField("relocation") and response.relocation.addresses:
            self._relocation = tuple(response.relocation.addresses)
            self._is_sent_away.set()
        if response.draining:
            self._is_sent_away.set()

    def _take_attached(self, attached: subscriber_pb2.Attached) -> None:
        self._gauge.cap(attached.unsettled_max or limits.UNSETTLED_MAX_DEFAULT)
        self._hold = Hold(attached.ack_timeout_ms / 1_000 or math.inf, attached.handle_ms_max / 1_000)
        # Never less often than before: what came by a shorter ack timeout has that.
        self._look_seconds = min(self._look_seconds, self._hold.look_seconds)
        if self._attached.is_set():
            # Again: the ack timeout was changed, for what comes from here on.
            self._is_time_changed.set()
            return
        self._attached.set()
        if attached.careful_ms:
            log_line(logging.INFO, "subscriber.begun_carefully", group=self._group, seconds=attached.careful_ms / 1_000)
            self._turns.start_carefully(attached.careful_ms / 1_000)
        self._handlers.take_turns(self._turns)
        self._on_attached(attached)

    # --- what is kept, and lost ---------------------------------------------------------------------------------

    async def _extend_when_due(self) -> None:
        """Extend the time of what handlers are at for long."""
        await self._attached.wait()
        while True:
            # What comes by a shorter ack timeout may be late before the next look is due by the longer one.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._look_seconds):
                    await self._is_time_changed.wait()
            self._is_time_changed.clear()
            self._handlers.extend_due(self._hold)

    def _revoke(self, revoked: subscriber_pb2.LaneRevoked) -> None:
        lane = self._settlements.revoke(revoked.queue_id, revoked.epoch)
        if lane is not None:
            why = "its queue is at another broker, or was moved by hand"
            self._handlers.take_back(lambda message: message.is_of(lane), why)

    def _take_back(self, taken: subscriber_pb2.TakenBack) -> None:
        lane = self._settlements.lane(taken.queue_id, taken.epoch)
        ranges = list(zip(taken.ranges[::2], taken.ranges[1::2], strict=False))

        def is_meant(message: HandedMessage) -> bool:
            is_of_that = message.is_of(lane) and message.attempt == taken.attempt
            return is_of_that and any(first <= message.queue_offset <= last for first, last in ranges)

        self._handlers.take_back(is_meant, "its time is over")

    # --- what is begun ------------------------------------------------------------------------------------------

    def _look_out(self) -> None:
        """See that what handlers are at for a while is said, as long as there is something that was not."""
        if self._looking is None and (self._handlers.has_waiting or self._handlers.unsaid_since() is not None):
            self._looking = self._loop.call_later(BEGUN_SECONDS, self._look)

    def _look(self) -> None:
        self._looking = None
        since = self._handlers.unsaid_since()
        if since is not None and since <= self._loop.time() - BEGUN_SECONDS:
            self._ready.set()
        self._look_out()

    def _say_begun(self) -> None:
        """Gather what is begun for the next request. At most some hundred times a second: not once per request."""
        now = self._loop.time()
        if now - self._looked_at >= BEGUN_SECONDS / 4:
            self._looked_at = now
            self._handlers.say_begun(now - BEGUN_SECONDS, limits.SETTLEMENT_RANGES_MAX)

    # --- up -----------------------------------------------------------------------------------------------------

    async def _write(self, call: Any) -> None:
        try:
            hello = hello_of(self._config, self._group, self._process_id, self._handlers.message_types)
            await call.write(subscriber_pb2.SubscribeRequest(hello=hello, credit=self._gauge.credit))
            while True:
                await self._ready.wait()
                self._ready.clear()
                request = self._next_request()
                await call.write(request)
                if self._settlements.has_more:
                    self._ready.set()
                elif self._is_finished and request.pause:
                    await call.done_writing()
                    return
                elif self._is_finished:
                    # Said before it was time to leave: without the pause, an end counts as a failure of what we hold.
                    self._ready.set()
        except asyncio.InvalidStateError:
            # grpc.aio's word for a call that has ended; the reader hears why.
            return

    def _next_request(self) -> subscriber_pb2.SubscribeRequest:
        self._say_begun()
        room = RequestRoom()
        begun = self._settlements.take_begun(room)
        extended = self._settlements.take_extended(room)
        settled = self._settlements.take(room)
        request = request_of(begun, extended, settled)
        request.pause = self._is_leaving
        number = None if self._settlements.has_more else self._confirmations.next_number()
        if number is not None:
            request.confirm = number
        credit = None
        if self._handlers.credit is None:
            credit = self._gauge.observe(self._settlements.settled_count, self._loop.time())
        if credit is not None:
            request.credit = credit
        return request

    # --- leaving ------------------------------------------------------------------------------------------------

    async def _close_when_told(self, closing: Closing) -> None:
        """When the client closes: finish what runs, give back the rest, see the verdicts off."""
        await closing.wait()
        self._stop_taking()
        if not await self._handlers.join(closing.seconds_left):
            await self._handlers.cancel()
        await self._see_off()

    async def _leave_when_sent(self) -> None:
        """When the broker sends us away: the same, but handlers have the time they need.

        As long as the broker waits for them: lanes that it stops have no time extended, others do until it stops.
        """
        await self._is_sent_away.wait()
        log_line(logging.INFO, "subscriber.sent_away", group=self._group)
        self._stop_taking()
        hold = self._hold
        until = self._loop.time() + hold.limit_seconds
        seconds = hold.ack_timeout_seconds
        while not await self._handlers.join(seconds):
            if not self._handlers.is_holding or self._loop.time() >= until:
                break
            seconds = hold.look_seconds
        await self._see_off()

    def _stop_taking(self) -> None:
        self._is_leaving = True
        self._handlers.release_waiting()
        self._ready.set()

    async def _see_off(self) -> None:
        self._is_finished = True
        self._ready.set()
        # The reader sees the end of the stream first, unless the broker is no longer there to end it.
        await asyncio.sleep(_FAREWELL_SECONDS)
        raise SessionOverError(relocation=self._relocation)
