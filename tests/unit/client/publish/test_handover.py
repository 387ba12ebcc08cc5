"""The way of messages from threads to the loop, and of their answers back; and how the loop ends."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError

import pytest

from msgbroker.client import CenterClosedError, ClientBufferFullError, Receipt, TopicNotFoundError
from msgbroker.client.core.loop_thread import LoopThread
from msgbroker.client.publish.handover import Handover, ManyReceipts, SoonReceipt
from msgbroker.client.values.config import ClientConfig
from msgbroker.v1 import publisher_pb2
from tests.support.daemon_thread import in_thread
from tests.support.eventually import eventually_blocking

RECEIPT = Receipt(publisher_pb2.PublishResult(queue_ids=[7], queue_offsets=[3]), 0)


class Buffer:
    """A loop in a thread, and what it was handed."""

    def __init__(self) -> None:
        self.thread = LoopThread()
        self.encoded: list[bytes] = []
        self.answers: list[asyncio.Future[Receipt]] = []
        self.handover = Handover(
            self.thread.loop, self.offer, ClientConfig(("a:1",), unanswered_messages_max=3, unanswered_bytes_max=100)
        )

    def offer(self, encoded: bytes) -> asyncio.Future[Receipt]:
        """Take a message."""
        if encoded == b"bad":
            raise TopicNotFoundError("default", "TP")
        self.encoded.append(encoded)
        self.answers.append(self.thread.loop.create_future())
        return self.answers[-1]

    def publish(self, encoded: bytes, timeout_seconds: float | None = None) -> SoonReceipt:
        """Put a message in."""
        receipt = SoonReceipt()
        self.handover.put(encoded, receipt, timeout_seconds)
        return receipt

    def answer(self, index: int) -> None:
        """Answer a message."""
        self.thread.loop.call_soon_threadsafe(self.answers[index].set_result, RECEIPT)

    def behind_all(self) -> None:
        """Return when the loop has taken what was put in."""
        self.thread.call(asyncio.sleep(0), behind=self.handover.fetch)


@pytest.fixture
def buffer() -> Iterator[Buffer]:
    """A buffer that answers nothing by itself."""
    buffer = Buffer()
    yield buffer
    buffer.thread.stop()


def test_messages_arrive_in_the_order_of_the_calls_and_answers_come_back(buffer: Buffer) -> None:
    receipts = [buffer.publish(b"%d" % n) for n in range(3)]
    eventually_blocking(lambda: len(buffer.answers) == 3)
    for index in (2, 0, 1):
        buffer.answer(index)

    assert [receipt.result(20) for receipt in receipts] == [RECEIPT] * 3
    assert buffer.encoded == [b"0", b"1", b"2"]


def test_one_that_is_refused_is_one(buffer: Buffer) -> None:
    refused, taken = buffer.publish(b"bad"), buffer.publish(b"good")

    assert isinstance(refused.exception(20), TopicNotFoundError)
    buffer.behind_all()
    buffer.answer(0)
    assert taken.result(20) == RECEIPT


@pytest.mark.parametrize("bodies", [[b"x"] * 3, [b"x" * 100]], ids=["messages", "bytes"])
def test_there_is_room_for_so_much_until_it_is_answered(buffer: Buffer, bodies: list[bytes]) -> None:
    for body in bodies:
        buffer.publish(body)
    with pytest.raises(ClientBufferFullError):
        buffer.publish(b"one more", 0.01)

    waiting = [in_thread(lambda: buffer.publish(b"one more")) for _ in range(3)]
    buffer.behind_all()
    for index in range(len(bodies)):
        buffer.answer(index)
    # One large answer makes room for all of them.
    for each in waiting:
        each.result(20)


def test_a_message_that_nobody_waits_for_any_more_is_cancelled_on_the_loop(buffer: Buffer) -> None:
    receipt = buffer.publish(b"1")
    buffer.behind_all()
    assert receipt.cancel()
    eventually_blocking(buffer.answers[0].cancelled)

    with pytest.raises(CancelledError):
        receipt.result(20)


def test_many_receipts_come_in_the_order_of_their_messages(buffer: Buffer) -> None:
    receipts = ManyReceipts()
    for body in (b"1", b"bad", b"3"):
        buffer.handover.put(body, receipts)
    waiting = in_thread(lambda: receipts.wait(3))
    buffer.behind_all()
    buffer.answer(1)
    buffer.answer(0)

    assert [getattr(answer, "reason", answer) for answer in waiting.result(20)] == [
        RECEIPT,
        "TOPIC_NOT_FOUND",
        RECEIPT,
    ]


def test_what_was_put_in_before_the_end_is_taken(buffer: Buffer) -> None:
    receipts = [buffer.publish(b"%d" % n) for n in range(2)]
    buffer.handover.close()
    with pytest.raises(CenterClosedError):
        buffer.publish(b"late")

    buffer.thread.call(asyncio.sleep(0), behind=lambda: None)
    assert buffer.encoded == [b"0", b"1"]
    buffer.answer(0)
    buffer.answer(1)
    assert [receipt.result(20) for receipt in receipts] == [RECEIPT] * 2


def test_what_is_begun_before_the_loop_stops_has_an_end_and_what_comes_later_is_refused() -> None:
    thread = LoopThread()
    begun, may_go_on = threading.Event(), threading.Event()

    def begin() -> None:
        begun.set()
        assert may_go_on.wait(20)

    call = in_thread(lambda: thread.call(asyncio.sleep(0, "done"), behind=begin))
    assert begun.wait(20)
    stop = in_thread(thread.stop)
    eventually_blocking(lambda: thread._is_stopping)
    with pytest.raises(CenterClosedError):
        thread.call(asyncio.sleep(0), behind=lambda: None)
    may_go_on.set()

    assert call.result(20) == "done"
    stop.result(20)
