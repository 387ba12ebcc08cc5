"""Streams that end without a word, again and again: what was not begun must not pay for what was."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest

from confdb.services import ConfigService
from msgbroker.client import MessageCenter, OutgoingMessage
from msgbroker.server.app import Broker
from msgbroker.server.deliver.group import GroupDelivery
from msgbroker.v1 import subscriber_pb2
from msgdb.store import MessageStore
from tests.support.broker_fixtures import StartBroker
from tests.support.collecting import PAID, TOPIC, dead_letters, register_group
from tests.support.eventually import eventually
from tests.support.raw_streams import Given, RawSubscriber, raw_subscriber

NEIGHBOURS = 1_000
CRASHES = 20
ONE, TWO = b"1" * 16, b"2" * 16


@pytest.fixture
async def broker(start_broker: StartBroker) -> Broker:
    """Return a broker whose lanes stay here however busy the machine is: what is counted is counted by one owner."""
    return await start_broker(lease_seconds=60.0)


async def publish(center: MessageCenter, count: int, key: str = "") -> None:
    await center.publish_many([OutgoingMessage(TOPIC, PAID, str(number), key=key) for number in range(count)])


def attempts(given: list[Given]) -> dict[str, int]:
    return {one.body: one.delivery.attempt or 1 for one in given}


def reason_of(raw: RawSubscriber) -> str:
    assert raw.ended is not None
    return str(dict(raw.ended.trailing_metadata() or ())["msgcenter-reason"])


@pytest.mark.parametrize("says_begun", [True, False])
async def test_a_crash_loop_costs_the_neighbours_one_attempt_of_one_message_a_crash(
    trade: ConfigService, broker: Broker, center: MessageCenter, message_store: MessageStore, *, says_begun: bool
) -> None:
    await register_group(trade, retry_schedule_seconds=(3_600.0,) * 16)
    await publish(center, NEIGHBOURS)
    for crashes in range(CRASHES):
        # One that is started again under its stable id each time, or an old one that has an id of its own.
        hello: dict[str, Any] = {"says_begun": True, "process_id": bytes([crashes]) * 16}
        if not says_begun:
            hello = {"instance_id": f"old-{crashes}"}
        async with raw_subscriber(broker.address, credit=NEIGHBOURS, **hello) as crashing:
            # All but the few that were blamed twice, and wait for their next attempt.
            await crashing.until(NEIGHBOURS - crashes // 2)
    async with raw_subscriber(broker.address, credit=NEIGHBOURS, process_id=b"x" * 16) as last:
        given = await last.until(NEIGHBOURS - CRASHES // 2)

    # Each crash has cost one attempt: those who paid once are here, those who paid twice come later.
    paid_once = [attempt for attempt in attempts(given).values() if attempt > 1]
    paid_twice = NEIGHBOURS - len(given)
    assert set(paid_once) <= {2}
    assert len(paid_once) + 2 * paid_twice == CRASHES
    assert await dead_letters(trade, message_store) == []


@pytest.mark.parametrize("process_ids", [(b"", b""), (ONE, b"")], ids=["both old", "one old"])
async def test_old_clients_with_one_instance_id_that_evict_each_other_cost_no_attempt(
    trade: ConfigService,
    broker: Broker,
    center: MessageCenter,
    message_store: MessageStore,
    process_ids: tuple[bytes, bytes],
) -> None:
    await register_group(trade)
    await publish(center, 100)
    evicted: list[bytes] = []

    async def come_back_until_enough(process_id: bytes) -> None:
        while len(evicted) < 60:
            async with raw_subscriber(broker.address, instance_id="same", process_id=process_id) as raw:
                await eventually(lambda: raw.has_ended or len(evicted) >= 60, 60)
                evicted.append(process_id)

    await asyncio.gather(*(come_back_until_enough(process_id) for process_id in process_ids))
    async with raw_subscriber(broker.address, instance_id="other") as other:
        given = await other.until(100)

    # Who was left at the end went away without a word: that costs one attempt. The evictions cost none.
    assert sorted(attempts(given).values())[:-2] == [1] * 98
    assert await dead_letters(trade, message_store) == []


async def test_what_an_instance_has_begun_counts_when_its_stream_ends_and_nothing_else(
    trade: ConfigService, broker: Broker, center: MessageCenter
) -> None:
    await register_group(trade)
    await publish(center, 10)
    async with raw_subscriber(broker.address, says_begun=True) as crashing:
        given = list(await crashing.until(10))
        await crashing.begin(*given[3:5])
        await crashing.send(confirm=1)
        await eventually(lambda: [told.confirmed for told in crashing.told if told.confirmed] == [1])
    async with raw_subscriber(broker.address, instance_id="next") as following:
        again = await following.until(10)

    begun = {one.body for one in given[3:5]}
    assert attempts(again) == {str(n): 2 if str(n) in begun else 1 for n in range(10)}


async def test_what_was_begun_and_then_acknowledged_with_its_neighbours_is_done(
    trade: ConfigService, broker: Broker, center: MessageCenter
) -> None:
    await register_group(trade)
    await publish(center, 10, key="one queue")
    async with raw_subscriber(broker.address, says_begun=True) as raw:
        given = list(await raw.until(10))
        await raw.begin(*given[3:5])
        await raw.settle(*given[:8])
        await raw.send(confirm=7)
        await eventually(lambda: any(told.confirmed == 7 for told in raw.told))
    async with raw_subscriber(broker.address, instance_id="next") as following:
        again = await following.until(2)

    # Of what was left nothing had been begun: the first one pays.
    assert attempts(again) == {"8": 2, "9": 1}


async def test_the_second_time_that_a_message_ends_its_instance_it_waits_by_the_schedule(
    trade: ConfigService, broker: Broker, center: MessageCenter
) -> None:
    await register_group(trade, retry_schedule_seconds=(0.0, 3_600.0, 3_600.0))
    await publish(center, 2, key="one queue")
    for attempt in (1, 2):
        async with raw_subscriber(broker.address, says_begun=True) as crashing:
            given = await crashing.until(2)
            assert attempts(given)["0"] == attempt
            await crashing.begin(*(one for one in given if one.body == "0"))
            await crashing.send(confirm=1)
            await eventually(lambda: any(told.confirmed for told in crashing.told))
    async with raw_subscriber(broker.address, instance_id="next") as following:
        await following.until(1)
        (owned,) = [s for s in _group(broker).lanes.values() if s.lane.redelivery_count]
        wakeup = owned.lane.next_wakeup()

        assert attempts(following.given) == {"1": 1}
        assert wakeup is not None


async def test_another_process_under_the_same_instance_id_ends_the_stream_of_the_first_for_good(
    trade: ConfigService, broker: Broker, center: MessageCenter
) -> None:
    await register_group(trade)
    async with raw_subscriber(broker.address, instance_id="same", process_id=ONE, host="first-host") as former:
        await publish(center, 10)
        await former.until(10)
        async with raw_subscriber(broker.address, instance_id="same", process_id=TWO, host="other-host") as newcomer:
            await eventually(lambda: former.has_ended)
            await newcomer.until(10)

            assert former.ended is not None
            assert former.ended.code() is grpc.StatusCode.FAILED_PRECONDITION
            assert reason_of(former) == "INSTANCE_REPLACED"
            told = former.ended.details() or ""
            assert "'same'" in told
            assert "'other-host'" in told
            assert "first-host" not in told
            assert not newcomer.has_ended
            # The first may have been a dead process, not yet seen to be, and one of these what it died of.
            assert sorted(attempts(newcomer.given).values()) == [1] * 9 + [2]
            assert [told.attached.careful_ms > 0 for told in newcomer.told if told.HasField("attached")] == [True]


async def test_the_same_process_that_reconnects_replaces_its_old_stream_and_nothing_counts_that_was_not_begun(
    trade: ConfigService, broker: Broker, center: MessageCenter
) -> None:
    await register_group(trade)
    async with raw_subscriber(broker.address, instance_id="same", process_id=ONE, says_begun=True) as old:
        await publish(center, 10)
        await old.until(10)
        async with raw_subscriber(broker.address, instance_id="same", process_id=ONE, says_begun=True) as new:
            await eventually(lambda: old.has_ended)
            await new.until(10)

            assert old.ended is None
            assert set(attempts(new.given).values()) == {1}
            assert [told.attached.careful_ms for told in new.told if told.HasField("attached")] == [0]


@pytest.mark.parametrize(
    "request_fields, field",
    [
        ({"begun": [subscriber_pb2.Begun(queue_id=1, epoch=1, attempt=1, ranges=[1])]}, "ranges"),
        ({"begun": [subscriber_pb2.Begun(queue_id=1, epoch=1, attempt=1, ranges=[5, 3])]}, "ranges"),
        ({"begun": [subscriber_pb2.Begun(queue_id=1, epoch=1, attempt=1, ranges=[1, 5, 5, 6])]}, "overlap"),
        ({"begun": [subscriber_pb2.Begun(queue_id=1, epoch=1, attempt=1, ranges=[0, 1_000_000])]}, "1000000"),
        ({"begun": [subscriber_pb2.Begun(queue_id=1, epoch=1, attempt=1)] * 10_001}, "10000"),
    ],
)
async def test_what_is_malformed_of_what_is_begun_ends_the_stream_with_its_reason(
    trade: ConfigService, broker: Broker, request_fields: dict[str, Any], field: str
) -> None:
    await register_group(trade)
    async with raw_subscriber(broker.address) as raw:
        await eventually(lambda: raw.told)
        await raw.send(**request_fields)
        await eventually(lambda: raw.has_ended)

    assert reason_of(raw) == "INVALID_FIELD"
    assert raw.ended is not None
    assert field in (raw.ended.details() or "")


async def test_a_process_id_of_another_length_is_refused(trade: ConfigService, broker: Broker) -> None:
    await register_group(trade)
    async with raw_subscriber(broker.address, process_id=b"short") as raw:
        await eventually(lambda: raw.has_ended)

    assert reason_of(raw) == "INVALID_FIELD"
    assert raw.ended is not None
    assert "process_id" in (raw.ended.details() or "")


async def test_what_an_instance_does_not_begin_in_time_goes_to_another_and_does_not_count(
    trade: ConfigService, broker: Broker, center: MessageCenter
) -> None:
    await register_group(trade, ack_timeout_seconds=1.0, retry_schedule_seconds=(3_600.0,))
    async with raw_subscriber(broker.address, instance_id="stuck", says_begun=True) as stuck:
        await publish(center, 10)
        given = list(await stuck.until(10))
        await stuck.begin(given[4])
        async with raw_subscriber(broker.address, instance_id="other") as other:
            again = await other.until(9)

    assert attempts(again) == {one.body: 1 for one in given if one.body != given[4].body}


async def test_a_message_in_which_a_silent_instance_hangs_counts_when_it_is_not_answered_in_time(
    trade: ConfigService, broker: Broker, center: MessageCenter
) -> None:
    await register_group(trade, ack_timeout_seconds=1.0, retry_schedule_seconds=(0.0, 0.0))
    async with raw_subscriber(broker.address, instance_id="hangs", says_begun=True) as hanging:
        await publish(center, 10, key="one queue")
        await hanging.until(10)
        async with raw_subscriber(broker.address, instance_id="other", says_begun=True) as other:
            again = await other.until(10)

    assert attempts(again) == {str(n): 2 if n == 0 else 1 for n in range(10)}


def _group(broker: Broker) -> GroupDelivery:
    (group,) = broker.hub.groups.values()
    return group
