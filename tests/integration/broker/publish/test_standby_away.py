"""A synchronous standby that is away: nothing new is acknowledged, and what is stored goes on being delivered."""

from __future__ import annotations

import psycopg

from msgbroker.client import MessageCenter, OutgoingMessage, Receipt
from tests.support.broker_fixtures import StartBroker
from tests.support.collecting import PAID, TOPIC, open_config, register_group, register_topic, subscribed
from tests.support.eventually import eventually
from tests.support.replicated_postgres import ReplicatedPostgres


async def test_leases_are_renewed_and_progress_is_kept_without_the_standby(
    synchronous: ReplicatedPostgres, start_broker: StartBroker
) -> None:
    url = synchronous.primary_url
    brokers = [await start_broker(msgdb_url=url, confdb_url=url) for _ in range(2)]
    async with open_config(url) as config:
        await register_topic(config)
        await register_group(config)
    async with MessageCenter(brokers[0].address) as center:
        await center.publish_many([OutgoingMessage(TOPIC, PAID, str(number)) for number in range(100)])
    synchronous.take_standby_away()
    with psycopg.connect(url, autocommit=True) as connection:

        def leases() -> set[object]:
            return {row[0] for row in connection.execute("SELECT lease_until FROM cursor").fetchall()}

        async with subscribed(brokers[0].address) as one, subscribed(brokers[1].address) as other:
            await eventually(lambda: len(one.messages) + len(other.messages) == 100, 20, what="all that is stored")
            before = leases()
            await eventually(lambda: before and leases().isdisjoint(before), 20, what="renewed leases")
            row = connection.execute("SELECT sum(acked_offset) FROM cursor").fetchone()
            await eventually(lambda: row is not None and _acked(connection) == 100, 20, what="progress, persisted")
            heartbeats = connection.execute("SELECT max(heartbeat_at) FROM broker").fetchone()
            await eventually(
                lambda: connection.execute("SELECT max(heartbeat_at) FROM broker").fetchone() != heartbeats,
                what="another heartbeat",
            )
            assert len(one.messages) + len(other.messages) == 100, "nothing comes twice"

            async with MessageCenter(brokers[0].address) as center:
                waiting = center.publish_soon(TOPIC, PAID, "new")
                await eventually(lambda: _waits_for_standby(connection), what="a commit that waits")
                assert not waiting.done()
                synchronous.bring_standby_back()
                assert isinstance(await waiting, Receipt)


def _acked(connection: psycopg.Connection[tuple[object, ...]]) -> int:
    row = connection.execute("SELECT sum(acked_offset)::bigint FROM cursor").fetchone()
    assert row is not None
    return int(str(row[0]))


def _waits_for_standby(connection: psycopg.Connection[tuple[object, ...]]) -> bool:
    rows = connection.execute("SELECT 1 FROM pg_stat_activity WHERE wait_event = 'SyncRep'").fetchall()
    return len(rows) > 0
