"""A database whose defaults are other than everybody's: messages come as they were, and operators see what is so."""

from __future__ import annotations

import secrets
from datetime import UTC, datetime, timedelta

import grpc
import psycopg
import pytest

from confdb.services import ConfigService
from confdb.store import ConfigStore
from msgbroker.v1 import message_pb2, publisher_pb2, publisher_pb2_grpc
from msgdb.reports.alarms import list_alarms
from msgdb.store import MessageStore
from tests.support.broker_fixtures import StartBroker
from tests.support.collecting import PAID, TOPIC, register_group, subscribed
from tests.support.eventually import eventually

ODD = (
    "client_encoding = 'LATIN1'",
    "standard_conforming_strings = off",
    "datestyle = 'German'",
    "intervalstyle = 'iso_8601'",
    "timezone = 'Asia/Kolkata'",
    "bytea_output = 'escape'",
    "extra_float_digits = -15",
    "quote_all_identifiers = on",
    "array_nulls = off",
    "transform_null_equals = on",
    "default_transaction_isolation = 'serializable'",
    "default_transaction_deferrable = on",
)


@pytest.fixture
def odd_database_url(trade: ConfigService, database_url: str) -> str:
    """Return the URL of the test's database, whose defaults are odd from here on."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        for setting in ODD:
            connection.execute(f'ALTER DATABASE "{connection.info.dbname}" SET {setting}')
    return database_url


@pytest.mark.parametrize("pooled", [False, True])
async def test_messages_come_as_they_were_whatever_a_database_is_set_to(
    odd_database_url: str, start_broker: StartBroker, config: ConfigService, *, pooled: bool
) -> None:
    await register_group(config)
    said = message_pb2.Message(
        topic=TOPIC,
        event_code=PAID,
        key="schlüssel-\\-'x",
        headers={"größe": "ü\\\"'"},
        body=b"\\x00\x00\xff'",
    )
    request = publisher_pb2.PublishRequest(messages=[said], publisher_id=secrets.token_bytes(16), sequence=1)
    first = await start_broker(pooled=pooled)
    async with grpc.aio.insecure_channel(first.address) as channel:
        stub = publisher_pb2_grpc.PublisherStub(channel)
        answer = await stub.Publish(request, timeout=30)
        again = await stub.Publish(request, timeout=30)
    await first.shut_down()
    assert again.duplicate
    assert (again.queue_ids, again.queue_offsets) == (answer.queue_ids, answer.queue_offsets)

    # Another one reads it back.
    second = await start_broker(pooled=pooled)
    async with subscribed(second.address) as got:
        await eventually(lambda: got.messages)
    (one,) = got.messages
    assert (one.key, dict(one.headers), one.body) == (said.key, dict(said.headers), said.body)


async def test_operators_see_the_times_whatever_a_database_is_set_to(
    odd_database_url: str, start_broker: StartBroker
) -> None:
    await start_broker()
    async with MessageStore.open(odd_database_url) as store, store.connection() as conn:
        await conn.execute(
            "INSERT INTO alarm (broker_id, broker, kind, thing, detail) VALUES (gen_random_uuid(), '', 'K', %s, '')",
            ("größe",),
        )
        (alarm,) = await list_alarms(conn)
    async with ConfigStore.open(odd_database_url) as config_store:
        service = ConfigService(config_store, "test")
        topic = await service.topics.get("default", TOPIC)
        (broker,) = await service.list_brokers()

    assert alarm.thing == "größe"
    for time in (alarm.raised_at, topic.created_at, broker.heartbeat_at):
        assert abs(time - datetime.now(UTC)) < timedelta(minutes=5)
