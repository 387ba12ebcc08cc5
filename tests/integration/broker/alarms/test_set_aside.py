"""What fails for a reason nobody foresaw is set aside with an alarm: the broker lives, and everything else goes on."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from datetime import datetime
from pathlib import Path

import psycopg
import pytest

from confdb.services import ConfigService
from msgbroker.client import Message, MessageCenter, OutgoingMessage, Receipt
from msgbroker.contract.errors import MessageCenterError
from msgbroker.server import forgetting
from msgbroker.server.alarms import set_aside
from msgbroker.server.app import Broker
from msgdb.store import MessageStore
from tests.support.alarms import REFUSE, alarm_of, execute, no_alarm, refuse_messages
from tests.support.broker_fixtures import StartBroker
from tests.support.collecting import (
    PAID,
    TOPIC,
    open_config,
    register_group,
    register_topic,
    subscribed,
)
from tests.support.eventually import eventually
from tests.support.own_postgres import OwnPostgres
from tests.support.raw_streams import raw_subscriber

OTHER_TOPIC = "TP_OTHER"
OTHER_GROUP = "SG_OTHER"


@pytest.fixture
async def two_topics(trade: ConfigService) -> ConfigService:
    """Return the services once each of two topics has a group of its own."""
    await register_topic(trade, OTHER_TOPIC)
    await register_group(trade)
    await register_group(trade, OTHER_GROUP, topic=OTHER_TOPIC)
    return trade


@pytest.fixture
async def impatient(broker: Broker) -> AsyncIterator[MessageCenter]:
    """Return a client that gives up soon."""
    async with MessageCenter(broker.address, publish_timeout_seconds=3.0) as center:
        yield center


def damaged_file(postgres: OwnPostgres) -> Path:
    """Return the file that holds the large bodies of today's messages."""
    with psycopg.connect(postgres.url) as connection:
        row = connection.execute(
            "SELECT pg_relation_filepath(c.reltoastrelid) FROM message m JOIN pg_class c ON c.oid = m.tableoid LIMIT 1"
        ).fetchone()
    assert row is not None
    return postgres.data / str(row[0])


def replace_file(postgres: OwnPostgres, path: Path, content: bytes | None = None) -> bytes:
    """Put other content into a file of the server's, as a failing disk does (noise, if none is given).

    Return what was there.
    """
    postgres.stop()
    before = path.read_bytes()
    # Whose it is, and its mode, stay as they are.
    with path.open("r+b") as file:
        file.write(os.urandom(len(before)) if content is None else content)
    postgres.start_again()
    return before


async def test_a_damaged_page_holds_up_its_own_lane_and_ends_no_owner(
    own_postgres: OwnPostgres, start_broker: StartBroker
) -> None:
    url = own_postgres.url
    bodies = [os.urandom(20_000) if number == 5 else b"%d" % number for number in range(10)]
    seen: list[bytes] = []

    async def see(message: Message) -> None:
        seen.append(message.body)

    async with open_config(url) as config, MessageStore.open(url) as store:
        brokers = [await start_broker(msgdb_url=url, confdb_url=url) for _ in range(2)]
        addresses = [broker.address for broker in brokers]
        await register_topic(config, body_bytes_max=100_000)
        await register_topic(config, OTHER_TOPIC)
        await register_group(config)
        await register_group(config, OTHER_GROUP, topic=OTHER_TOPIC)
        async with MessageCenter(addresses[0]) as center:
            await center.publish_many([OutgoingMessage(TOPIC, PAID, body, ordering_key="one") for body in bodies])
        path = damaged_file(own_postgres)
        original = replace_file(own_postgres, path)
        for broker in brokers:
            broker.hub.cache._tail.forget()

        async with subscribed(addresses[0], act=see), subscribed(addresses[1], act=see):
            alarm = await alarm_of(store, "LANE_SET_ASIDE")
            assert "DataCorrupted" in alarm.detail
            assert alarm.thing.startswith(f"group SG_POINTS, topic {TOPIC}, queue ")
            for address in addresses:
                async with (
                    subscribed(address, OTHER_GROUP, topic=OTHER_TOPIC) as others,
                    MessageCenter(address) as center,
                ):
                    await center.publish(OTHER_TOPIC, PAID, "on it goes")
                    await others.until(1)
            # Nothing is passed over: what is behind it waits.
            assert b"9" not in seen

            replace_file(own_postgres, path, original)
            await eventually(lambda: b"9" in seen, 60, what="what is behind the damage")
            await no_alarm(store)

    assert sorted(seen) == sorted(bodies)


async def test_a_lane_that_cannot_be_persisted_does_not_keep_the_others_from_it(
    two_topics: ConfigService, broker: Broker, message_store: MessageStore, center: MessageCenter
) -> None:
    group_id = (await two_topics.subscriber_groups.get("default", "SG_POINTS")).group_id
    await execute(message_store, f"ALTER TABLE redelivery ADD CONSTRAINT odd CHECK (group_id <> {group_id})")

    async def fail(_: Message) -> None:
        raise ValueError("not yet")

    async def cursors() -> dict[int, int]:
        async with message_store.connection() as conn:
            rows = await conn.execute("SELECT group_id, sum(acked_offset)::bigint FROM cursor GROUP BY 1")
            return dict(await rows.fetchall())

    async with subscribed(broker.address, act=fail), subscribed(broker.address, OTHER_GROUP, topic=OTHER_TOPIC):
        await center.publish(TOPIC, PAID, "fails")
        alarm = await alarm_of(message_store, "LANE_SET_ASIDE")
        assert "CheckViolation" in alarm.detail
        assert "persisting" in alarm.thing
        for number in range(3):
            await center.publish(OTHER_TOPIC, PAID, str(number))
        await eventually(lambda: _has(cursors, 3), what="the other group's progress")
        assert (await cursors())[group_id] == 0

        await execute(message_store, "ALTER TABLE redelivery DROP CONSTRAINT odd")
        await eventually(lambda: _has(cursors, 1), 30, what="its progress, once that is possible")
        await no_alarm(message_store)


async def _has(cursors: object, offset: int) -> bool:
    return offset in (await cursors()).values()  # type: ignore[operator]


@pytest.mark.parametrize("sqlstate", ["XX001", "58030"])
async def test_a_lane_whose_row_cannot_be_read_does_not_cost_the_others_their_leases(
    two_topics: ConfigService, broker: Broker, message_store: MessageStore, center: MessageCenter, sqlstate: str
) -> None:
    group_id = (await two_topics.subscriber_groups.get("default", OTHER_GROUP)).group_id

    async def lease_of_the_others() -> datetime:
        async with message_store.connection() as conn:
            rows = await conn.execute("SELECT min(lease_until) FROM cursor WHERE group_id <> %s", (group_id,))
            (lease_until,) = await rows.fetchone() or (None,)
        assert isinstance(lease_until, datetime)
        return lease_until

    async with (
        subscribed(broker.address) as got,
        subscribed(broker.address, OTHER_GROUP, topic=OTHER_TOPIC) as other,
    ):
        for topic in (TOPIC, OTHER_TOPIC):
            await center.publish(topic, PAID, "before")
        await got.until(1)
        await other.until(1)
        await execute(
            message_store,
            # What the server says of a block that fails its checksum, or that the disk does not read.
            REFUSE.replace("XX002", sqlstate),
            f"CREATE TRIGGER odd BEFORE UPDATE ON cursor FOR EACH ROW WHEN (OLD.group_id = {group_id})"
            " EXECUTE FUNCTION refuse()",
        )
        before = await lease_of_the_others()
        alarm = await alarm_of(message_store, "LANE_SET_ASIDE")
        assert alarm.thing.startswith(f"group {OTHER_GROUP}, ")

        async def is_renewed() -> bool:
            return await lease_of_the_others() > before

        await eventually(is_renewed, 20)
        await center.publish(TOPIC, PAID, "after")
        await got.until(2)
        await execute(message_store, "DROP TRIGGER odd ON cursor")


async def unreleasable(store: MessageStore) -> int:
    """Let one lane not be given up, for a reason that nobody foresaw; return its queue."""
    async with store.connection() as conn:
        (queue_id,) = await (await conn.execute("SELECT min(queue_id) FROM cursor")).fetchone() or (0,)
    await execute(
        store,
        REFUSE,
        "CREATE TRIGGER odd BEFORE UPDATE ON cursor FOR EACH ROW"
        f" WHEN (OLD.queue_id = {queue_id} AND NEW.owner IS NULL) EXECUTE FUNCTION refuse()",
    )
    return int(queue_id)


async def owned(store: MessageStore) -> list[int]:
    async with store.connection() as conn:
        rows = await conn.execute("SELECT queue_id FROM cursor WHERE owner IS NOT NULL ORDER BY 1")
        return [queue_id for (queue_id,) in await rows.fetchall()]


async def test_a_lane_that_cannot_be_given_up_ends_no_broker_and_keeps_no_other_from_it(
    trade: ConfigService, broker: Broker, message_store: MessageStore, center: MessageCenter
) -> None:
    await register_group(trade)
    async with subscribed(broker.address) as got:
        await center.publish(TOPIC, PAID, "before")
        await got.until(1)
        bad = await unreleasable(message_store)

    async def is_left_alone() -> bool:
        return await owned(message_store) == [bad]

    await eventually(is_left_alone, 20, what="the others are given up")
    async with subscribed(broker.address, instance_id="next") as got:
        # It takes the lane again, too, and fails of nothing.
        await eventually(lambda: sum(len(group.lanes) for group in broker.hub.groups.values()) == 4, 20)
        await center.publish(TOPIC, PAID, "after")
        await got.until(1)


async def test_a_broker_that_stops_gives_up_what_it_can_and_says_goodbye_where_it_can(
    trade: ConfigService,
    start_broker: StartBroker,
    message_store: MessageStore,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await register_group(trade)
    broker = await start_broker(lease_seconds=100)

    async def fail() -> None:
        raise ValueError("a bug")

    monkeypatch.setattr(broker.alarms, "leave", fail)
    async with MessageCenter(broker.address) as center, subscribed(broker.address) as got:
        await center.publish(TOPIC, PAID, "before")
        await got.until(1)
        bad = await unreleasable(message_store)
        await broker.shut_down()

    assert await owned(message_store) == [bad]
    assert await trade.list_brokers() == []


async def test_a_topic_whose_queues_cannot_be_made_fails_alone(
    two_topics: ConfigService, broker: Broker, message_store: MessageStore, impatient: MessageCenter
) -> None:
    created = (await two_topics.topics.create("default", "TP_NEW")).thing
    await two_topics.event_codes.add("default", "TP_NEW", PAID)
    await two_topics.wait_until_active((await two_topics.topics.update("default", "TP_NEW", description="x")).version)
    await execute(
        message_store,
        REFUSE,
        f"CREATE TRIGGER odd BEFORE INSERT ON queue FOR EACH ROW WHEN (NEW.topic_id = {created.topic_id})"
        " EXECUTE FUNCTION refuse()",
    )
    async with MessageCenter(broker.address) as innocent:
        waiting = impatient.publish_soon("TP_NEW", PAID, "cannot be stored")
        receipts = [await innocent.publish(TOPIC, PAID, str(number)) for number in range(20)]
        assert all(isinstance(receipt, Receipt) for receipt in receipts)
        alarm = await alarm_of(message_store, "TOPIC_SET_ASIDE")
        assert (alarm.thing, alarm.topic_id) == ("topic TP_NEW", created.topic_id)
        with pytest.raises(MessageCenterError):
            await waiting

        await execute(message_store, "DROP TRIGGER odd ON queue")
        async with MessageCenter(broker.address, publish_timeout_seconds=60.0) as patient:
            await patient.publish("TP_NEW", PAID, "now it can")
    await no_alarm(message_store)


async def test_the_alarm_of_a_topic_goes_where_nobody_needs_the_topic_any_more(
    trade: ConfigService,
    start_broker: StartBroker,
    message_store: MessageStore,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(forgetting, "_ROUND_SECONDS", 0.1)
    broker = await start_broker()
    created = (await trade.topics.create("default", "TP_NEW")).thing
    await trade.event_codes.add("default", "TP_NEW", PAID)
    await register_group(trade, OTHER_GROUP, topic="TP_NEW")
    # They were made when the group subscribed: as if they were to be made now, for the first time.
    await execute(
        message_store,
        f"DELETE FROM queue WHERE topic_id = {created.topic_id}",
        REFUSE,
        f"CREATE TRIGGER odd BEFORE INSERT ON queue FOR EACH ROW WHEN (NEW.topic_id = {created.topic_id})"
        " EXECUTE FUNCTION refuse()",
    )
    async with raw_subscriber(broker.address, OTHER_GROUP):
        assert (await alarm_of(message_store, "TOPIC_SET_ASIDE")).topic_id == created.topic_id
    # The instance has gone to another broker. Here nobody asks for the topic, and nobody finds out whether it works.
    monkeypatch.setattr(set_aside, "UNTRIED_SECONDS_MAX", 0.0)
    await no_alarm(message_store)


async def test_of_the_topics_in_one_frame_only_that_is_set_aside_that_cannot_be_stored(
    two_topics: ConfigService, broker: Broker, message_store: MessageStore, impatient: MessageCenter
) -> None:
    await refuse_messages(message_store, OTHER_TOPIC)
    mixed = [OutgoingMessage(topic, PAID, str(number)) for number in range(5) for topic in (TOPIC, OTHER_TOPIC)]
    async with MessageCenter(broker.address) as innocent:
        publishing = asyncio.create_task(impatient.publish_many(mixed))
        alarm = await alarm_of(message_store, "TOPIC_SET_ASIDE")
        assert alarm.thing == f"topic {OTHER_TOPIC}"
        receipts = [await innocent.publish(TOPIC, PAID, str(number)) for number in range(20)]
        assert all(isinstance(receipt, Receipt) for receipt in receipts)
        assert [standing.thing for standing in broker.alarms.standing] == [f"topic {OTHER_TOPIC}"]
        await publishing
    await execute(message_store, "DROP TRIGGER odd ON message")
    async with MessageCenter(broker.address, publish_timeout_seconds=60.0) as patient:
        await patient.publish(OTHER_TOPIC, PAID, "now it can")
    await no_alarm(message_store)


async def test_a_topic_that_cannot_be_stored_fails_alone(
    two_topics: ConfigService, broker: Broker, message_store: MessageStore, impatient: MessageCenter
) -> None:
    await refuse_messages(message_store, OTHER_TOPIC)
    async with MessageCenter(broker.address) as innocent:
        waiting = [impatient.publish_soon(OTHER_TOPIC, PAID, str(number)) for number in range(5)]
        answers = await innocent.publish_many([OutgoingMessage(TOPIC, PAID, str(number)) for number in range(2_000)])
        assert all(isinstance(answer, Receipt) for answer in answers)
        alarm = await alarm_of(message_store, "TOPIC_SET_ASIDE")
        assert alarm.thing == f"topic {OTHER_TOPIC}"
        assert "damaged" in alarm.detail
        for answer in waiting:
            with pytest.raises(MessageCenterError):
                await answer

        await execute(message_store, "DROP TRIGGER odd ON message")
        async with MessageCenter(broker.address, publish_timeout_seconds=60.0) as patient:
            await patient.publish(OTHER_TOPIC, PAID, "now it can")
    await no_alarm(message_store)
