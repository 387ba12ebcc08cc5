"""Reads of the log."""

from __future__ import annotations

from datetime import datetime, timedelta
from uuid import UUID

import pytest

from msgdb.log.reads import first_offsets, next_offsets, offset_at_time, read_offsets, read_range
from msgdb.postgres.binary_rows import datetime_of
from msgdb.postgres.connections import Connection
from tests.support.rows import make_queue, put_messages


async def test_a_row_comes_back_as_it_was_stored(conn: Connection) -> None:
    queue_id = await make_queue(conn)
    await put_messages(conn, queue_id, range(1), body_bytes=3)
    stored = await (await conn.execute("SELECT stored_at, message_id, born_at FROM message")).fetchone()
    assert stored is not None

    (row,) = await read_range(conn, queue_id, 0, 10, 1_000)

    assert (row.queue_id, row.queue_offset, row.namespace, row.topic) == (queue_id, 0, "default", "TP_TRADE")
    assert (row.event_code, row.key, row.ordering_key) == ("EC_PAID", "key-0", None)
    assert (row.headers, row.body, row.stress) == ({"region": "hz"}, b"xxx", False)
    assert (row.born_host, row.publisher_group, row.target_group, row.redrives) == ("host", "PG_SHOP", None, 0)
    assert datetime_of(row.stored_at_us) == stored[0]
    assert UUID(bytes=row.message_id) == stored[1]
    assert datetime_of(row.born_at_us) == stored[2]


async def test_a_range_goes_over_days_in_order(conn: Connection) -> None:
    queue_id = await make_queue(conn)
    for days_ago in (2, 1, 0):
        await put_messages(conn, queue_id, range(10 * (2 - days_ago), 10 * (3 - days_ago)), days_ago=days_ago)

    rows = await read_range(conn, queue_id, 5, 20, 1 << 20)

    assert [row.queue_offset for row in rows] == list(range(5, 25))


async def test_a_range_ends_before_the_message_that_would_be_too_much(conn: Connection) -> None:
    queue_id = await make_queue(conn)
    await put_messages(conn, queue_id, range(10), body_bytes=100)

    assert len(await read_range(conn, queue_id, 0, 10, 350)) == 3
    assert len(await read_range(conn, queue_id, 0, 10, 300)) == 3


async def test_a_single_message_over_the_budget_is_read_alone(conn: Connection) -> None:
    queue_id = await make_queue(conn)
    await put_messages(conn, queue_id, range(3), body_bytes=100)

    assert [row.queue_offset for row in await read_range(conn, queue_id, 1, 10, 50)] == [1]


async def test_a_range_of_another_queue_is_not_read(conn: Connection) -> None:
    queue_id, other = await make_queue(conn, 1), await make_queue(conn, 2)
    await put_messages(conn, queue_id, range(3))

    assert await read_range(conn, other, 0, 10, 1_000) == []


async def test_a_message_is_not_read_before_its_commit(conn: Connection, database_url: str) -> None:
    import psycopg

    queue_id = await make_queue(conn)
    writer = await psycopg.AsyncConnection.connect(database_url)
    try:
        await put_messages(writer, queue_id, range(1))
        assert await read_range(conn, queue_id, 0, 10, 1_000) == []

        await writer.commit()
        assert len(await read_range(conn, queue_id, 0, 10, 1_000)) == 1
    finally:
        await writer.close()


async def test_single_offsets_are_read_where_they_were_stored(conn: Connection) -> None:
    queue_id = await make_queue(conn)
    rows = [
        *await put_messages(conn, queue_id, range(5), days_ago=1),
        *await put_messages(conn, queue_id, range(5, 10)),
    ]
    wanted = [(rows[7].queue_offset, rows[7].stored_at_us), (rows[2].queue_offset, rows[2].stored_at_us)]
    gone = (99, rows[0].stored_at_us)

    assert await read_offsets(conn, queue_id, [*wanted, gone], 1_000) == ([rows[2], rows[7]], [])


@pytest.mark.parametrize("bytes_max, count", [(1_000, 4), (399, 3), (300, 3), (50, 1)])
async def test_of_single_offsets_those_are_named_that_would_be_too_many_bytes(
    conn: Connection, bytes_max: int, count: int
) -> None:
    queue_id = await make_queue(conn)
    rows = await put_messages(conn, queue_id, range(4), body_bytes=100)
    gone = (99, rows[0].stored_at_us)
    wanted = [(row.queue_offset, row.stored_at_us) for row in rows]

    read = await read_offsets(conn, queue_id, [gone, *wanted], bytes_max)

    assert read == (rows[:count], [row.queue_offset for row in rows[count:]])


async def test_the_next_offset_follows_the_last_message(conn: Connection) -> None:
    full, empty = await make_queue(conn, 1), await make_queue(conn, 2)
    await put_messages(conn, full, range(5), days_ago=1)
    await put_messages(conn, full, range(5, 8))

    assert await next_offsets(conn, [full, empty, 999]) == {full: 8, empty: 0}


async def test_offsets_go_on_after_all_days_were_dropped(conn: Connection) -> None:
    queue_id = await make_queue(conn)
    await conn.execute("UPDATE queue SET start_offset = 42")

    assert await next_offsets(conn, [queue_id]) == {queue_id: 42}
    assert await first_offsets(conn, [queue_id]) == {queue_id: 42}


async def test_the_offset_for_a_time_is_that_of_the_first_message_not_before_it(conn: Connection) -> None:
    queue_id = await make_queue(conn)
    for days_ago, offsets in ((2, range(10)), (1, range(10, 15)), (0, range(15, 40))):
        await put_messages(conn, queue_id, offsets, days_ago=days_ago)
    yesterday = (await read_range(conn, queue_id, 10, 1, 1_000))[0].stored_at_us

    assert await offset_at_time(conn, queue_id, yesterday) == 10
    assert await offset_at_time(conn, queue_id, yesterday - 1) == 10
    assert await offset_at_time(conn, queue_id, yesterday + 1) == 15
    assert await offset_at_time(conn, queue_id, 0) == 0
    assert await offset_at_time(conn, queue_id, 1 << 62) == 40


def test_times_are_exact_to_the_microsecond() -> None:
    time_us = 1_794_476_419_357_233

    moment = datetime_of(time_us)

    assert (moment - datetime_of(0)) // timedelta(microseconds=1) == time_us
    assert isinstance(moment, datetime)
