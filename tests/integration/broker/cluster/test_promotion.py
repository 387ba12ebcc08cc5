"""A standby that is promoted: what is acknowledged from then on is stored there, and delivered, all of it, once."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import psycopg
import pytest

from msgbroker.client import MessageCenter, OutgoingMessage, Receipt
from msgbroker.contract.errors import StoreUnavailableError
from msgdb.append.plan import Stored
from msgdb.log.queues import list_queues
from msgdb.postgres.connections import Connection
from msgdb.store import MessageStore
from tests.support.appending import frame, message, new_publisher, open_appender
from tests.support.broker_fixtures import StartBroker, StartBrokerProcess
from tests.support.broker_processes import BrokerProcess
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
from tests.support.relay import Relay
from tests.support.replicated_postgres import ReplicatedPostgres

OLD, LOST, NEW = 50, 50, 100


async def publish(address: str, name: str, count: int) -> list[str]:
    bodies = [f"{name} {number}" for number in range(count)]
    async with MessageCenter(address) as center:
        answers = await center.publish_many([OutgoingMessage(TOPIC, PAID, body) for body in bodies])
    assert all(isinstance(answer, Receipt) for answer in answers), answers
    return bodies


async def cursor_at(conn: Connection) -> int:
    row = await (await conn.execute("SELECT max(acked_offset) FROM cursor")).fetchone()
    assert row is not None
    return int(row[0] or 0)


async def lose_the_end(replicated: ReplicatedPostgres, brokers: list[BrokerProcess], got: Collected) -> None:
    """Deliver messages, lose the last of them with their primary, and let the log grow beyond where it was.

    All before a broker looks.
    """
    await got.until(len(await publish(brokers[0].address, "old", OLD)))
    with psycopg.connect(replicated.primary_url, autocommit=True) as connection:
        # Not blocking: what was got is still to be acknowledged, by this very loop.
        await eventually(
            lambda: connection.execute("SELECT 1 FROM cursor WHERE acked_offset = %s", (OLD,)).fetchone(),
            what="the cursor behind what was delivered",
        )
    replicated.wait_until_followed()
    replicated.take_standby_away()
    await got.until(OLD + len(await publish(brokers[0].address, "lost", LOST)))
    for broker in brokers:
        broker.freeze()
    replicated.fail_over()
    async with MessageStore.open(replicated.url) as store, open_appender(store) as appender:
        async with store.connection() as conn:
            (queue,) = await list_queues(conn)
        messages = [message(queue.queue_id, f"new {number}") for number in range(NEW)]
        (result,) = await appender.append([frame(new_publisher(), 1, messages)])
        assert isinstance(result, Stored)
        assert list(result.outcome.queue_offsets) == list(range(OLD, OLD + NEW))
    for broker in brokers:
        broker.thaw()


@pytest.mark.parametrize("lease_seconds", [3, 60])
async def test_what_is_stored_at_offsets_that_were_lost_is_delivered_though_the_log_is_longer_again(
    replicated: ReplicatedPostgres, broker_process: StartBrokerProcess, lease_seconds: int
) -> None:
    async with open_config(replicated.primary_url) as config:
        broker = broker_process(url=replicated.url, lease_seconds=lease_seconds)
        assert broker.address
        await register_topic(config, queue_count=1)
        await register_group(config)
    async with subscribed(broker.address) as got:
        await lose_the_end(replicated, [broker], got)
        new = {f"new {number}" for number in range(NEW)}
        await eventually(lambda: new <= set(got.bodies), 30, what="what was stored after the loss")
        more = await publish(broker.address, "more", 20)
        await eventually(lambda: set(more) <= set(got.bodies), what="what is published now")

    after = [body for body in got.bodies if not body.startswith(("old", "lost"))]
    assert len(after) == len(set(after)) == NEW + len(more)
    assert "store.history_changed" in broker.log
    async with MessageStore.open(replicated.url) as store, store.connection() as conn:
        await eventually(lambda: _is_at(conn, OLD + NEW + len(more)), what="the cursor at the end")


async def _is_at(conn: Connection, offset: int) -> bool:
    return await cursor_at(conn) == offset


async def test_after_a_promotion_no_broker_takes_what_another_may_still_serve(
    replicated: ReplicatedPostgres, broker_process: StartBrokerProcess
) -> None:
    async with open_config(replicated.primary_url) as config:
        owner = broker_process(url=replicated.url, lease_seconds=20)
        assert owner.address
        await register_topic(config, queue_count=1)
        await register_group(config)
    async with subscribed(owner.address, instance_id="owner") as got:
        await got.until(len(await publish(owner.address, "old", 10)))
        replicated.wait_until_followed()
        # From here on the standby does not hear that the lease is renewed.
        replicated.take_standby_away()
        owner.freeze()
        replicated.fail_over()
        with psycopg.connect(replicated.url, autocommit=True) as connection:
            # As if it had missed more of the renewals.
            connection.execute("UPDATE cursor SET lease_until = now() - interval '1 second'")
        other = broker_process(url=replicated.url, lease_seconds=20)
        async with subscribed(other.address, instance_id="other"):
            async with MessageStore.open(replicated.url) as store, store.connection() as conn:
                owners = "SELECT count(DISTINCT owner) FROM cursor WHERE epoch > 1"
                await eventually(lambda: _has_instance(connection_url=replicated.url, address=other.address))
                row = await (await conn.execute(owners)).fetchone()
                assert row == (0,), "it was taken while its owner may still serve it"
            owner.thaw()


async def test_nothing_is_acknowledged_in_the_former_history_though_its_primary_is_alive(
    replicated: ReplicatedPostgres, start_broker: StartBroker
) -> None:
    async with open_config(replicated.primary_url) as config:
        await register_topic(config)
    async with Relay.to(replicated.primary_url) as relay:
        broker = await start_broker(msgdb_url=relay.url, confdb_url=replicated.primary_url)
        store = broker.cluster.ownership._claims._store
        first = store.history
        async with MessageCenter(broker.address) as center:
            # The connection that appends stands from here on.
            await center.publish(TOPIC, PAID, "before")
            await asyncio.to_thread(replicated.wait_until_followed)
            await asyncio.to_thread(replicated.promote)
            relay.lead_to(replicated.standby.url("center"))
            # As when one of the broker's own is lost, and opened again. It may have met the new history by itself.
            with suppress(StoreUnavailableError):
                await (await store.connect_dedicated()).close()
            assert store.history.history_id != first.history_id

            await center.publish(TOPIC, PAID, "after")

    with psycopg.connect(replicated.standby.url("center"), autocommit=True) as connection:
        assert connection.execute("SELECT 1 FROM message WHERE body = 'after'").fetchone(), "it is lost"


async def _has_instance(connection_url: str, address: str) -> bool:
    """Return whether a broker has beaten with an instance: it has had its chance to claim by then."""
    async with MessageStore.open(connection_url) as store, store.connection() as conn:
        row = await (await conn.execute("SELECT groups <> '{}' FROM broker WHERE address = %s", (address,))).fetchone()
    return row == (True,)
