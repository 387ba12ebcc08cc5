"""What an instance is at for longer than the ack timeout: it keeps it by saying so, on a stream and by calls."""

from __future__ import annotations

from typing import Any

import grpc
import pytest

from confdb.services import ConfigService
from msgbroker.client import MessageCenter
from msgbroker.server.app import Broker
from msgbroker.v1 import subscriber_pb2, subscriber_pb2_grpc
from tests.support.broker_fixtures import StartBroker
from tests.support.collecting import GROUP, PAID, TOPIC, register_group
from tests.support.eventually import eventually
from tests.support.raw_streams import Given, RawSubscriber, raw_subscriber

_ACK_SECONDS = 1.0


@pytest.fixture
async def broker(start_broker: StartBroker, trade: ConfigService) -> Broker:
    """Return a broker with a group whose instances have a second to answer."""
    await register_group(trade, ack_timeout_seconds=_ACK_SECONDS, retry_schedule_seconds=(0.0,) * 5)
    return await start_broker()


async def publish(broker: Broker, *bodies: str) -> None:
    async with MessageCenter(broker.address) as center:
        for body in bodies:
            await center.publish(TOPIC, PAID, body, key="one queue")


async def begin(subscriber: RawSubscriber, *given: Given) -> None:
    """Say that these are begun, and see it heard."""
    await subscriber.begin(*given)
    await subscriber.send(confirm=1)
    await eventually(lambda: any(told.confirmed for told in subscriber.told))


async def timed_out(broker: Broker, count: int) -> None:
    """Wait until so many messages were not answered in time."""
    await eventually(lambda: sum(lane_counter(broker, "timed_out")) >= count, what="time is over")


def lane_counter(broker: Broker, name: str) -> list[int]:
    lanes = [owned for _, owned in broker.hub.lanes()]
    return [getattr(owned.lane.counters, name) for owned in lanes]


async def test_what_is_extended_stays_with_its_instance_and_its_neighbour_comes_again(broker: Broker) -> None:
    async with raw_subscriber(broker.address, says_begun=True) as subscriber:
        await publish(broker, "slow", "forgotten")
        slow, forgotten = await subscriber.until(2)
        await begin(subscriber, slow, forgotten)

        await subscriber.extend(slow, extend_ms=600_000)
        again = (await subscriber.until(3))[2]

        assert (again.body, again.delivery.attempt) == ("forgotten", 2)
        await subscriber.settle(slow, again)
        await eventually(lambda: sum(lane_counter(broker, "settled")) == 2)
        assert sum(lane_counter(broker, "stale")) == 0


async def test_an_instance_is_told_what_was_taken_back_of_what_it_had_begun(broker: Broker) -> None:
    async with raw_subscriber(broker.address, says_begun=True) as subscriber:
        await publish(broker, "hangs")
        (hangs,) = await subscriber.until(1)
        await begin(subscriber, hangs)
        await subscriber.until(2)

        told = [taken for response in subscriber.told for taken in response.taken_back]

    offset = hangs.delivery.queue_offset
    assert [(each.queue_id, each.epoch, each.attempt, list(each.ranges)) for each in told[:1]] == [
        (hangs.queue_id, hangs.epoch, 1, [offset, offset])
    ]


async def test_an_instance_hears_how_long_it_may_take_and_when_that_is_changed(
    broker: Broker, trade: ConfigService
) -> None:
    async with raw_subscriber(broker.address) as subscriber:
        await eventually(lambda: subscriber.told)
        changed = await trade.subscriber_groups.update("default", GROUP, handle_seconds_max=7.5)
        await trade.wait_until_active(changed.version)
        await eventually(lambda: len(subscriber.told) == 2)

        assert [told.attached.handle_ms_max for told in subscriber.told] == [3_600_000, 7_500]


@pytest.mark.parametrize("extend_ms", [0, 86_400_001])
async def test_an_extension_out_of_bounds_ends_the_stream_with_the_reason(broker: Broker, extend_ms: int) -> None:
    async with raw_subscriber(broker.address) as subscriber:
        await publish(broker, "1")
        (given,) = await subscriber.until(1)
        await subscriber.extend(given, extend_ms=extend_ms)
        await eventually(lambda: subscriber.has_ended)

    assert subscriber.ended is not None
    assert subscriber.ended.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "extend_ms" in str(subscriber.ended.details())


async def test_what_is_pulled_is_kept_by_extend_and_what_was_not_is_stale(broker: Broker) -> None:
    await publish(broker, "slow", "forgotten")
    async with grpc.aio.insecure_channel(broker.address) as channel:
        stub: Any = subscriber_pb2_grpc.SubscriberStub(channel)
        pulled = await _pull(stub, 2)
        slow, forgotten = (pulled[body] for body in ("slow", "forgotten"))

        kept = await stub.Extend(_extending(slow, extend_ms=600_000))
        await timed_out(broker, 1)
        late = await stub.Extend(_extending(slow, forgotten, extend_ms=600_000))
        settled = await stub.Settle(
            subscriber_pb2.SettleRequest(
                group=GROUP, instance_id="puller", receipts=[slow], verdict=subscriber_pb2.VERDICT_ACK
            )
        )

    assert (kept.extended, kept.stale) == (1, 0)
    assert (late.extended, late.stale) == (1, 1)
    assert settled.settled == 1


async def test_what_is_pulled_of_a_group_that_keeps_nothing_is_stale_to_who_would_keep_it(
    broker: Broker, trade: ConfigService
) -> None:
    changed = await trade.subscriber_groups.update("default", GROUP, handle_seconds_max=0)
    await trade.wait_until_active(changed.version)
    await publish(broker, "slow")
    async with grpc.aio.insecure_channel(broker.address) as channel:
        stub: Any = subscriber_pb2_grpc.SubscriberStub(channel)
        pulled = await _pull(stub, 1)
        kept = await stub.Extend(_extending(pulled["slow"], extend_ms=600_000))

    assert (kept.extended, kept.stale) == (0, 1)


@pytest.mark.parametrize(
    "request_", [{"receipts": []}, {"receipts": [b"x"]}, {"extend_ms": 0}, {"receipts": [b"x"] * 1_001}], ids=str
)
async def test_an_extend_that_makes_no_sense_is_refused(broker: Broker, request_: dict[str, Any]) -> None:
    whole = {"group": GROUP, "instance_id": "puller", "receipts": [b"\0" * 28], "extend_ms": 1_000, **request_}
    async with grpc.aio.insecure_channel(broker.address) as channel:
        stub: Any = subscriber_pb2_grpc.SubscriberStub(channel)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stub.Extend(subscriber_pb2.ExtendRequest(**whole))

    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def _pull(stub: Any, count: int) -> dict[str, bytes]:
    """Return the receipts of so many messages, by their bodies."""
    pulled: dict[str, bytes] = {}
    while len(pulled) < count:
        request = subscriber_pb2.PullRequest(group=GROUP, instance_id="puller", wait_ms=5_000)
        for message in (await stub.Pull(request)).messages:
            pulled[message.delivery.message.body.decode()] = message.receipt
    return pulled


def _extending(*receipts: bytes, extend_ms: int) -> subscriber_pb2.ExtendRequest:
    return subscriber_pb2.ExtendRequest(group=GROUP, instance_id="puller", receipts=receipts, extend_ms=extend_ms)
