"""A damaged page that the newest message of a queue is on, where every look at the queue's end ends."""

from __future__ import annotations

import os
import time
from pathlib import Path

import psycopg
import pytest

from msgbroker.client import MessageCenter, OutgoingMessage
from msgbroker.contract.errors import StoreUnavailableError
from msgbroker.server.app import Broker
from msgdb.postgres.failures import RowsHeldError
from msgdb.reports.alarms import AlarmKind
from msgdb.store import MessageStore
from tests.support.broker_fixtures import StartBroker
from tests.support.collecting import (
    PAID,
    TOPIC,
    Collected,
    open_config,
    register_group,
    register_topic,
    subscribed,
)
from tests.support.eventually import eventually
from tests.support.own_postgres import OwnPostgres

OTHER_TOPIC = "TP_OTHER"
OTHER_GROUP = "SG_OTHER"
_PAGE = 8192


def dead_parts(broker: Broker) -> list[str]:
    return [repr(task.exception()) for task in broker._running if task.done()]


def set_aside(broker: Broker) -> list[str]:
    return [alarm.thing for alarm in broker.alarms.standing if alarm.kind == AlarmKind.LANE_SET_ASIDE]


def damage_the_end_of(postgres: OwnPostgres, topic: str) -> Path:
    """Put noise into the heap page of the newest message of *topic*, and of no other topic's message."""
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute("CHECKPOINT")
        row = connection.execute(
            "SELECT pg_relation_filepath(tableoid), (ctid::text::point)[0]::int FROM message WHERE topic = %s"
            " ORDER BY queue_offset DESC LIMIT 1",
            (topic,),
        ).fetchone()
        assert row is not None
        others = connection.execute(
            "SELECT count(*) FROM message WHERE topic <> %s AND (ctid::text::point)[0]::int = %s", (topic, row[1])
        ).fetchone()
        assert others == (0,), "the damage is this topic's alone"
    path = postgres.data / str(row[0])
    postgres.stop()
    with path.open("r+b") as file:
        file.seek(row[1] * _PAGE)
        file.write(os.urandom(_PAGE))
    postgres.start_again()
    return path


async def publish(address: str, topic: str, count: int) -> None:
    async with MessageCenter(address) as center:
        await center.publish_many([OutgoingMessage(topic, PAID, os.urandom(1_500)) for _ in range(count)])


async def test_a_queue_whose_end_cannot_be_read_ends_no_broker_that_claims_it(
    own_postgres: OwnPostgres, start_broker: StartBroker
) -> None:
    url = own_postgres.url
    async with open_config(url) as config:
        for topic, group in ((TOPIC, "SG_POINTS"), (OTHER_TOPIC, OTHER_GROUP)):
            await register_topic(config, topic, queue_count=1)
            await register_group(config, group, topic=topic)
    broker = await start_broker(msgdb_url=url, confdb_url=url)
    await publish(broker.address, TOPIC, 50)
    # Behind the page that is damaged: what is stored next goes to another one.
    await publish(broker.address, OTHER_TOPIC, 20)
    damage_the_end_of(own_postgres, TOPIC)
    await eventually(lambda: not dead_parts(broker), what="an outage, survived")
    broker.hub.cache._tail.forget()

    async with subscribed(broker.address, OTHER_GROUP, topic=OTHER_TOPIC) as others:
        await others_until(others, 20)
        async with subscribed(broker.address, "SG_POINTS"):
            await eventually(lambda: set_aside(broker) or dead_parts(broker), 20, what="the alarm, or the end")
            ended = dead_parts(broker)
            broker._stop.set()
            assert not ended, "the owner has ended, and so will the next one"


async def others_until(others: Collected, count: int) -> None:
    await eventually(lambda: len(others.messages) >= count, 15, what=f"{count} messages of the other group")


async def test_a_table_that_is_held_is_an_outage_and_not_asked_for_queue_by_queue(
    broker: Broker, database_url: str
) -> None:
    with psycopg.connect(database_url) as holder:
        holder.execute("LOCK TABLE message IN ACCESS EXCLUSIVE MODE")
        started_at = time.monotonic()
        with pytest.raises(StoreUnavailableError) as raised:
            await broker.hub.cache.refresh_ends(range(1, 65))
        seconds = time.monotonic() - started_at

    assert not isinstance(raised.value, RowsHeldError), "then it would be tried with half of them, and so on"
    assert seconds < 5


async def test_a_queue_whose_end_cannot_be_read_keeps_no_other_queue_from_being_polled(
    own_postgres: OwnPostgres, start_broker: StartBroker
) -> None:
    # Behind a pooler there is no NOTIFY: what other brokers store is found by the poll alone.
    url = own_postgres.url
    async with open_config(url) as config, MessageStore.open(url):
        for topic, group in ((TOPIC, "SG_POINTS"), (OTHER_TOPIC, OTHER_GROUP)):
            await register_topic(config, topic, queue_count=1)
            await register_group(config, group, topic=topic)
    settings = {"msgdb_url": url, "confdb_url": url, "pooled": True, "lease_seconds": 30.0}
    owner, other = [await start_broker(**settings) for _ in range(2)]
    async with (
        subscribed(owner.address, OTHER_GROUP, topic=OTHER_TOPIC) as others,
        subscribed(owner.address, "SG_POINTS") as points,
    ):
        await publish(other.address, TOPIC, 50)
        await others_until(points, 50)
        # Behind the page that is damaged: what is stored next goes to another one.
        await publish(other.address, OTHER_TOPIC, 20)
        await others_until(others, 20)
        damage_the_end_of(own_postgres, TOPIC)
        await eventually(lambda: set_aside(owner) or dead_parts(owner), 20, what="the alarm, or the end")
        assert not dead_parts(owner)

        await publish(other.address, OTHER_TOPIC, 1)
        await others_until(others, 21)
