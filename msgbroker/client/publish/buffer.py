"""The application's side of publishing: who waits for a receipt, who waits for room, and who has waited too long.

A thin asyncio shell around the pure outbox; the stream (`stream`) empties it.
"""

from __future__ import annotations

import asyncio
import logging
import math
import secrets
from contextlib import suppress
from typing import Any

from msgbroker.client.connect.failures import from_refusal
from msgbroker.client.publish.frames import Frame, Mark
from msgbroker.client.publish.given_up import fail, given_up
from msgbroker.client.publish.outbox import Outbox, OutboxConfig
from msgbroker.client.publish.publisher import ReceiptFuture
from msgbroker.client.publish.waiting_line import WaitingLine, WaitingMessage
from msgbroker.client.values.config import FRAME_BYTES_TARGET, ClientConfig
from msgbroker.client.values.log_lines import log_line
from msgbroker.client.values.message import Receipt
from msgbroker.contract.errors import ClientBufferFullError, MessageCenterError, PublishTimeoutError
from msgbroker.v1 import publisher_pb2


def new_publisher_id() -> bytes:
    """Return a publisher id that no other publisher has: random bytes."""
    return secrets.token_bytes(16)


class PublishBuffer:
    """What was published and not answered, with the futures of those who wait."""

    def __init__(self, config: ClientConfig) -> None:
        self.outbox: Outbox[ReceiptFuture] = Outbox(
            OutboxConfig(config.unanswered_messages_max, config.unanswered_bytes_max, FRAME_BYTES_TARGET),
            new_publisher_id(),
        )
        self.work = asyncio.Event()
        """Set when there may be a frame to send."""
        self.trouble: MessageCenterError | None = None
        """Why nothing is stored at the moment, as far as it is known."""
        self._config = config
        self._loop = asyncio.get_running_loop()
        timeout_seconds = config.publish_timeout_seconds
        self._timeout_seconds = math.inf if timeout_seconds is None else timeout_seconds
        self._flushes: dict[Mark, asyncio.Future[None]] = {}
        self._line = WaitingLine()
        self._waiting = self._line.places
        """Those who wait for room, or for their turn; while there are any, nobody comes in but through the line. Looked
        at for each message, and so without a call."""
        self._guest: asyncio.Task[Any] | None = None
        """Whose turn it is, in the one step of its task in which it hears of it."""
        self._broken: MessageCenterError | None = None

    @property
    def unanswered_count(self) -> int:
        """How many messages wait for their answer, or for room."""
        return self.outbox.count + len(self._waiting)

    def offer(self, encoded: bytes) -> ReceiptFuture:
        """Take one message and return the future of its receipt; raise ClientBufferFullError if there is no room."""
        if self._broken is not None:
            raise self._broken.again()
        if self._waiting or self.outbox.is_full:
            return self._offer_as_guest(encoded)
        loop = self._loop
        answer: ReceiptFuture = loop.create_future()
        if self.outbox.offer(encoded, answer, loop.time() + self._timeout_seconds):
            self.work.set()
        return answer

    def offer_in_turn(self, encoded: bytes, within_seconds: float | None = None) -> ReceiptFuture:
        """Take one message as soon as there is room and return the future of its receipt, whose time begins now.

        *within_seconds*: how long it may take, where that is not what publishing may take.
        """
        if self._broken is not None:
            raise self._broken.again()
        loop = self._loop
        answer: ReceiptFuture = loop.create_future()
        expires_at = loop.time() + (self._timeout_seconds if within_seconds is None else within_seconds)
        if self._waiting or self.outbox.is_full:
            self._line.add(WaitingMessage(encoded, answer, expires_at))
        elif self.outbox.offer(encoded, answer, expires_at):
            self.work.set()
        return answer

    async def taken(self, answer: ReceiptFuture) -> None:
        """Wait until the message of that answer waits for room no longer."""
        try:
            await self._line.passed(answer)
        except asyncio.CancelledError:
            answer.cancel()
            raise

    def is_sent(self, answer: ReceiptFuture) -> bool:
        """Return whether the unanswered message of that answer has been sent: it may be stored then."""
        return self.outbox.is_sent(answer)

    def offer_one_way(self, encoded: bytes) -> bool:
        """Take one message that nobody waits for; return False if there is no room."""
        if self._broken is not None:
            raise self._broken.again()
        if self._waiting or self.outbox.is_full:
            return False
        if self.outbox.offer(encoded, None, self._loop.time() + self._timeout_seconds):
            self.work.set()
        return True

    async def room(self) -> None:
        """Wait until there is room for a message, in the order of the callers. Whoever it returns to offers at once."""
        if not (self._waiting or self.outbox.is_full):
            return
        try:
            await self._line.turn()
            self._guest = asyncio.current_task()
        finally:
            # Whether it uses its turn or not: then what room is left goes to the next.
            self._loop.call_soon(self._let_in)

    async def flush(self) -> None:
        """Wait until everything published so far was answered, or given up."""
        if self._waiting:
            # What waits for room is published, and comes first. It has none any more where this raises.
            with suppress(MessageCenterError):
                await self.room()
        mark = self.outbox.mark()
        try:
            if not self.outbox.has_passed(mark):
                passed = self._flushes[mark] = self._loop.create_future()
                await passed
        finally:
            self.outbox.unmark(mark)
            self._flushes.pop(mark, None)

    def resolve(self, frame: Frame[ReceiptFuture], result: publisher_pb2.PublishResult) -> None:
        """Tell those who wait for a stored frame's messages."""
        if result.refusals:
            self._resolve_one_by_one(frame, result)
            return
        for index, waiter in enumerate(frame.waiters):
            if waiter is not None and not waiter.done():
                waiter.set_result(Receipt(result, index))

    def fail_frame(self, frame: Frame[ReceiptFuture], error: MessageCenterError) -> None:
        """Tell those who wait for a frame's messages that it is given up."""
        fail((waiter for waiter in frame.waiters if waiter is not None), error)

    def fail_all(self, error: MessageCenterError, before: Mark | None = None) -> None:
        """Give up everything unanswered, and say of each message whether it may be stored.

        What goes on goes on under a new publisher id. *before*: of what was never sent only what had been offered when
        that mark was set.
        """
        dropped = self.outbox.drop_all(before=before)
        fail(dropped.never_sent, given_up(error, may_be_stored=False))
        fail(dropped.maybe_stored, given_up(error, may_be_stored=True))
        self.outbox.restart(new_publisher_id())
        self.after_removal()

    def refuse_all(self, error: MessageCenterError) -> bool:
        """Give up everything unanswered by what the broker refused the stream with; return whether anybody was told.

        What goes on goes on under a new publisher id.
        """
        dropped = self.outbox.drop_all(is_refused=True)
        is_heard = fail(dropped.never_sent, error)
        is_heard |= fail(dropped.maybe_stored, given_up(error, may_be_stored=True))
        self.outbox.restart(new_publisher_id())
        self.after_removal()
        return is_heard

    def after_removal(self) -> None:
        """Give the room that was made to those who wait for it, and tell those who wait until all is answered."""
        self._let_in()
        for mark, passed in self._flushes.items():
            if not passed.done() and self.outbox.has_passed(mark):
                passed.set_result(None)

    def expire(self, now: float) -> None:
        """Fail what has waited longer than publishing may take."""
        expired = self.outbox.expire(now)
        expired.never_sent += self._line.expire(now)
        # Who had a time of its own hears of it from whoever set it.
        timeout_seconds = self._config.publish_timeout_seconds or 0.0
        address = self._config.addresses_text
        for waiters, may_be_stored in ((expired.never_sent, False), (expired.maybe_stored, True)):
            if waiters:
                fail(
                    waiters,
                    PublishTimeoutError(
                        timeout_seconds, may_be_stored=may_be_stored, address=address, trouble=self.trouble
                    ),
                )
        self.after_removal()

    def close(self, reason: MessageCenterError) -> None:
        """Fail whoever waits for anything, and whatever is offered from now on: nobody empties this any more."""
        self._broken = reason
        # First of all: they must not be let in.
        messages, turns = self._line.clear()
        fail(messages, given_up(reason, may_be_stored=False))
        fail(turns, reason)
        self.fail_all(reason)

    def _offer_as_guest(self, encoded: bytes) -> ReceiptFuture:
        """Take a message for which its bringer has waited. Others may have come meanwhile: it is behind them."""
        guest, self._guest = self._guest, None
        if guest is None or guest is not asyncio.current_task():
            raise ClientBufferFullError(self.outbox.count, self._config.unanswered_messages_max)
        return self.offer_in_turn(encoded)

    def _let_in(self) -> None:
        """Give the room there is to those who wait for it, in their order."""
        self._guest = None
        while self._waiting and not self.outbox.is_full:
            message = self._line.next_message()
            if message is None:
                return
            if self.outbox.offer(message.encoded, message.answer, message.expires_at):
                self.work.set()

    def _resolve_one_by_one(self, frame: Frame[ReceiptFuture], result: publisher_pb2.PublishResult) -> None:
        refused = {refusal.index: from_refusal(refusal.refusal) for refusal in result.refusals}
        for index, waiter in enumerate(frame.waiters):
            if waiter is None:
                if index in refused:
                    error = refused[index]
                    log_line(logging.WARNING, "publisher.one_way_refused", error.message, reason=error.reason)
            elif waiter.done():
                continue
            elif index in refused:
                waiter.set_exception(refused[index])
            else:
                waiter.set_result(Receipt(result, index))
