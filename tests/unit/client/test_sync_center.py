"""The blocking client: the same answers, from threads."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import pytest

from msgbroker.client import (
    BodyTooLargeError,
    CenterClosedError,
    InvalidNameError,
    InvalidSettingError,
    Message,
    MessageCenterError,
    OutgoingMessage,
    Receipt,
    SyncMessageCenter,
)
from msgbroker.client.core import loop_thread
from msgbroker.client.testing import SyncInMemoryCenter
from tests.support.daemon_thread import in_thread
from tests.support.eventually import eventually_blocking
from tests.support.fake_broker import SubscribeCall, ThreadedBroker

ACK = 1


def test_addresses_are_looked_at_once() -> None:
    addresses: Any = (address for address in ("127.0.0.1:1", "127.0.0.1:2"))
    with SyncMessageCenter(addresses) as center:
        assert center._core.config.addresses == ("127.0.0.1:1", "127.0.0.1:2")
        assert center._core.config.instance_id == center.instance_id


def hold_answers(served: ThreadedBroker) -> None:
    """Have the broker store nothing until it is let."""
    served.loop.call_soon_threadsafe(served.answers_held.clear)
    eventually_blocking(lambda: not served.answers_held.is_set())


def delivered(served: ThreadedBroker, body: bytes) -> SubscribeCall:
    """Have the broker hand out a message."""
    call: SubscribeCall = asyncio.run_coroutine_threadsafe(served.subscribe_calls.get(), served.loop).result(20)
    served.loop.call_soon_threadsafe(call.deliver, body)
    return call


def stored(served: ThreadedBroker) -> list[bytes]:
    return [message.body for message in served.store.messages]


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


# --- what is published, and in which order ----------------------------------------------------------------------------


def test_what_is_published_is_what_it_was_when_it_was_given(served: ThreadedBroker) -> None:
    row: dict[str, int] = {}
    buffer = bytearray(4)
    headers: dict[str, str] = {}
    with SyncMessageCenter(served.address) as center:
        for n in range(300):
            row["n"] = n
            buffer[:] = b"%04d" % n
            headers["n"] = str(n)
            center.publish_soon("TP", "EC", row, headers=headers)
            center.publish_soon("TP", "EC", buffer, headers=headers)

    assert stored(served) == [body for n in range(300) for body in (b'{"n":%d}' % n, b"%04d" % n)]
    assert [int(message.headers["n"]) for message in served.store.messages] == [n for n in range(300) for _ in range(2)]


def test_in_memory_too_it_is_what_it_was_when_it_was_given() -> None:
    with SyncInMemoryCenter() as center:
        row: dict[str, int] = {}
        for n in range(300):
            row["n"] = n
            center.publish_soon("TP", "EC", row)
        center.flush()
        assert [message.json()["n"] for message in center.published] == list(range(300))


def test_what_one_thread_publishes_is_stored_in_the_order_of_the_calls_whatever_they_are(
    served: ThreadedBroker,
) -> None:
    called = 0

    def number() -> str:
        nonlocal called
        called += 1
        return str(called)

    with SyncMessageCenter(served.address, unanswered_bytes_max=1_000, unanswered_messages_max=20) as center:
        for _ in range(20):
            for _ in range(60):
                center.publish_soon("TP", "EC", number(), key="one")
            center.publish("TP", "EC", number(), key="one")
            center.publish_soon("TP", "EC", number(), key="one")
            center.publish_many(OutgoingMessage("TP", "EC", number(), key="one") for _ in range(3))
            center.publish_soon("TP", "EC", number(), key="one")
            center.publish_one_way("TP", "EC", number(), key="one")
            center.flush()
            assert [int(body) for body in stored(served)] == list(range(1, called + 1))


def test_a_message_that_cannot_be_sent_is_refused_where_it_is_published(served: ThreadedBroker) -> None:
    not_a_message: Any = ("TP", "EC")
    with SyncMessageCenter(served.address) as center:
        assert isinstance(center.publish_soon("TP", "EC", bytes(5_000_000)).exception(1), BodyTooLargeError)
        with pytest.raises(BodyTooLargeError):
            center.publish("TP", "EC", bytes(5_000_000))
        with pytest.raises(BodyTooLargeError):
            center.publish_one_way("TP", "EC", bytes(5_000_000))
        (answer,) = center.publish_many([not_a_message])
        assert isinstance(answer, InvalidSettingError)
        assert answer.message.startswith("messages[0] is of type tuple")

    assert served.hellos == []


def test_publish_many_takes_its_messages_in_the_callers_thread_and_keeps_none_waiting(served: ThreadedBroker) -> None:
    threads: set[threading.Thread] = set()

    def rows() -> Iterator[OutgoingMessage]:
        for body in (b"0", b"1", b"2"):
            threads.add(threading.current_thread())
            yield OutgoingMessage("TP", "EC", body)
            # It goes on when what it gave is stored; other threads publish meanwhile.
            eventually_blocking(lambda: stored(served)[-1:] == [body])  # noqa: B023 - it is looked at in this round
            in_thread(lambda: center.publish("TP", "EC", b"from another thread")).result(20)

    with SyncMessageCenter(served.address) as center:
        answers = center.publish_many(rows())

    assert [type(answer) for answer in answers] == [Receipt] * 3
    assert threads == {threading.current_thread()}


def test_publish_many_tells_of_each_message_in_its_place(served: ThreadedBroker) -> None:
    codes = ["EC", "no good", "EC_UNKNOWN", "EC", "no good"]
    with SyncMessageCenter(served.address) as center:
        answers = center.publish_many(OutgoingMessage("TP", code) for code in codes)
        assert center.publish_many([]) == []

    kinds = [getattr(answer, "reason", "stored") for answer in answers]
    assert kinds == ["stored", "INVALID_NAME", "EVENT_CODE_NOT_FOUND", "stored", "INVALID_NAME"]


# --- waiting for room -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("publish_timeout_seconds", [None, math.inf, 1e300])
def test_publish_soon_waits_for_room_as_long_as_publishing_may_take(
    served: ThreadedBroker, publish_timeout_seconds: float | None
) -> None:
    hold_answers(served)
    with SyncMessageCenter(
        served.address, publish_timeout_seconds=publish_timeout_seconds, unanswered_messages_max=1
    ) as center:
        first = center.publish_soon("TP", "EC", b"1")
        second = in_thread(lambda: center.publish_soon("TP", "EC", b"2").result(20))
        wait_until_one_waits_for_room(center)
        served.loop.call_soon_threadsafe(served.answers_held.set)
        assert first.result(20).queue_offset == 0
        assert second.result(20).queue_offset == 1


def wait_until_one_waits_for_room(center: SyncMessageCenter) -> None:
    """Return once a thread waits to put a message in."""
    handover = center._background._handover
    assert handover is not None
    eventually_blocking(lambda: handover._room._waiters)  # type: ignore[attr-defined]


# --- closing ----------------------------------------------------------------------------------------------------------


def test_who_waits_for_room_hears_that_the_center_is_closed(served: ThreadedBroker) -> None:
    hold_answers(served)
    center = SyncMessageCenter(
        served.address, publish_timeout_seconds=None, unanswered_messages_max=1, drain_timeout_seconds=0
    )
    first = center.publish_soon("TP", "EC", b"1")
    waiting = in_thread(lambda: center.publish_soon("TP", "EC", b"2").result(20))
    publishing = in_thread(lambda: center.publish_many(OutgoingMessage("TP", "EC") for _ in range(3)))
    eventually_blocking(lambda: len(center._background._handover._room._waiters) == 2)  # type: ignore[union-attr]

    center.close()

    with pytest.raises(CenterClosedError, match="the message was"):
        first.result(20)
    with pytest.raises(CenterClosedError):
        waiting.result(20)
    assert [type(answer) for answer in publishing.result(20)] == [CenterClosedError] * 3


def test_threads_that_publish_while_another_closes_all_get_an_answer(served: ThreadedBroker) -> None:
    center = SyncMessageCenter(served.address, unanswered_messages_max=3, drain_timeout_seconds=0.05)

    def publish() -> None:
        while True:
            center.publish_soon("TP", "EC").result()
            center.publish("TP", "EC")
            for answer in center.publish_many([OutgoingMessage("TP", "EC")]):
                if isinstance(answer, MessageCenterError):
                    raise answer

    threads = [in_thread(publish) for _ in range(30)]
    eventually_blocking(lambda: len(stored(served)) > 100)
    center.close()

    assert {type(thread.exception(20)) for thread in threads} == {CenterClosedError}


def test_a_thread_that_is_late_is_refused_at_once(served: ThreadedBroker) -> None:
    center = SyncMessageCenter(served.address)
    center.publish("TP", "EC")
    thread, handover = center._background._thread, center._background._handover
    assert thread is not None
    assert handover is not None
    center.close()

    # It has asked what runs, and was held up, as threads are.
    with pytest.raises(CenterClosedError):
        thread.call(center._core.flush(), behind=handover.fetch)
    with pytest.raises(CenterClosedError):
        center.publish_soon("TP", "EC")


def test_a_call_that_closing_ends_raises_an_error_of_the_center(
    served: ThreadedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop_thread, "_FINISH_SECONDS", 0.01)
    begun = threading.Event()

    async def never_end() -> None:
        begun.set()
        await asyncio.Event().wait()

    center = SyncMessageCenter(served.address)
    calling = in_thread(lambda: center._background.call(never_end()))
    assert begun.wait(20)
    center.close()

    with pytest.raises(CenterClosedError, match="closed while the call was under way"):
        calling.result(20)


def test_an_async_handler_that_closes_the_center_hears_that_it_may_not(served: ThreadedBroker) -> None:
    said: list[str] = []
    with SyncMessageCenter(served.address) as center:

        @center.subscriber(group="SG", topic="TP")
        async def handle(message: Message) -> None:
            with pytest.raises(RuntimeError) as refused:
                center.close()
            said.append(str(refused.value))

        center.start()
        call = delivered(served, b"1")
        asyncio.run_coroutine_threadsafe(call.settled(1), served.loop).result(20)
        # It is as open as it was.
        assert center.publish("TP", "EC").queue_offset == 0

    assert "close it in another thread" in said[0]


def test_a_callback_that_closes_the_center_hears_that_it_may_not(served: ThreadedBroker) -> None:
    said: Future[str] = Future()

    def close(_: Future[Receipt]) -> None:
        with pytest.raises(RuntimeError) as refused:
            center.close()
        said.set_result(str(refused.value))

    with SyncMessageCenter(served.address) as center:
        center.publish_soon("TP", "EC").add_done_callback(close)
        assert "it would wait for itself" in said.result(20)


def test_a_handler_may_publish_while_the_center_closes(served: ThreadedBroker) -> None:
    begun, may_go_on = threading.Event(), threading.Event()
    center = SyncMessageCenter(served.address)

    @center.subscriber(group="SG", topic="TP")
    def handle(message: Message) -> None:
        begun.set()
        assert may_go_on.wait(20)
        center.publish("TP_NEXT", "EC", b"from the handler")

    center.publish("TP", "EC", b"before")
    center.start()
    call = delivered(served, b"1")
    assert begun.wait(20)
    closing = in_thread(center.close)
    eventually_blocking(lambda: call.paused)
    may_go_on.set()
    closing.result(20)

    assert call.verdicts == [(0, ACK, 1)]
    assert stored(served) == [b"before", b"from the handler"]


def test_a_handler_that_closes_the_center_is_not_waited_for_by_itself(served: ThreadedBroker) -> None:
    center = SyncMessageCenter(served.address)

    @center.subscriber(group="SG", topic="TP")
    def handle(message: Message) -> None:
        center.close()

    center.start()
    call = delivered(served, b"1")
    # Whoever closes it beside waits until it is closed.
    eventually_blocking(lambda: call.paused)
    in_thread(center.close).result(20)

    assert call.verdicts == [(0, ACK, 1)]
    assert not [thread for thread in threading.enumerate() if thread.name == "msgcenter-client"]


def test_every_close_waits_until_the_center_is_closed(served: ThreadedBroker) -> None:
    begun, may_go_on = threading.Event(), threading.Event()
    center = SyncMessageCenter(served.address)

    @center.subscriber(group="SG", topic="TP")
    def handle(message: Message) -> None:
        begun.set()
        assert may_go_on.wait(20)

    center.start()
    call = delivered(served, b"1")
    assert begun.wait(20)
    first = in_thread(center.close)
    eventually_blocking(lambda: call.paused)
    second = in_thread(center.close)
    with pytest.raises(TimeoutError):
        second.result(0.1)
    may_go_on.set()
    first.result(20)
    second.result(20)

    assert call.verdicts == [(0, ACK, 1)]
