"""Days: made ahead by any number of brokers, dropped without blocking anyone."""

from __future__ import annotations

import asyncio
from datetime import date, timedelta

from msgdb.day_tables import PARTITIONED
from msgdb.log.partitions import (
    DayPartition,
    detach_partition,
    drop_detached,
    ensure_ahead,
    ensure_for,
    list_partitions,
    today,
)
from msgdb.names import MESSAGE, PUBLISHER_FRAME
from msgdb.postgres.connections import Connection
from msgdb.store import MessageStore
from tests.support.catalogue import describe
from tests.support.rows import make_queue, put_messages
from tests.support.waiting import until_someone_waits_for_a_lock

FAR_DAY = date(2031, 5, 17)


async def days_of(conn: Connection, table: str) -> list[date]:
    return [partition.day for partition in await list_partitions(conn, table)]


async def test_missing_days_are_made_for_all_tables(conn: Connection) -> None:
    made = await ensure_for(conn, FAR_DAY)

    assert made == [f"{table.name}_p20310517" for table in PARTITIONED]
    for table in PARTITIONED:
        assert (await list_partitions(conn, table.name))[-1].day == FAR_DAY


async def test_days_that_stand_are_left_alone(conn: Connection) -> None:
    await ensure_for(conn, FAR_DAY)

    assert await ensure_for(conn, FAR_DAY) == []


async def test_days_are_made_ahead(conn: Connection) -> None:
    first_day = await today(conn)

    await ensure_ahead(conn, 6)

    assert await days_of(conn, MESSAGE) == [first_day + timedelta(days=days) for days in range(-1, 7)]


async def test_brokers_may_make_the_same_day_at_once(store: MessageStore) -> None:
    async def make() -> list[str]:
        async with store.connection() as conn:
            return await ensure_for(conn, FAR_DAY)

    made = await asyncio.gather(*(make() for _ in range(4)))

    assert sorted(len(names) for names in made) == [0, 0, 0, len(PARTITIONED)]


async def test_a_day_is_made_while_a_reader_and_a_writer_have_the_table_open(store: MessageStore) -> None:
    async with store.connection() as conn:
        queue_id = await make_queue(conn)
    async with store.transaction() as open_transaction, store.connection() as conn:
        await put_messages(open_transaction, queue_id, range(1))
        await open_transaction.execute("SELECT count(*) FROM message")

        assert len(await ensure_for(conn, FAR_DAY)) == len(PARTITIONED)


async def test_a_made_day_looks_like_those_of_the_migration(conn: Connection, database_url: str) -> None:
    before = describe(database_url)
    migrated = await _indexes_of(conn, (await list_partitions(conn, MESSAGE))[0].name)
    await ensure_for(conn, FAR_DAY)

    assert await _indexes_of(conn, "message_p20310517") == migrated
    assert len(migrated) == 3
    assert describe(database_url) == before


async def test_a_dropped_day_is_gone_with_its_messages(conn: Connection) -> None:
    queue_id = await make_queue(conn)
    await put_messages(conn, queue_id, range(3), days_ago=1)
    (yesterday, *_) = await list_partitions(conn, MESSAGE)

    await _drop(conn, yesterday)

    assert await days_of(conn, MESSAGE) == (await days_of(conn, PUBLISHER_FRAME))[1:]
    assert await (await conn.execute("SELECT count(*) FROM message")).fetchone() == (0,)


async def test_an_interrupted_drop_is_finished(store: MessageStore) -> None:
    async with store.connection() as conn, store.dedicated_connection() as dropping:
        (oldest, *_) = await list_partitions(conn, MESSAGE)
        async with store.transaction() as reader:
            await reader.execute("SELECT count(*) FROM message")
            drop = asyncio.create_task(_drop(dropping, oldest))
            await until_someone_waits_for_a_lock(conn)
            drop.cancel()
            await asyncio.wait((drop,))

        (interrupted, *_) = await list_partitions(conn, MESSAGE)
        assert (interrupted.name, interrupted.is_detach_pending) == (oldest.name, True)

        await _drop(conn, interrupted)
        assert oldest.day not in await days_of(conn, MESSAGE)


async def test_inserts_go_on_while_a_drop_waits_for_a_reader(store: MessageStore) -> None:
    async with store.connection() as conn:
        queue_id = await make_queue(conn)
        (oldest, *_) = await list_partitions(conn, MESSAGE)
    async with store.connection() as conn, store.dedicated_connection() as dropping:
        async with store.transaction() as reader:
            await reader.execute("SELECT count(*) FROM message")
            drop = asyncio.create_task(_drop(dropping, oldest))
            await until_someone_waits_for_a_lock(conn)

            await conn.execute("SET lock_timeout = '1s'")
            assert len(await put_messages(conn, queue_id, range(3))) == 3
            await conn.execute("RESET lock_timeout")
        await drop


async def test_a_day_that_was_detached_but_not_dropped_is_dropped(conn: Connection) -> None:
    (oldest, *_) = await list_partitions(conn, MESSAGE)
    await conn.execute(f"ALTER TABLE message DETACH PARTITION {oldest.name}".encode())
    (left_over, *_) = await list_partitions(conn, MESSAGE)
    assert (left_over.name, left_over.is_attached) == (oldest.name, False)

    await _drop(conn, left_over)

    assert oldest.day not in await days_of(conn, MESSAGE)


async def _drop(conn: Connection, partition: DayPartition) -> None:
    await detach_partition(conn, partition)
    await drop_detached(conn, partition)


async def _indexes_of(conn: Connection, partition: str) -> list[str]:
    rows = await (
        await conn.execute(
            "SELECT replace(indexdef, tablename, 'day') FROM pg_indexes WHERE tablename = %s ORDER BY 1", (partition,)
        )
    ).fetchall()
    return [row[0] for row in rows]
