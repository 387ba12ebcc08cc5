"""How publishing ends: everybody who waits is answered, and hears whether the message may be stored."""

from __future__ import annotations

import asyncio
import traceback

import grpc
import pytest

from msgbroker.client import (
    BrokerUnavailableError,
    CenterClosedError,
    MessageCenter,
    MessageCenterError,
    NamespaceNotFoundError,
    OutgoingMessage,
    StoreUnavailableError,
)
from tests.support.eventually import eventually
from tests.support.fake_broker import FakeBroker
from tests.support.paused_center import PausedCenter, begun


def fate_of(error: BaseException | None) -> bool | None:
    """What an error says of its message."""
    assert isinstance(error, MessageCenterError)
    assert str(error) == error.message
    if "may_be_stored" not in error.facts:
        assert not error.may_be_stored
        return None
    fate = "was sent and may be stored" if error.may_be_stored else "was not sent"
    assert error.message.endswith(f"the message {fate}")
    return error.may_be_stored


async def test_closing_answers_all_that_wait_and_says_of_each_message_whether_it_may_be_stored() -> None:
    center = PausedCenter(unanswered_messages_max=2, drain_timeout_seconds=0)
    sent = center.publish_soon("TP", "EC", b"1")
    center.publisher.send()
    unsent = center.publish_soon("TP", "EC", b"2")
    waiting = await begun(center.publish("TP", "EC", b"3"))
    publishing = await begun(center.publish_many(OutgoingMessage("TP", "EC", str(n)) for n in range(4, 8)))
    getting_ready = await begun(center.ready())
    flushing = await begun(center.flush())

    async with asyncio.timeout(5):
        await center.close()
        answers = await publishing
        await flushing

        assert [fate_of(each.exception()) for each in (sent, unsent)] == [True, False]
        with pytest.raises(CenterClosedError) as refused:
            await waiting
        assert fate_of(refused.value) is False
        # The first had its place in the line; the others came to a closed center.
        assert [(type(answer), fate_of(answer)) for answer in answers if isinstance(answer, MessageCenterError)] == [
            (CenterClosedError, fate) for fate in (False, None, None, None)
        ]
        with pytest.raises(CenterClosedError):
            await getting_ready


async def test_a_publisher_that_breaks_says_of_each_message_whether_it_may_be_stored() -> None:
    async with PausedCenter() as center:
        sent = center.publish_soon("TP", "EC", b"1")
        center.publisher.send()
        unsent = center.publish_soon("TP", "EC", b"2")
        center.publisher.buffer.close(MessageCenterError("the publisher has ended"))

        assert [fate_of(each.exception()) for each in (sent, unsent)] == [True, False]


async def test_an_answer_that_makes_no_sense_leaves_its_messages_perhaps_stored(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def break_off(*_: object) -> None:
        raise RuntimeError("a mistake of ours")

    async with MessageCenter(broker.address, drain_timeout_seconds=0) as center:
        monkeypatch.setattr("msgbroker.client.publish.buffer.PublishBuffer.resolve", break_off)
        with pytest.raises(MessageCenterError, match="a mistake of ours") as ended:
            await center.publish("TP", "EC")

    assert fate_of(ended.value) is True


async def test_with_raise_an_outage_says_whether_the_message_may_be_stored(broker: FakeBroker) -> None:
    broker.on_frame = lambda frame: "STORE_UNAVAILABLE"
    async with MessageCenter(broker.address, on_unavailable="raise") as center:
        with pytest.raises(StoreUnavailableError) as sent:
            await center.publish("TP", "EC")
    async with MessageCenter("127.0.0.1:1", on_unavailable="raise", connect_timeout_seconds=0.1) as center:
        with pytest.raises(BrokerUnavailableError) as unsent:
            await center.publish("TP", "EC")

    assert [fate_of(each.value) for each in (sent, unsent)] == [True, False]


async def test_what_a_second_broker_refuses_may_be_stored_by_the_first(broker: FakeBroker) -> None:
    broker.answers_held.clear()
    async with (
        FakeBroker(broker.store) as other,
        MessageCenter([broker.address, other.address], backoff_initial_seconds=0.001) as center,
    ):
        other.refuse_hello = (grpc.StatusCode.NOT_FOUND, (("msgcenter-reason", "NAMESPACE_NOT_FOUND"),))
        sent = center.publish_soon("TP", "EC", b"1")
        await eventually(lambda: broker.frames)
        unsent = center.publish_soon("TP", "EC", b"2")
        await broker.stop()
        with pytest.raises(NamespaceNotFoundError) as refused:
            await sent
        assert fate_of(refused.value) is True
        with pytest.raises(NamespaceNotFoundError) as refused:
            await unsent
        # It may have gone to the first broker just before that ended, and to the second with the refused hello.
        assert fate_of(refused.value) in {True, None}


async def test_who_is_refused_by_a_closed_buffer_gets_an_error_of_its_own() -> None:
    center = PausedCenter(drain_timeout_seconds=0)
    waiting = [center.publish_soon("TP", "EC", str(n)) for n in range(3)]
    buffer = center.publisher.buffer
    await center.close()

    raised: list[BaseException] = []
    for _ in range(100):
        with pytest.raises(CenterClosedError) as refused:
            buffer.offer(b"a large one")
        raised.append(refused.value)
    raised += [future.exception() or AssertionError("it was answered") for future in waiting]

    assert len({id(error) for error in raised}) == 103
    # One that is raised again and again keeps the frames of all who raised it, with what they were at.
    assert max(len(list(traceback.walk_tb(error.__traceback__))) for error in raised) < 5
