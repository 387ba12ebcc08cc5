"""Lanes that a broker gives up, running or as it stops: nothing comes twice by that, and none waits for another."""

from __future__ import annotations

import asyncio
from collections import Counter
from types import SimpleNamespace

import psycopg
import pytest

from confdb.services import ConfigService
from msgbroker.client import Message, MessageCenter, OutgoingMessage
from msgbroker.server import clock
from msgbroker.server.app import Broker
from msgbroker.server.cluster import planned_moves
from msgbroker.server.deliver.lanes.owned_lane import OwnedLane
from msgdb.store import MessageStore
from tests.support.broker_fixtures import StartBroker
from tests.support.collecting import PAID, TOPIC, register_group, register_topic
from tests.support.eventually import eventually
from tests.support.raw_streams import RawSubscriber, raw_subscriber

_COUNT = 20
_WIDE = "TP_WIDE"
_WIDE_GROUP = "SG_WIDE"
# So many that no chance leaves a broker without its share.
_WIDE_QUEUES = 16
_HOLD = "SELECT FROM cursor ORDER BY queue_id FOR UPDATE"


@pytest.fixture
async def broker(start_broker: StartBroker, trade: ConfigService) -> Broker:
    """Return a broker whose leases pass for nothing that happens here."""
    await register_group(trade)
    return await start_broker(lease_seconds=60)


@pytest.fixture
def steps(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """Return what grows with each step in which the broker has looked at its lanes."""
    steps: list[None] = []
    step_once = broker.cluster.ownership.step_once

    async def step() -> None:
        await step_once()
        steps.append(None)

    monkeypatch.setattr(broker.cluster.ownership, "step_once", step)
    return steps


async def some_steps(broker: Broker, steps: list[None]) -> None:
    """Wait until two steps were begun and ended."""
    for count in range(len(steps) + 1, len(steps) + 4):
        broker.cluster.ownership.wake.set()
        await eventually(lambda count=count: len(steps) >= count, what="a step")  # type: ignore[misc]


def lanes(broker: Broker) -> list[OwnedLane]:
    return [owned for _, owned in broker.hub.lanes()]


async def register_wide(config: ConfigService, **settings: float) -> None:
    """Register a topic of many queues and a group for it."""
    await register_topic(config, _WIDE, queue_count=_WIDE_QUEUES)
    await register_group(config, _WIDE_GROUP, topic=_WIDE, **settings)


async def publish(address: str, prefix: str = "", topic: str = TOPIC) -> None:
    """Publish to all queues, or to many: each time the same to each of them."""
    async with MessageCenter(address) as center:
        out = [OutgoingMessage(topic, PAID, f"{prefix}{n}", ordering_key=str(n)) for n in range(_COUNT)]
        await center.publish_many(out)


async def settle_all(broker: Broker, raw: RawSubscriber) -> None:
    """Acknowledge all, and wait until the broker has taken note of it."""
    await raw.settle(*raw.given)
    await eventually(lambda: all(owned.lane.in_flight_count == 0 for owned in lanes(broker)))


async def given_anew(address: str) -> list[str]:
    """Return what the next instance is given of what was published before."""
    async with raw_subscriber(address, instance_id="next") as raw:
        # What comes now is behind whatever comes again.
        await publish(address, "mark ")
        await eventually(lambda: sum(body.startswith("mark") for body in raw.bodies) == _COUNT, 30)
        return [body for body in raw.bodies if not body.startswith("mark")]


async def owned(store: MessageStore) -> int:
    async with store.connection() as conn:
        (count,) = await (await conn.execute("SELECT count(*) FROM cursor WHERE owner IS NOT NULL")).fetchone() or (0,)
    return int(count)


async def test_what_was_acknowledged_before_a_move_does_not_come_again_though_the_rows_were_locked_then(
    broker: Broker, steps: list[None], database_url: str
) -> None:
    async with await psycopg.AsyncConnection.connect(database_url) as holder:
        async with raw_subscriber(broker.address) as raw:
            await eventually(lambda: len(lanes(broker)) == 4)
            await publish(broker.address)
            await raw.until(_COUNT)
            await holder.execute(_HOLD)
            await settle_all(broker, raw)
            await raw.leave()
        await some_steps(broker, steps)
        await holder.rollback()

    assert await given_anew(broker.address) == []


async def test_what_was_acknowledged_before_a_broker_stops_does_not_come_again_though_the_rows_were_locked_then(
    broker: Broker, start_broker: StartBroker, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    flush_once = broker.checkpointer.flush_once
    async with await psycopg.AsyncConnection.connect(database_url) as holder:

        async def flush() -> int:
            count = await flush_once()
            if all(owned.lane.is_stopped for owned in lanes(broker)):
                # It has met the locked rows once.
                await holder.rollback()
            return count

        async with raw_subscriber(broker.address) as raw:
            await eventually(lambda: len(lanes(broker)) == 4)
            await publish(broker.address)
            await raw.until(_COUNT)
            await holder.execute(_HOLD)
            await settle_all(broker, raw)
            monkeypatch.setattr(broker.checkpointer, "flush_once", flush)
            await broker.shut_down()
    other = await start_broker()

    assert await given_anew(other.address) == []


async def test_a_row_that_is_locked_keeps_no_other_lane_from_its_next_owner(
    broker: Broker, message_store: MessageStore, database_url: str
) -> None:
    async with await psycopg.AsyncConnection.connect(database_url) as holder:
        async with raw_subscriber(broker.address):
            await eventually(lambda: len(lanes(broker)) == 4)
            await holder.execute(f"{_HOLD.replace('FOR', 'LIMIT 1 FOR')}")

        async def is_alone() -> bool:
            return await owned(message_store) == 1

        await eventually(is_alone, what="the others are given up")
        await holder.rollback()

    async def is_given_up() -> bool:
        return await owned(message_store) == 0

    await eventually(is_given_up, what="it is given up, too, and not only when its lease passes")


async def test_what_is_handled_within_the_ack_timeout_is_given_to_nobody_else_however_long_that_takes(
    trade: ConfigService,
    broker: Broker,
    start_broker: StartBroker,
    steps: list[None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await register_wide(trade, ack_timeout_seconds=3_600)
    async with raw_subscriber(broker.address, _WIDE_GROUP, instance_id="one") as one:
        await eventually(lambda: len(lanes(broker)) == _WIDE_QUEUES)
        await publish(broker.address, topic=_WIDE)
        busy = {given.queue_id for given in await one.until(_COUNT)}
        await one.begin(*one.given)
        other = await start_broker(lease_seconds=60)
        async with raw_subscriber(other.address, _WIDE_GROUP, instance_id="two") as two:
            await eventually(lambda: any(owned.lane.is_held_back for owned in lanes(broker)))
            in_half_an_hour = SimpleNamespace(now=lambda: clock.now() + 1_800)
            monkeypatch.setattr(planned_moves, "clock", in_half_an_hour)
            await some_steps(broker, steps)
            assert busy <= {owned.lane.key.queue_id for owned in lanes(broker)}

            await one.settle(*one.given)
            await eventually(lambda: not any(owned.lane.is_held_back for owned in lanes(broker)))
            await eventually(lambda: len(lanes(broker)) + len(lanes(other)) == _WIDE_QUEUES)
            await publish(other.address, "after ", topic=_WIDE)
            await eventually(lambda: len(one.given) + len(two.given) == 2 * _COUNT)
            assert {body.split()[0] for body in two.bodies} == {"after"}


async def test_a_handler_that_has_just_begun_is_alone_at_its_message_though_its_queue_is_to_move(
    trade: ConfigService, broker: Broker, start_broker: StartBroker
) -> None:
    await register_wide(trade, ack_timeout_seconds=2)
    begun: Counter[tuple[str, int]] = Counter()
    may_end = asyncio.Event()

    async def handle(message: Message) -> None:
        begun[message.text(), message.attempt] += 1
        await may_end.wait()

    async with MessageCenter(broker.address) as first:
        first.subscriber(group=_WIDE_GROUP, topic=_WIDE, concurrency=32)(handle)
        await first.start()
        await eventually(lambda: len(lanes(broker)) == _WIDE_QUEUES)
        await publish(broker.address, topic=_WIDE)
        await eventually(lambda: len(begun) == _COUNT)
        other = await start_broker(lease_seconds=60)
        async with MessageCenter(other.address) as second:
            second.subscriber(group=_WIDE_GROUP, topic=_WIDE, concurrency=32)(handle)
            await second.start()
            extended = await eventually(lambda: [owned for owned in lanes(broker) if owned.lane.has_extended])
            await eventually(lambda: not any(owned.lane.is_held_back for owned in extended), what="they go on")
            may_end.set()
            await eventually(lambda: all(owned.lane.in_flight_count == 0 for owned in lanes(broker)))
    assert begun == {(str(number), 1): 1 for number in range(_COUNT)}


async def test_a_lane_does_not_move_while_a_handler_takes_longer_than_the_ack_timeout_and_goes_on_meanwhile(
    trade: ConfigService,
    broker: Broker,
    start_broker: StartBroker,
    steps: list[None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await register_wide(trade, ack_timeout_seconds=60, handle_seconds_max=600)
    async with raw_subscriber(broker.address, _WIDE_GROUP, instance_id="one", credit=1_000) as one:
        await eventually(lambda: len(lanes(broker)) == _WIDE_QUEUES)
        async with MessageCenter(broker.address) as center:
            # So many keys that no chance keeps a lane that is to move without one.
            keys = [str(number) for number in range(100)]
            await center.publish_many(OutgoingMessage(_WIDE, PAID, key, ordering_key=key) for key in keys)
        await one.extend(*await one.until(100), extend_ms=300_000, confirm=1)
        await eventually(lambda: any(told.confirmed for told in one.told))
        other = await start_broker(lease_seconds=60)
        async with raw_subscriber(other.address, _WIDE_GROUP, instance_id="two", credit=1_000) as two:
            await eventually(lambda: broker.cluster.ownership._moves._postponed, what="lanes are to move, and wait")
            await some_steps(broker, steps)
            assert not any(owned.lane.is_stopped for owned in lanes(broker))
            await publish(other.address, "after ", topic=_WIDE)
            await eventually(lambda: len(one.given) + len(two.given) == 100 + _COUNT, what="they go on here")

            at_the_limit = SimpleNamespace(now=lambda: clock.now() + 601)
            monkeypatch.setattr(planned_moves, "clock", at_the_limit)
            await eventually(lambda: any(owned.lane.is_stopped for owned in lanes(broker)), what="the limit ends it")
            await one.settle(*one.given)
            await eventually(lambda: lanes(broker) and not any(owned.lane.is_stopped for owned in lanes(broker)))
            await eventually(lambda: len(lanes(broker)) + len(lanes(other)) == _WIDE_QUEUES)
    assert len({*one.bodies, *two.bodies}) == len([*one.bodies, *two.bodies]) == 100 + _COUNT


async def test_a_lane_moves_when_the_time_of_what_is_in_flight_has_passed_though_nobody_answers(
    trade: ConfigService, broker: Broker, start_broker: StartBroker
) -> None:
    await register_wide(trade, ack_timeout_seconds=1)
    async with raw_subscriber(broker.address, _WIDE_GROUP, instance_id="hangs", says_begun=True) as hangs:
        await eventually(lambda: len(lanes(broker)) == _WIDE_QUEUES)
        other = await start_broker(lease_seconds=60)
        await publish(broker.address, topic=_WIDE)
        await hangs.until(_COUNT)
        async with raw_subscriber(other.address, _WIDE_GROUP, instance_id="next") as following:
            await eventually(lambda: lanes(other) and len(lanes(broker)) + len(lanes(other)) == _WIDE_QUEUES)
            await eventually(lambda: following.given, what="what was in flight is given to others")


async def test_a_store_that_goes_on_with_another_history_while_lanes_move_ends_nothing(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    ownership, flush_once = broker.cluster.ownership, broker.checkpointer.flush_once

    async def flush() -> int:
        count = await flush_once()
        if any(owned.lane.is_stopped for owned in lanes(broker)):
            ownership.follow_history(ownership._claims._store.history)
        return count

    async with raw_subscriber(broker.address):
        await eventually(lambda: len(lanes(broker)) == 4)
        monkeypatch.setattr(broker.checkpointer, "flush_once", flush)
    await eventually(lambda: not lanes(broker))
    assert await given_anew(broker.address) == []
