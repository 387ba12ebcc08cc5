"""Who does not want to wait (`on_unavailable="raise"`, `register`) hears of it once all brokers were tried."""

from __future__ import annotations

import asyncio

import pytest

from msgbroker.client import (
    BrokerUnavailableError,
    MessageCenter,
    StoreUnavailableError,
    SyncMessageCenter,
    UnavailableCause,
)
from msgbroker.client.connect.unreachable import none_of
from msgbroker.contract.errors import MessageCenterError
from tests.support.eventually import eventually
from tests.support.fake_broker import FakeBroker
from tests.support.other_servers import talking

LONG_SECONDS = 600.0


def free_addresses(count: int) -> list[str]:
    """Return addresses at which nothing listens: of ports that nobody gets who asks for any."""
    return [f"127.0.0.1:{port}" for port in range(1, count + 1)]


def impatient(*addresses: str) -> MessageCenter:
    """A center that raises, whose times are so long that none of them is what ends a wait."""
    return MessageCenter(
        addresses, on_unavailable="raise", publish_timeout_seconds=LONG_SECONDS, connect_timeout_seconds=LONG_SECONDS
    )


async def test_a_publish_is_given_up_as_soon_as_all_addresses_have_refused() -> None:
    addresses = free_addresses(3)
    async with impatient(*addresses) as center, asyncio.timeout(30):
        for _ in range(3):
            with pytest.raises(BrokerUnavailableError) as refused:
                await center.publish("TP", "EC")

    for address in addresses:
        assert f"{address} (connection refused: " in refused.value.message
    assert refused.value.message.startswith("no broker can be reached: ")
    assert refused.value.message.endswith(": the message was not sent")
    assert sorted(refused.value.address.split(", ")) == sorted(addresses)
    assert refused.value.cause is UnavailableCause.REFUSED
    assert refused.value.may_be_stored is False


async def test_a_publish_is_not_given_up_before_the_last_address_was_tried(broker: FakeBroker) -> None:
    async with impatient(*free_addresses(3), broker.address) as center, asyncio.timeout(30):
        assert (await center.publish("TP", "EC")).queue_offset == 0


@pytest.mark.slow
async def test_what_is_published_while_addresses_are_tried_waits_until_all_were_tried_for_it() -> None:
    (refusing,) = free_addresses(1)
    async with talking(None, hangs_up=False) as (port, mute), asyncio.timeout(30):
        addresses = [refusing, f"127.0.0.1:{port}"]
        center = MessageCenter(addresses, on_unavailable="raise", connect_timeout_seconds=0.3)
        async with center:
            first = center.publish_soon("TP", "EC", b"1")
            await mute.heard.wait()
            second = center.publish_soon("TP", "EC", b"2")
            with pytest.raises(BrokerUnavailableError):
                await first
            assert not second.done()
            with pytest.raises(BrokerUnavailableError):
                await second


async def test_what_was_under_way_when_a_broker_is_lost_goes_to_the_next(broker: FakeBroker) -> None:
    async with FakeBroker(broker.store) as other, asyncio.timeout(30):
        other.answers_held.clear()
        async with impatient(other.address, broker.address) as center:
            publishing = asyncio.ensure_future(center.publish("TP", "EC"))
            await eventually(lambda: other.frames)
            await other.stop()
            receipt = await publishing

    assert receipt.queue_offset == 0


async def test_what_was_under_way_when_the_last_broker_is_lost_may_be_stored(broker: FakeBroker) -> None:
    broker.answers_held.clear()
    async with impatient(broker.address, *free_addresses(1)) as center, asyncio.timeout(30):
        publishing = asyncio.ensure_future(center.publish("TP", "EC"))
        await eventually(lambda: broker.frames)
        await broker.stop()
        with pytest.raises(BrokerUnavailableError) as lost:
            await publishing

    assert lost.value.may_be_stored is True
    assert lost.value.message.endswith(": the message was sent and may be stored")


async def test_registering_is_given_up_as_soon_as_all_addresses_have_refused(broker: FakeBroker) -> None:
    addresses = free_addresses(2)
    async with MessageCenter(addresses, connect_timeout_seconds=LONG_SECONDS) as center, asyncio.timeout(30):
        with pytest.raises(BrokerUnavailableError, match="no broker can be reached: ") as refused:
            await center.register("TP", "EC", timeout_seconds=LONG_SECONDS)
    async with MessageCenter([*addresses, broker.address]) as center:
        assert await center.register("TP", "EC") == ["topic"]

    assert all(f"{address} (connection refused: " in refused.value.message for address in addresses)
    assert refused.value.cause is UnavailableCause.REFUSED


def test_blocking_code_hears_of_it_as_well() -> None:
    addresses = free_addresses(2)
    with SyncMessageCenter(addresses, on_unavailable="raise", publish_timeout_seconds=LONG_SECONDS) as center:
        with pytest.raises(BrokerUnavailableError, match="no broker can be reached: ") as refused:
            center.publish("TP", "EC")
        with pytest.raises(BrokerUnavailableError, match="no broker can be reached: "):
            center.register("TP", "EC")

    assert all(address in refused.value.message for address in addresses)


def test_what_a_broker_has_answered_counts_more_than_what_others_have_not() -> None:
    gone = BrokerUnavailableError("broker a:1: no", address="a:1", cause=UnavailableCause.REFUSED)
    late = BrokerUnavailableError("broker b:1: no", address="b:1", cause=UnavailableCause.TIMEOUT)
    answered = StoreUnavailableError("it restarts")

    assert none_of({"a:1": gone}) is gone
    assert none_of({"a:1": gone, "b:1": answered}) is answered
    both = none_of({"a:1": gone, "b:1": late})
    assert isinstance(both, BrokerUnavailableError)
    assert (both.message, both.cause) == ("no broker can be reached: a:1 (no); b:1 (no)", None)
    many: dict[str, MessageCenterError] = {f"a:{port}": gone for port in range(1, 100)}
    assert none_of(many).message.endswith("; and 89 more")
