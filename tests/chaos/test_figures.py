"""A broker that is killed takes with it what it counted in the last seconds, and not more; and that is known."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Final

import psycopg

from msgbroker.server.figures.usage_writer import MARGIN_US
from msgdb.figures.completeness import SILENT_SECONDS, WRITE_SECONDS, incomplete_minutes
from msgdb.figures.usage import UsageBroker, list_usage_brokers
from msgdb.store import MessageStore
from tests.chaos.load import Load, register
from tests.support.broker_fixtures import StartBrokerProcess
from tests.support.eventually import eventually
from tests.support.figures import published, published_by_the_log, usages

GROUP = "SG_ONE"
_SLOW_SECONDS: Final = 3.0
"""A busy machine may be so late with what is due every ten seconds."""


async def test_what_a_killed_broker_had_counted_is_missing_for_ten_seconds_at_most_and_its_minutes_say_so(
    broker_process: StartBrokerProcess, database_url: str
) -> None:
    await register(database_url, GROUP)
    victim, survivor = broker_process(), broker_process()
    async with MessageStore.open(database_url, pool_size=2) as store:
        async with Load.running([victim.address, survivor.address], [GROUP]) as load:
            begun = {each.broker: each.counted_until for each in await said(store)}
            await load.more(500)
            # Something of it was written once: what follows is what is lost.
            await eventually(lambda: has_gone_on(store, victim.address, begun), 30, what="something counted")
            await load.more(500)
            killed_at = datetime.now(UTC)
            victim.kill()
            await load.more(500)
            await load.finish()
        survivor.terminate()
        assert await asyncio.to_thread(survivor.process.wait, 15) == 0
        counted = await published(store)
        stored = await published_by_the_log(store)
        lost = stored - counted
        brokers = {each.broker: each for each in await said(store)}

        assert brokers[survivor.address].has_ended
        assert not brokers[victim.address].has_ended
        # Nothing that is not in the log was counted, and nothing twice.
        assert counted - stored == Counter()
        since = killed_at - timedelta(seconds=WRITE_SECONDS + MARGIN_US / 1_000_000 + _SLOW_SECONDS)
        assert lost.total() <= stored_between(database_url, since)
        assert brokers[victim.address].counted_until > since
        # Nobody knows before that it does not go on.
        now = killed_at + timedelta(seconds=SILENT_SECONDS + _SLOW_SECONDS)
        found = incomplete_minutes(brokers.values(), (), killed_at - timedelta(hours=1), now, now)
        assert {minute for minute, _, _ in lost} <= set(found)
        assert minute_of(brokers[victim.address].counted_until) in found
        # Acknowledged by the survivor, too, once the leases had passed.
        assert sum(usage.delivered for usage in await usages(store)) > 0


async def said(store: MessageStore) -> list[UsageBroker]:
    async with store.connection() as conn:
        return await list_usage_brokers(conn)


async def has_gone_on(store: MessageStore, address: str, begun: dict[str, datetime]) -> bool:
    return any(each.counted_until > begun[address] for each in await said(store) if each.broker == address)


def stored_between(url: str, since: datetime) -> int:
    with psycopg.connect(url) as connection:
        row = connection.execute("SELECT count(*) FROM message WHERE stored_at > %s", (since,)).fetchone()
    assert row is not None
    return int(row[0])


def minute_of(at: datetime) -> datetime:
    return at.replace(second=0, microsecond=0)
