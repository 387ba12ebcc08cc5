"""What brokers trace of messages: of some all that happens, and of all what fails."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from confdb.services import ConfigService
from confdb.store import ConfigStore
from msgbroker.client import Message, MessageCenter, Reject, Release, RetryAfter
from msgbroker.server.app import Broker
from msgconsole.operations.dead_letters.redrive import redrive
from msgconsole.operations.stores import Stores
from msgdb.dead_letters.wanted import WantedDeadLetters
from msgdb.store import MessageStore
from tests.support.broker_fixtures import StartBroker
from tests.support.collecting import GROUP, PAID, TOPIC, all_settled, dead_letters, register_group, subscribed
from tests.support.eventually import eventually
from tests.support.jobs import buried, ended
from tests.support.raw_streams import raw_subscriber
from tests.support.stress import STRESS
from tests.support.traces import flushed, of_kinds, story_of


async def trace_all(trade: ConfigService, rate: float = 1.0) -> None:
    changed = await trade.topics.update("default", TOPIC, trace_rate=rate)
    await trade.wait_until_active(changed.version)


@pytest.fixture
async def stores(database_url: str, message_store: MessageStore) -> AsyncIterator[Stores]:
    """Return both databases."""
    async with ConfigStore.open(database_url) as config:
        yield Stores(config, message_store)


async def test_at_rate_1_the_story_of_a_message_is_told_from_its_publisher_to_its_verdict(
    trade: ConfigService, broker: Broker, center: MessageCenter, stores: Stores
) -> None:
    await trace_all(trade)
    await register_group(trade)
    async with subscribed(broker.address, instance_id="points-1") as got:
        receipt = await center.publish(TOPIC, PAID, "a", key="order-1")
        await got.until(1)
        await all_settled(broker)
        await flushed(broker, stores.messages)

    (copy,) = (await story_of(stores, receipt.message_id)).copies
    assert [(line.what, line.group, line.instance, line.attempt) for line in copy.lines] == [
        ("PUBLISHED", None, None, None),
        ("STORED", None, None, None),
        ("HANDED_OUT", GROUP, "points-1", 1),
        ("ACKED", GROUP, "points-1", 1),
    ]
    assert [line.broker for line in copy.lines] == [None, *[broker.address] * 3]
    stored, handed_out, acked = copy.lines[1:]
    assert stored.at <= handed_out.at <= acked.at
    assert acked.seconds == pytest.approx((acked.at - handed_out.at).total_seconds())
    assert copy.is_traced


async def test_at_rate_0_nothing_that_goes_well_is_traced_and_what_fails_is(
    trade: ConfigService, broker: Broker, center: MessageCenter, stores: Stores
) -> None:
    await trace_all(trade, 0.0)
    await register_group(trade, retry_schedule_seconds=(0.05,))

    async def fail_once(message: Message) -> None:
        if message.body == b"1" and message.attempt == 1:
            raise ValueError("not yet")

    async with subscribed(broker.address, act=fail_once) as got:
        receipts = [await center.publish(TOPIC, PAID, str(number)) for number in range(3)]
        await got.until(4)
        await all_settled(broker)
        lanes = [owned.lane for _, owned in broker.hub.lanes()]
        await eventually(lambda: sum(lane.redelivery_count for lane in lanes) == 0)
        events = await flushed(broker, stores.messages)

    assert [(event.kind, event.attempt) for event in events] == [("RETRIED", 1), ("ACKED", 2)]
    assert "not yet" in (events[0].detail or "")
    story = await story_of(stores, receipts[1].message_id)
    assert [line.what for line in story.copies[0].lines] == [
        "PUBLISHED", "STORED", "HANDED_OUT", "RETRIED", "HANDED_OUT", "ACKED",
    ]  # fmt: skip
    assert any("rate 0" in sentence for sentence in story.missing)


async def test_what_is_traced_is_the_share_that_the_rate_says_and_whole_stories_of_it(
    trade: ConfigService, broker: Broker, center: MessageCenter, stores: Stores
) -> None:
    await trace_all(trade, 0.1)
    await register_group(trade)
    async with subscribed(broker.address) as got:
        await asyncio.gather(*(center.publish(TOPIC, PAID, str(number)) for number in range(1_000)))
        await got.until(1_000)
        await all_settled(broker)
        events = await flushed(broker, stores.messages)

    def places(kind: str) -> list[tuple[int, int]]:
        return sorted(
            (event.queue_id, offset)
            for event in of_kinds(events, kind)
            for offset in range(event.first_offset, event.last_offset + 1)
        )

    assert 60 <= len(places("STORED")) <= 140
    assert places("ACKED") == places("STORED")
    assert {event.kind for event in events} <= {"STORED", "HANDED_OUT", "ACKED"}


async def test_each_way_to_fail_is_traced_by_its_name(
    trade: ConfigService, broker: Broker, center: MessageCenter, config: ConfigService, stores: Stores
) -> None:
    await trace_all(trade, 0.0)
    await register_group(trade, attempts_max=1, ack_timeout_seconds=1.0, handle_seconds_max=0.0)
    answers: dict[bytes, Exception] = {b"reject": Reject("never"), b"retry": RetryAfter(0.0)}

    async def act(message: Message) -> None:
        if message.body == b"hang":
            await asyncio.Event().wait()
        if message.body in answers:
            raise answers[message.body]

    async with subscribed(broker.address, act=act) as got:
        for body in ("reject", "retry", "hang", "well"):
            await center.publish(TOPIC, PAID, body)
        await got.until(4)
        await eventually(lambda: sum(o.lane.counters.dead_lettered for _, o in broker.hub.lanes()) == 3)
        await all_settled(broker)

        async def three() -> bool:
            return len(await dead_letters(config, stores.messages)) == 3

        await eventually(three)
        await broker.checkpointer.flush_once()
        events = await flushed(broker, stores.messages)

    failed = [event for event in events if event.kind != "DEAD_LETTERED"]
    assert sorted(event.kind for event in failed) == ["REJECTED", "RETRIED", "TIMED_OUT"]
    assert [event.detail for event in of_kinds(events, "REJECTED")] == ["never"]
    assert sorted(event.detail or "" for event in of_kinds(events, "DEAD_LETTERED")) == [
        "ATTEMPTS_EXHAUSTED", "ATTEMPTS_EXHAUSTED", "REJECTED",
    ]  # fmt: skip
    (timed_out,) = of_kinds(events, "TIMED_OUT")
    assert timed_out.handed_at_us is not None
    assert 1_000_000 <= timed_out.at_us - timed_out.handed_at_us < 3_000_000


async def test_stress_traffic_that_is_refused_at_hand_out_is_traced(
    trade: ConfigService, broker: Broker, center: MessageCenter, stores: Stores
) -> None:
    await trace_all(trade, 0.0)
    await register_group(trade)
    async with subscribed(broker.address):
        receipt = await center.publish(TOPIC, PAID, "a", headers=STRESS)
        await all_settled(broker)
        await flushed(broker, stores.messages)

    (copy,) = (await story_of(stores, receipt.message_id)).copies
    assert copy.stress
    assert [(line.what, line.group) for line in copy.lines][2:] == [("DENIED", GROUP)]


async def test_what_is_given_back_is_no_failure(
    trade: ConfigService, broker: Broker, center: MessageCenter, stores: Stores
) -> None:
    await trace_all(trade, 0.0)
    await register_group(trade)

    async def release_once(_: Message) -> None:
        if len(got.messages) == 1:
            raise Release

    async with subscribed(broker.address, act=release_once) as got:
        await center.publish(TOPIC, PAID, "a")
        await got.until(2)
        await all_settled(broker)

        assert await flushed(broker, stores.messages) == []


async def test_a_redriven_message_has_a_story_at_each_of_its_places_whatever_its_draw(
    trade: ConfigService, broker: Broker, stores: Stores
) -> None:
    # None of them is among the chosen, but for a run of luck.
    await trace_all(trade, 0.000_001)
    await register_group(trade)
    (dead_letter_id,) = await buried(broker.address, stores.messages, 1)
    async with subscribed(broker.address) as got:
        begun = await redrive(stores, WantedDeadLetters(namespace="default", is_open=True), actor="ada", reason="why")
        await ended(stores, begun.job_id)
        await got.until(1)
        await all_settled(broker)
        await flushed(broker, stores.messages)

    story = await story_of(stores, got.messages[0].message_id)
    first, again = story.copies
    assert dead_letter_id
    assert (first.only_for, first.redrives, again.only_for, again.redrives) == (None, 0, GROUP, 1)
    assert [line.what for line in first.lines][-2:] == ["REJECTED", "DEAD_LETTERED"]
    assert [line.what for line in again.lines] == ["STORED", "HANDED_OUT", "ACKED"]
    assert again.lines[0].broker == broker.address
    assert (first.is_traced, again.is_traced) == (False, True)


async def test_an_instance_that_crashes_is_told_of_each_message_that_it_had(
    trade: ConfigService, broker: Broker, center: MessageCenter, stores: Stores
) -> None:
    await trace_all(trade, 0.0)
    await register_group(trade)
    async with raw_subscriber(broker.address, GROUP, credit=10, instance_id="points-1") as crashing:
        receipts = [await center.publish(TOPIC, PAID, str(number)) for number in range(3)]
        await crashing.until(3)
    await eventually(lambda: not any(group.instances for group in broker.hub.groups.values()))
    events = await flushed(broker, stores.messages)

    gone = [
        (event.queue_id, offset)
        for event in of_kinds(events, "INSTANCE_GONE")
        for offset in range(event.first_offset, event.last_offset + 1)
    ]
    assert sorted(gone) == sorted((receipt.queue_id, receipt.queue_offset) for receipt in receipts)
    assert {event.instance for event in events} == {"points-1"}


async def test_a_hand_out_that_lasts_is_told_before_it_ends(
    trade: ConfigService, broker: Broker, center: MessageCenter, stores: Stores
) -> None:
    await trace_all(trade)
    await register_group(trade)
    go_on = asyncio.Event()

    async def wait(_: Message) -> None:
        await go_on.wait()

    async with subscribed(broker.address, act=wait) as got:
        receipt = await center.publish(TOPIC, PAID, "a")
        await got.until(1)
        await flushed(broker, stores.messages)
        before = (await story_of(stores, receipt.message_id)).copies[0].lines
        go_on.set()
        await all_settled(broker)
        await flushed(broker, stores.messages)
        after = (await story_of(stores, receipt.message_id)).copies[0].lines

    assert [line.what for line in before] == ["PUBLISHED", "STORED", "HANDED_OUT"]
    assert after[:3] == before
    assert [line.what for line in after[3:]] == ["ACKED"]


async def test_what_the_end_of_a_broker_leaves_unwritten_is_written_as_it_leaves(
    trade: ConfigService, broker: Broker, center: MessageCenter, stores: Stores
) -> None:
    await trace_all(trade)
    await register_group(trade)
    async with subscribed(broker.address) as got:
        receipt = await center.publish(TOPIC, PAID, "a")
        await got.until(1)
        await all_settled(broker)
    await center.close()
    await broker.shut_down()

    (copy,) = (await story_of(stores, receipt.message_id)).copies
    assert [line.what for line in copy.lines][-1] == "ACKED"


async def test_a_hand_out_that_outlives_its_broker_is_told_to_be_nobodys(
    trade: ConfigService, start_broker: StartBroker, stores: Stores
) -> None:
    broker = await start_broker(drain_seconds=0.0, lease_seconds=30.0)
    await trace_all(trade)
    await register_group(trade)
    async with raw_subscriber(broker.address, GROUP, instance_id="points-1") as holding:
        async with MessageCenter(broker.address) as center:
            receipt = await center.publish(TOPIC, PAID, "a")
        await holding.until(1)
        await broker.shut_down()

    (copy,) = (await story_of(stores, receipt.message_id)).copies
    assert [line.what for line in copy.lines][2:] == ["HANDED_OUT", "LANE_GONE"]
