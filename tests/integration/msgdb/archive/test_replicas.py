"""Replicas: a closed day is read from one that has all of it, and from no other."""

from __future__ import annotations

import asyncio

import psycopg
import pytest

from msgbroker.contract.errors import ReplicaBehindError, ReplicaDiffersError
from msgdb.archive.closing import close_day
from msgdb.archive.records import ArchiveRun, ClosedDay
from msgdb.archive.replicas import wait_for_replay
from msgdb.log.reads import read_range
from msgdb.postgres.connections import Connection, ConnectionConfig, connect
from tests.support.archive_runs import claim_day, days_ago, put_on
from tests.support.eventually import eventually
from tests.support.replicated_postgres import ReplicatedPostgres

DAY = days_ago(1)


async def open_to(url: str) -> Connection:
    return await connect(ConnectionConfig(url))


async def closed_day(primary: Connection) -> tuple[ArchiveRun, ClosedDay]:
    await put_on(primary, 7, range(100), DAY)
    run = await claim_day(primary, DAY)
    return run, await close_day(primary, run)


def pause_replay(replicated: ReplicatedPostgres) -> psycopg.Connection[tuple[object, ...]]:
    standby = psycopg.connect(replicated.standby.url("center"), autocommit=True)
    standby.execute("SELECT pg_wal_replay_pause()")
    return standby


async def test_a_replica_that_lags_is_read_once_it_has_replayed_what_was_closed(
    replicated: ReplicatedPostgres,
) -> None:
    primary, replica = await open_to(replicated.primary_url), await open_to(replicated.standby.url("center"))
    with pause_replay(replicated) as standby:
        state = "SELECT pg_get_wal_replay_pause_state()"
        await eventually(lambda: standby.execute(state).fetchone() == ("paused",))
        run, closed = await closed_day(primary)
        with pytest.raises(ReplicaBehindError, match="bytes of the write-ahead log") as caught:
            await wait_for_replay(replica, run, closed, wait_seconds=0)
        assert caught.value.retryable

        waiting = asyncio.create_task(wait_for_replay(replica, run, closed, wait_seconds=30))
        await eventually(lambda: looks(standby, replica), what="a look at the run")
        assert not waiting.done()
        standby.execute("SELECT pg_wal_replay_resume()")
        await waiting

    assert len(await read_range(replica, 7, 0, 1_000, 1 << 30)) == 100
    await primary.close()
    await replica.close()


def looks(standby: psycopg.Connection[tuple[object, ...]], replica: Connection) -> bool:
    query = "SELECT query FROM pg_stat_activity WHERE pid = %s"
    row = standby.execute(query, (replica.info.backend_pid,)).fetchone()
    return row is not None and "archive_run" in str(row[0])


async def test_the_primary_itself_is_read_at_once(replicated: ReplicatedPostgres) -> None:
    primary = await open_to(replicated.primary_url)
    run, closed = await closed_day(primary)

    await wait_for_replay(primary, run, closed, wait_seconds=0)

    await primary.close()


async def test_a_replica_that_was_promoted_is_refused_though_it_has_all(replicated: ReplicatedPostgres) -> None:
    primary = await open_to(replicated.primary_url)
    run, closed = await closed_day(primary)
    replicated.wait_until_followed()
    replicated.promote()
    promoted = await open_to(replicated.standby.url("center"))

    with pytest.raises(ReplicaDiffersError) as caught:
        await wait_for_replay(promoted, run, closed, wait_seconds=0)

    assert caught.value.expected == closed.timeline
    assert caught.value.timeline.endswith("/00000002")
    await primary.close()
    await promoted.close()


async def test_a_replica_of_another_database_is_refused(replicated: ReplicatedPostgres, conn: Connection) -> None:
    primary = await open_to(replicated.primary_url)
    run, closed = await closed_day(primary)

    with pytest.raises(ReplicaDiffersError):
        await wait_for_replay(conn, run, closed, wait_seconds=0)

    await primary.close()


async def test_a_replica_of_a_day_that_was_closed_on_a_later_timeline_is_behind(
    replicated: ReplicatedPostgres,
) -> None:
    # What a standby is on before it follows a promotion.
    primary, replica = await open_to(replicated.primary_url), await open_to(replicated.standby.url("center"))
    run, closed = await closed_day(primary)
    cluster = closed.timeline.partition("/")[0]
    later = ClosedDay(closed.ranges, closed.partition, f"{cluster}/00000002", closed.closed_at, "0/0")

    with pytest.raises(ReplicaBehindError, match="the day was closed on"):
        await wait_for_replay(replica, run, later, wait_seconds=0)
    with pytest.raises(ReplicaDiffersError):
        await wait_for_replay(primary, run, later, wait_seconds=0)

    await primary.close()
    await replica.close()
