"""Publishing through a (fake) broker: answers, resending, refusals, bounds."""

from __future__ import annotations

import asyncio

import grpc
import pytest

from msgbroker.client import (
    BodyTooLargeError,
    BrokerUnavailableError,
    CenterClosedError,
    ClientBufferFullError,
    EventCodeNotFoundError,
    GroupNotFoundError,
    InvalidNameError,
    MessageCenter,
    OutgoingMessage,
    PublishTimeoutError,
    Receipt,
    StoreUnavailableError,
    UnavailableError,
)
from msgbroker.client.publish import answers as answers_module
from msgbroker.client.publish.buffer import PublishBuffer
from msgbroker.contract.errors import FrameTooLargeError
from msgbroker.v1 import publisher_pb2
from tests.support.eventually import eventually
from tests.support.fake_broker import FakeBroker, FakeStore, failed, refusal


def once(reason: str) -> object:
    """Return a frame hook that fails the first frame it sees."""
    failures = [reason]
    return lambda frame: failures.pop() if failures else None


def bodies(broker: FakeBroker) -> list[bytes]:
    return [message.body for message in broker.store.messages]


async def test_a_stream_that_ends_because_of_what_was_sent_fails_that_and_is_not_tried_again(
    broker: FakeBroker,
) -> None:
    broker.on_frame = lambda frame: "too-large" if len(broker.frames) == 1 else None
    async with MessageCenter(broker.address) as center:
        with pytest.raises(FrameTooLargeError):
            await center.publish("TP", "EC", b"refused")
        await center.publish("TP", "EC", b"next")

    assert bodies(broker) == [b"next"]
    assert len(broker.frames) == 2


async def test_a_receipt_names_the_place_of_the_message(broker: FakeBroker) -> None:
    async with MessageCenter(broker.address) as center:
        await center.publish("TP", "EC", b"first")
        receipt = await center.publish("TP", "EC", b"second", headers={"region": "hz"}, key="order-1")

    assert (receipt.queue_id, receipt.queue_offset) == (7, 1)
    stored = broker.store.messages[1]
    assert (stored.body, dict(stored.headers), stored.key) == (b"second", {"region": "hz"}, "order-1")


async def test_what_waits_goes_in_one_frame(broker: FakeBroker) -> None:
    async with MessageCenter(broker.address) as center:
        await asyncio.gather(*(center.publish("TP", "EC", str(n)) for n in range(500)))

    assert bodies(broker) == [str(n).encode() for n in range(500)]
    assert len(broker.frames) == 1


async def test_a_bad_message_is_refused_alone(broker: FakeBroker) -> None:
    async with MessageCenter(broker.address) as center:
        answers = await center.publish_many(
            [
                OutgoingMessage("TP", "EC", b"1"),
                OutgoingMessage("TP", "EC_UNKNOWN", b"2"),
                OutgoingMessage("TP", "no such alphabet", b"3"),
                OutgoingMessage("TP", "EC", b"4"),
            ]
        )

    assert [type(answer) for answer in answers] == [Receipt, EventCodeNotFoundError, InvalidNameError, Receipt]
    assert bodies(broker) == [b"1", b"4"]


@pytest.mark.parametrize("death", ["die", "die-after"])
async def test_an_unanswered_frame_is_sent_again_and_stored_once(death: str) -> None:
    store = FakeStore()
    async with (
        FakeBroker(store, on_frame=once(death)) as dying,  # type: ignore[arg-type]
        FakeBroker(store) as other,
        MessageCenter([dying.address, other.address], backoff_initial_seconds=0.001) as center,
    ):
        receipts = await asyncio.gather(*(center.publish("TP", "EC", str(n)) for n in range(10)))

    assert [message.body for message in store.messages] == [str(n).encode() for n in range(10)]
    assert [receipt.queue_offset for receipt in receipts] == list(range(10))
    assert len(store.last_sequence) == 1
    assert receipts[0].duplicate is (death == "die-after")


async def test_a_failed_frame_and_those_behind_it_are_sent_again_in_order(broker: FakeBroker) -> None:
    broker.on_frame = once("STORE_UNAVAILABLE")  # type: ignore[assignment]
    async with MessageCenter(broker.address, backoff_initial_seconds=0.001) as center:
        answers = await center.publish_many(OutgoingMessage("TP", "EC", str(n)) for n in range(3_500))

    assert all(isinstance(answer, Receipt) for answer in answers)
    assert bodies(broker) == [str(n).encode() for n in range(3_500)]


async def test_with_raise_an_outage_fails_the_publish_and_the_next_one_works(broker: FakeBroker) -> None:
    broker.on_frame = once("STORE_UNAVAILABLE")  # type: ignore[assignment]
    async with MessageCenter(broker.address, on_unavailable="raise") as center:
        with pytest.raises(StoreUnavailableError):
            await center.publish("TP", "EC", b"lost")
        await center.publish("TP", "EC", b"kept")

    assert bodies(broker) == [b"kept"]


async def test_with_raise_no_broker_at_all_fails_the_publish() -> None:
    async with MessageCenter("127.0.0.1:1", on_unavailable="raise", connect_timeout_seconds=0.1) as center:
        with pytest.raises(BrokerUnavailableError, match=r"127\.0\.0\.1:1"):
            await center.publish("TP", "EC", b"")


async def test_a_frame_that_can_never_be_stored_fails_alone(broker: FakeBroker) -> None:
    broker.on_frame = once("INVALID_FIELD")  # type: ignore[assignment]
    async with MessageCenter(broker.address) as center:
        answers = await center.publish_many(OutgoingMessage("TP", "EC", str(n)) for n in range(1_500))

    assert not any(isinstance(answer, Receipt) for answer in answers[:1_000])
    assert all(isinstance(answer, Receipt) for answer in answers[1_000:])
    assert bodies(broker) == [str(n).encode() for n in range(1_000, 1_500)]


async def test_a_refused_hello_fails_the_publish_with_its_reason(broker: FakeBroker) -> None:
    broker.refuse_hello = (
        grpc.StatusCode.NOT_FOUND,
        (("msgcenter-reason", "GROUP_NOT_FOUND"), ("msgcenter-facts-bin", b'{"group": "PG"}')),
    )
    async with MessageCenter(broker.address, publisher_group="PG") as center:
        with pytest.raises(GroupNotFoundError) as raised:
            await center.publish("TP", "EC", b"")

    # gRPC may lose what a stream ended with, where a frame is written to it in that very moment: then it was sent, for
    # all that is known, the next hello is refused, and whether the message may be stored is said as well.
    assert raised.value.facts["group"] == "PG"
    assert broker.hellos[0].publisher_group == "PG"


async def test_a_draining_broker_is_left_after_its_last_answer() -> None:
    store = FakeStore()
    async with (
        FakeBroker(store, on_frame=lambda _: "drain") as draining,
        FakeBroker(store) as other,
        MessageCenter([draining.address, other.address]) as center,
    ):
        await center.publish("TP", "EC", b"1")
        await center.publish("TP", "EC", b"2")

    assert (len(draining.frames), len(other.frames)) == (1, 1)


async def test_brokers_told_of_are_used_when_the_given_one_dies(broker: FakeBroker) -> None:
    async with FakeBroker(broker.store) as other:
        broker.listed = [other.address]
        async with MessageCenter(broker.address, backoff_initial_seconds=0.001, connect_timeout_seconds=0.5) as center:
            await center.publish("TP", "EC", b"1")
            await broker.stop()
            await center.publish("TP", "EC", b"2")

    assert [frame.sequence for frame in other.frames] == [2]


async def test_a_silent_broker_is_left_for_the_next() -> None:
    store = FakeStore()
    async with FakeBroker() as silent, FakeBroker(store) as other:
        silent.answers_held.clear()
        async with MessageCenter(
            [silent.address, other.address], answer_timeout_seconds=0.1, backoff_initial_seconds=0.001
        ) as center:
            await center.publish("TP", "EC", b"1")

    assert [message.body for message in store.messages] == [b"1"]


async def test_a_full_buffer_refuses_at_once_and_ready_waits_for_room(broker: FakeBroker) -> None:
    broker.answers_held.clear()
    async with MessageCenter(broker.address, unanswered_messages_max=2) as center:
        futures = [center.publish_soon("TP", "EC", str(n)) for n in range(2)]
        with pytest.raises(ClientBufferFullError):
            center.publish_soon("TP", "EC", b"2")
        assert center.publish_one_way("TP", "EC", b"2") is False
        waiting = asyncio.ensure_future(center.ready())
        late = asyncio.ensure_future(center.publish("TP", "EC", b"2"))
        await asyncio.sleep(0)
        assert not waiting.done()

        broker.answers_held.set()
        await waiting
        await asyncio.gather(*futures, late)

    assert bodies(broker) == [b"0", b"1", b"2"]


async def test_many_more_publishers_than_room_all_get_through(broker: FakeBroker) -> None:
    async with MessageCenter(broker.address, unanswered_messages_max=10) as center:
        receipts = await asyncio.gather(*(center.publish("TP", "EC", str(n)) for n in range(1_000)))

    assert sorted(receipt.queue_offset for receipt in receipts) == list(range(1_000))


async def test_a_publish_that_was_sent_and_timed_out_may_be_stored(broker: FakeBroker) -> None:
    broker.answers_held.clear()
    async with MessageCenter(broker.address, drain_timeout_seconds=0) as center:
        with pytest.raises(PublishTimeoutError, match="may be stored"):
            await center.publish("TP", "EC", b"", timeout_seconds=0.2)


@pytest.mark.parametrize("timeout_seconds", [None, 0.2])
async def test_a_center_that_finds_no_broker_times_out_and_says_it_was_not_sent(timeout_seconds: float | None) -> None:
    async with MessageCenter(
        "127.0.0.1:1", publish_timeout_seconds=0.2, connect_timeout_seconds=0.1, drain_timeout_seconds=0
    ) as center:
        with pytest.raises(PublishTimeoutError, match="it was not sent") as timed_out:
            await center.publish("TP", "EC", b"", timeout_seconds=timeout_seconds)

    assert timed_out.value.facts["may_be_stored"] is False


async def test_a_publish_that_waited_for_room_and_timed_out_was_not_sent(broker: FakeBroker) -> None:
    broker.answers_held.clear()
    async with MessageCenter(broker.address, unanswered_messages_max=1, drain_timeout_seconds=0) as center:
        first = center.publish_soon("TP", "EC", b"1")
        await eventually(lambda: broker.frames)
        with pytest.raises(PublishTimeoutError, match="it was not sent"):
            await center.publish("TP", "EC", b"2", timeout_seconds=0.1)
        broker.answers_held.set()
        await first
        await center.publish("TP", "EC", b"3")

    assert bodies(broker) == [b"1", b"3"]


async def test_a_receipt_that_comes_as_the_time_is_over_is_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    def offer(buffer: PublishBuffer, encoded: bytes, within_seconds: float) -> asyncio.Future[Receipt]:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Receipt] = loop.create_future()
        # Just before the time is over, and both before the task goes on.
        loop.call_soon(answer.set_result, Receipt(publisher_pb2.PublishResult(queue_ids=[7]), 0))
        return answer

    async with MessageCenter("127.0.0.1:1", drain_timeout_seconds=0) as center:
        monkeypatch.setattr(PublishBuffer, "offer_in_turn", offer)
        assert (await center.publish("TP", "EC", b"", timeout_seconds=1e-9)).queue_id == 7


async def test_closing_waits_for_what_is_unanswered(broker: FakeBroker) -> None:
    center = MessageCenter(broker.address)
    future = center.publish_soon("TP", "EC", b"1")
    one_way = center.publish_one_way("TP", "EC", b"2")
    await center.close()

    assert (await future).queue_offset == 0
    assert one_way
    assert bodies(broker) == [b"1", b"2"]
    with pytest.raises(CenterClosedError):
        await center.publish("TP", "EC", b"3")


async def test_a_body_no_topic_can_take_is_refused_before_it_is_sent(broker: FakeBroker) -> None:
    async with MessageCenter(broker.address) as center:
        with pytest.raises(BodyTooLargeError):
            await center.publish("TP", "EC", bytes(5 * 1024 * 1024))

    assert broker.hellos == []


async def test_a_publisher_the_broker_has_forgotten_goes_on_under_a_new_id(broker: FakeBroker) -> None:
    async with MessageCenter(broker.address) as center:
        await center.publish("TP", "EC", b"1")
        broker.store.last_sequence.clear()
        await center.publish("TP", "EC", b"2")

    assert bodies(broker) == [b"1", b"2"]
    assert len({hello.publisher_id for hello in broker.hellos}) == 2


async def test_a_cancelled_publish_that_was_not_sent_is_not_stored(broker: FakeBroker) -> None:
    async with MessageCenter(broker.address) as center:
        publishing = asyncio.ensure_future(center.publish("TP", "EC", b"cancelled"))
        await asyncio.sleep(0)
        publishing.cancel()
        await center.publish("TP", "EC", b"kept")

    assert bodies(broker) == [b"kept"]


async def test_a_refusal_of_a_newer_broker_is_about_its_message_alone(broker: FakeBroker) -> None:
    store = broker.store.store

    def refuse_new(publisher_id: bytes, frame: publisher_pb2.PublishFrame) -> publisher_pb2.PublishResult:
        result = store(publisher_id, frame)
        if frame.messages[0].body == b"refused":
            said = refusal("NEW_REASON", "UNAVAILABLE", retryable=True, message="a fact of that name")
            result.refusals.append(publisher_pb2.MessageRefusal(index=0, refusal=said))
        return result

    broker.store.store = refuse_new  # type: ignore[method-assign]
    async with MessageCenter(broker.address) as center:
        with pytest.raises(UnavailableError) as refused:
            await center.publish("TP", "EC", b"refused")
        assert (await center.publish("TP", "EC", b"next")).queue_id == 7

    assert (refused.value.reason, refused.value.facts) == ("NEW_REASON", {"message": "a fact of that name"})


@pytest.mark.parametrize("hint", ["nan", "-1", "soon", "inf"])
async def test_a_hint_that_makes_no_sense_delays_nothing(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch, hint: str
) -> None:
    monkeypatch.setattr(answers_module, "_HINT_SECONDS_MAX", 0.01)
    refused = [failed(1, "STORE_UNAVAILABLE", retry_after_seconds=hint)]
    store = broker.store.store
    broker.store.store = lambda *frame: refused.pop() if refused else store(*frame)  # type: ignore[method-assign]
    async with MessageCenter(broker.address, backoff_initial_seconds=0.001) as center:
        assert (await center.publish("TP", "EC")).queue_id == 7


def test_the_frame_put_together_by_hand_is_what_protobuf_reads() -> None:
    from msgbroker.client.publish.wire import MessageEncoder, frame_messages

    encode = MessageEncoder().encode
    sizes = [0, 1, 50, 100, 127, 128, 8_192, 16_383, 16_384, 3_000_000]
    encoded = [encode("TP", "EC", bytes(size), key="k") for size in sizes]

    parts = [publisher_pb2.PublishFrame.FromString(sent).part for sent in frame_messages(300, encoded)]
    frame = publisher_pb2.PublishFrame.FromString(b"".join(parts))

    assert frame.sequence == 300
    assert [len(message.body) for message in frame.messages] == sizes
