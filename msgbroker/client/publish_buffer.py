"""The application's side of publishing: who waits for a receipt, who waits for room, and who has waited too long.

A thin asyncio shell around the pure outbox; the stream (`publisher_stream`) empties it.
"""

from __future__ import annotations

import asyncio
import logging
import math
import secrets
from collections import deque
from collections.abc import Iterable

from msgbroker.client.config import FRAME_BYTES_TARGET, ClientConfig
from msgbroker.client.failures import from_refusal
from msgbroker.client.message import Receipt
from msgbroker.client.outbox import Frame, Outbox, OutboxConfig
from msgbroker.contract.errors import ClientBufferFullError, MessageCenterError, PublishTimeoutError
from msgbroker.v1 import publisher_pb2

log = logging.getLogger("msgbroker.client")

ReceiptFuture = asyncio.Future[Receipt]


def new_publisher_id() -> bytes:
    """Return a publisher id that nobody else has."""
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
        self._config = config
        self._loop = asyncio.get_running_loop()
        timeout_seconds = config.publish_timeout_seconds
        self._timeout_seconds = math.inf if timeout_seconds is None else timeout_seconds
        self._at_rest = asyncio.Event()
        self._at_rest.set()
        self._room_waiters: deque[asyncio.Future[None]] = deque()
        self._broken: MessageCenterError | None = None

    @property
    def is_full(self) -> bool:
        """Whether a publish has to wait for room (or behind those that wait already)."""
        return bool(self._room_waiters) or self.outbox.is_full

    def offer(self, encoded: bytes, within_seconds: float | None = None) -> ReceiptFuture:
        """Take one message and return the future of its receipt; raise ClientBufferFullError if there is no room.

        *within_seconds*: how long it may take, where that is not what publishing may take.
        """
        if self._broken is not None:
            raise self._broken
        if self.outbox.is_full:
            raise ClientBufferFullError(self.outbox.count, self._config.unanswered_messages_max)
        loop = self._loop
        answer: ReceiptFuture = loop.create_future()
        expires_at = loop.time() + (self._timeout_seconds if within_seconds is None else within_seconds)
        if self.outbox.offer(encoded, answer, expires_at):
            self._announce_work()
        return answer

    def offer_one_way(self, encoded: bytes) -> bool:
        """Take one message that nobody waits for; return False if there is no room."""
        if self._broken is not None:
            raise self._broken
        if self.outbox.is_full:
            return False
        if self.outbox.offer(encoded, None, self._loop.time() + self._timeout_seconds):
            self._announce_work()
        return True

    async def room(self) -> None:
        """Wait until there is room for a message, in the order of the callers. Whoever it returns to offers at once."""
        if not self.is_full:
            return
        turn: asyncio.Future[None] = self._loop.create_future()
        self._room_waiters.append(turn)
        try:
            await turn
            while self.outbox.is_full:
                # Taken by one who did not have to wait: this one stays the first.
                turn = self._loop.create_future()
                self._room_waiters.appendleft(turn)
                await turn
        except asyncio.CancelledError:
            if turn in self._room_waiters:
                self._room_waiters.remove(turn)
            raise
        finally:
            # Whoever got a turn may not use it: when it is done, what room is left goes to the next.
            self._loop.call_soon(self._offer_room)

    async def flush(self) -> None:
        """Wait until everything published was answered, or given up."""
        await self._at_rest.wait()

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
        _fail((waiter for waiter in frame.waiters if waiter is not None), error)

    def fail_all(self, error: MessageCenterError) -> bool:
        """Give up everything unanswered, and return whether somebody was told.

        What goes on goes on under a new publisher id.
        """
        waiters = self.outbox.drop_all()
        _fail(waiters, error)
        self.outbox.restart(new_publisher_id())
        self.after_removal()
        return bool(waiters)

    def after_removal(self) -> None:
        """Give the room that was made to those who wait for it."""
        self._offer_room()
        if self.outbox.count == 0:
            self._at_rest.set()

    def expire(self, now: float) -> None:
        """Fail what has waited longer than publishing may take."""
        expired = self.outbox.expire(now)
        if not expired.never_sent and not expired.maybe_stored:
            return
        # Who had a time of its own hears of it from whoever set it.
        timeout_seconds = self._config.publish_timeout_seconds or 0.0
        address = self._config.addresses_text
        _fail(expired.never_sent, PublishTimeoutError(timeout_seconds, may_be_stored=False, address=address))
        _fail(expired.maybe_stored, PublishTimeoutError(timeout_seconds, may_be_stored=True, address=address))
        self.after_removal()

    def break_off(self, reason: MessageCenterError) -> None:
        """Fail whoever waits for anything, and whatever is offered from now on: nobody empties this any more."""
        self._broken = reason
        self.close(reason)

    def close(self, reason: MessageCenterError) -> None:
        """Fail whoever waits for anything."""
        self.fail_all(reason)
        while self._room_waiters:
            turn = self._room_waiters.popleft()
            if not turn.done():
                turn.set_exception(reason)

    def _announce_work(self) -> None:
        self._at_rest.clear()
        self.work.set()

    def _offer_room(self) -> None:
        room = self._config.unanswered_messages_max - self.outbox.count
        while self._room_waiters and room > 0 and not self.outbox.is_full:
            turn = self._room_waiters.popleft()
            if not turn.done():
                turn.set_result(None)
                room -= 1

    def _resolve_one_by_one(self, frame: Frame[ReceiptFuture], result: publisher_pb2.PublishResult) -> None:
        refused = {refusal.index: from_refusal(refusal.refusal) for refusal in result.refusals}
        for index, waiter in enumerate(frame.waiters):
            if waiter is None:
                if index in refused:
                    log.warning("publisher.one_way_refused", extra={"reason": refused[index].reason})
            elif waiter.done():
                continue
            elif index in refused:
                waiter.set_exception(refused[index])
            else:
                waiter.set_result(Receipt(result, index))


def _fail(waiters: Iterable[ReceiptFuture], error: MessageCenterError) -> None:
    for waiter in waiters:
        if not waiter.done():
            waiter.set_exception(error)
