"""The blocking client: the same answers, from threads."""

from __future__ import annotations

import asyncio
import threading

import pytest

from msgbroker.client import (
    CenterClosedError,
    InvalidNameError,
    Message,
    OutgoingMessage,
    Receipt,
    SyncMessageCenter,
)
from tests.unit.client.fake_broker import ThreadedBroker


def test_each_way_of_publishing_blocks_no_longer_than_it_says(served: ThreadedBroker) -> None:
    with SyncMessageCenter(served.address, unanswered_messages_max=10) as center:
        assert center.publish("TP", "EC", b"0").queue_offset == 0
        futures = [center.publish_soon("TP", "EC", str(n)) for n in range(1, 100)]
        assert [future.result().queue_offset for future in futures] == list(range(1, 100))
        assert center.publish_one_way("TP", "EC", b"100")
        center.flush()
        answers = center.publish_many([OutgoingMessage("TP", "EC", b"101"), OutgoingMessage("no good", "EC")])

    assert isinstance(answers[0], Receipt)
    assert isinstance(answers[1], InvalidNameError)
    assert [message.body for message in served.store.messages] == [str(n).encode() for n in range(102)]


def test_handlers_run_in_threads_and_may_publish(served: ThreadedBroker) -> None:
    handled = threading.Event()
    with SyncMessageCenter(served.address, drain_timeout_seconds=5) as center:

        @center.subscriber(group="SG", topic="TP")
        def handle(message: Message) -> None:
            center.publish("TP", "EC", b"from a handler")
            handled.set()

        center.start()
        call = asyncio.run_coroutine_threadsafe(served.subscribe_calls.get(), served.loop).result()
        served.loop.call_soon_threadsafe(call.deliver, b"1")
        assert handled.wait(5)

    assert [message.body for message in served.store.messages] == [b"from a handler"]


def test_run_returns_when_another_thread_closes(served: ThreadedBroker) -> None:
    center = SyncMessageCenter(served.address)

    @center.subscriber(group="SG", topic="TP")
    def handle(message: Message) -> None: ...

    closer = threading.Timer(0.05, center.close)
    closer.start()
    center.run()
    closer.join()

    with pytest.raises(CenterClosedError):
        center.publish("TP", "EC")


def test_an_error_is_raised_in_the_calling_thread(served: ThreadedBroker) -> None:
    with SyncMessageCenter(served.address) as center, pytest.raises(InvalidNameError, match="topic"):
        center.publish("not a name", "EC")
