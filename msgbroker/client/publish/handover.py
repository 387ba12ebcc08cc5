"""Messages that threads publish, on their way to the loop in the order of the calls, and the way back of their answers.

Waking the loop costs more than publishing a message. So the first one wakes it, and for as long as others follow it
looks for them every millisecond; who has waited for all answers before it goes on is not kept waiting. Whatever else a
thread has the loop do comes behind the messages that it put in before: `fetch` first.

What is on the way or unanswered has the bounds of the buffer that it goes to: threads wait for room before they put
anything in.
"""

from __future__ import annotations

import asyncio
import functools
import gc
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Final, Protocol

from msgbroker.client.publish.publisher import ReceiptFuture
from msgbroker.client.values.config import ClientConfig
from msgbroker.client.values.message import Receipt
from msgbroker.contract.errors import CenterClosedError, ClientBufferFullError, ForkedError, MessageCenterError

_LOOK_SECONDS: Final = 0.001


class Recipient(Protocol):
    """Somebody who published from another thread, and is told the answers on the loop."""

    def offered(self, answer: ReceiptFuture) -> None:
        """Take the future of an answer, in the order of the messages."""

    def answered(self, answer: ReceiptFuture) -> None:
        """Take the answer to one message; answers come in any order."""


class Handover:
    """The way of messages from threads to one event loop, with its bounds."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, offer: Callable[[bytes], ReceiptFuture], config: ClientConfig
    ) -> None:
        self._loop = loop
        self._offer = offer
        self._messages_max = config.unanswered_messages_max
        self._bytes_max = config.unanswered_bytes_max
        self._shared = threading.RLock()
        """Guards all down to the next empty line; reentrant, as a signal's handler may publish in the middle of it."""
        self._room = threading.Condition(self._shared)
        self._messages: list[tuple[bytes, Recipient]] = []
        self._count = 0
        self._size_bytes = 0
        self._is_looking = False
        """Whether the loop looks for messages soon, without being woken."""
        self._is_closed = False

        self._timer: asyncio.TimerHandle | None = None
        self._answered_count = 0
        """How many answers have made no room yet; written on the loop alone."""
        self._answered_bytes = 0

    def put(self, encoded: bytes, recipient: Recipient, timeout_seconds: float | None = None) -> None:
        """Publish a message; wait for room, so many seconds at most.

        Raises ClientBufferFullError if there was none, and CenterClosedError.
        """
        with self._shared:
            if self._count >= self._messages_max or self._size_bytes >= self._bytes_max:
                self._wait_for_room(timeout_seconds)
            if self._is_closed:
                raise CenterClosedError
            if not self._is_looking or self._count <= self._answered_count:
                # Before it is there: Ctrl-C in between must leave nothing that nobody fetches. The loop waits for us.
                self._loop.call_soon_threadsafe(self.fetch)
                self._is_looking = True
            self._messages.append((encoded, recipient))
            self._count += 1
            self._size_bytes += len(encoded)

    def close(self) -> None:
        """Refuse what comes from now on, and whoever waits for room; what was put in before still has its answers."""
        with self._shared:
            self._is_closed = True
            self._room.notify_all()
            self._loop.call_soon_threadsafe(self.fetch)

    def abandon(self) -> None:
        """Fail, in a forked process, the receipts that only its parent will get."""
        if self._count:
            # Sought only now: to keep them would cost something for each message.
            for each in gc.get_objects():
                if type(each) is SoonReceipt:
                    each.abandon()

    def _has_room(self) -> bool:
        return self._is_closed or (self._count < self._messages_max and self._size_bytes < self._bytes_max)

    def _wait_for_room(self, timeout_seconds: float | None) -> None:
        if timeout_seconds is not None:
            # Threads cannot wait for ever with a number.
            timeout_seconds = min(timeout_seconds, threading.TIMEOUT_MAX)
        try:
            if not self._room.wait_for(self._has_room, timeout_seconds):
                raise ClientBufferFullError(self._count, self._messages_max)
        finally:
            # A large message that is answered makes room for many small ones; and whoever was woken may not use it.
            self._room.notify()

    # --- on the loop --------------------------------------------------------------------------------------------

    def fetch(self) -> None:
        """Take all messages that threads have put in, and offer them to the buffer."""
        with self._shared:
            messages, self._messages = self._messages, []
            self._is_looking = bool(messages)
        if messages and self._timer is None:
            self._timer = self._loop.call_later(_LOOK_SECONDS, self._look_again)
        for encoded, recipient in messages:
            try:
                answer = self._offer(encoded)
            except Exception as refused:  # noqa: BLE001 - whatever it is: somebody waits for it in another thread
                answer = self._loop.create_future()
                answer.set_exception(refused)
            recipient.offered(answer)
            answer.add_done_callback(functools.partial(self._take_answer, recipient, len(encoded)))

    def _look_again(self) -> None:
        self._timer = None
        self.fetch()

    def _take_answer(self, recipient: Recipient, size_bytes: int, answer: ReceiptFuture) -> None:
        if not self._answered_count:
            # A frame's messages are answered together.
            self._loop.call_soon(self._make_room)
        self._answered_count += 1
        self._answered_bytes += size_bytes
        recipient.answered(answer)

    def _make_room(self) -> None:
        with self._shared:
            self._count -= self._answered_count
            self._size_bytes -= self._answered_bytes
            self._room.notify(self._answered_count)
            self._answered_count = self._answered_bytes = 0


class SoonReceipt(Future[Receipt]):
    """The future of one receipt. Cancelled before its message is sent, it is not sent."""

    def abandon(self) -> None:
        """Fail, if it waits: the message is the parent's of this process. Callbacks are the parent's, too."""
        # A thread may have held it that is not here.
        self._condition = threading.Condition()
        if not self.done():
            self._done_callbacks: list[Callable[[Future[Receipt]], object]] = []
            self.set_exception(ForkedError("this was published before the process was forked, and is its parent's"))

    def offered(self, answer: ReceiptFuture) -> None:
        """See that *answer* is cancelled with this."""
        self.add_done_callback(functools.partial(_cancel_with, answer))

    def answered(self, answer: ReceiptFuture) -> None:
        """Pass the receipt or the error on to whoever holds this future."""
        if answer.cancelled():
            self.cancel()
        if self.set_running_or_notify_cancel():
            error = answer.exception()
            if error is None:
                self.set_result(answer.result())
            else:
                self.set_exception(error)


def _cancel_with(answer: ReceiptFuture, future: Future[Receipt]) -> None:
    if future.cancelled() and not answer.done():
        answer.get_loop().call_soon_threadsafe(answer.cancel)


class ManyReceipts:
    """The receipts of many messages, for one thread that waits for all of them."""

    def __init__(self) -> None:
        self._answers: list[ReceiptFuture] = []
        self._count = 0
        self._expected: int | None = None
        self._are_complete = threading.Event()

    def offered(self, answer: ReceiptFuture) -> None:
        """Take the future of the next message's answer."""
        self._answers.append(answer)

    def answered(self, answer: ReceiptFuture) -> None:  # noqa: ARG002 - all are looked at when they are complete
        """Count an answer; the last one wakes who waits."""
        self._count += 1
        if self._count == self._expected:
            self._are_complete.set()

    def wait_beside(self, refused: Sequence[MessageCenterError | None]) -> list[Receipt | MessageCenterError]:
        """Return for each message what it was refused with, or the answer to it, once they are complete."""
        answers = iter(self.wait(refused.count(None)))
        return [error or next(answers) for error in refused]

    def wait(self, count: int) -> list[Receipt | MessageCenterError]:
        """Return the answers to so many messages, in their order, once they are complete."""
        self._expected = count
        if self._count < count:
            self._are_complete.wait()
        return [_outcome(answer) for answer in self._answers]


def _outcome(answer: ReceiptFuture) -> Receipt | MessageCenterError:
    error = answer.exception()
    if error is None:
        return answer.result()
    if isinstance(error, MessageCenterError):
        return error
    raise error
