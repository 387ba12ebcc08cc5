"""Events are written as they are given, and found for one message by its place in the log."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import uuid4

import psycopg
import pytest

from msgdb.postgres.binary_rows import datetime_of
from msgdb.postgres.connections import Connection
from msgdb.store import MessageStore
from msgdb.trace.reading import (
    LeftOut,
    first_traced_day,
    list_events,
    list_ids_of_key,
    list_left_out,
)
from msgdb.trace.records import RANGE_MAX, TraceEvent
from msgdb.trace.writing import now_us, write_events

QUEUE = 3


async def write(store: MessageStore, *events: TraceEvent) -> None:
    async with store.transaction() as conn:
        await write_events(conn, events)


def event(at_us: int, first: int, last: int, kind: str = "ACKED", queue_id: int = QUEUE) -> TraceEvent:
    return TraceEvent(at_us, kind, "host:1", queue_id, first, last, 7, "a", 2, at_us - 5, 'say "no" \\ {,} äé', None)


async def test_an_event_is_read_as_it_was_written(store: MessageStore, conn: Connection) -> None:
    at_us = await now_us(conn)
    whole = event(at_us, 10, 19)
    bare = TraceEvent(at_us + 1, "STORED", "host:1", QUEUE, 12, 12)
    await write(store, whole, bare)

    assert await list_events(conn, QUEUE, 12, at_us - 10, 100) == [whole, bare]


async def test_events_of_other_messages_queues_and_times_are_not_its_own(store: MessageStore, conn: Connection) -> None:
    at_us = await now_us(conn)
    longest = event(at_us, 500, 500 + RANGE_MAX - 1)
    await write(
        store,
        longest,
        event(at_us, 500 + RANGE_MAX, 500 + RANGE_MAX),
        event(at_us, 490, 500 + RANGE_MAX - 2),
        event(at_us, 500, 500 + RANGE_MAX, queue_id=QUEUE + 1),
        # Of a message that lay there in a former history of the store.
        event(at_us - 60_000_000, 500 + RANGE_MAX - 1, 500 + RANGE_MAX - 1),
    )

    assert await list_events(conn, QUEUE, 500 + RANGE_MAX - 1, at_us - 1_000, 100) == [longest]


async def test_only_so_many_are_read(store: MessageStore, conn: Connection) -> None:
    at_us = await now_us(conn)
    await write(store, *(event(at_us + number, 1, 1) for number in range(5)))

    found = await list_events(conn, QUEUE, 1, at_us, 3)

    assert [each.at_us - at_us for each in found] == [0, 1, 2]


async def test_a_day_without_a_partition_is_told(store: MessageStore, conn: Connection) -> None:
    with pytest.raises(psycopg.errors.CheckViolation):
        await write(store, event(await now_us(conn) + 30 * 86_400_000_000, 1, 1))


async def test_to_write_waits_for_no_disk(store: MessageStore, conn: Connection) -> None:
    async with store.transaction() as writing:
        await write_events(writing, [event(await now_us(conn), 1, 1)])
        row = await (await writing.execute("SHOW synchronous_commit")).fetchone()
    after = await (await conn.execute("SHOW synchronous_commit")).fetchone()

    assert row == ("off",)
    assert after != row


async def test_what_was_left_out_in_a_time_is_summed_up_for_each_broker(store: MessageStore, conn: Connection) -> None:
    at_us = await now_us(conn)

    def left_out(broker: str, first: int, last: int, count: int) -> TraceEvent:
        return TraceEvent(at_us + last, "LEFT_OUT", broker, 0, 0, 0, handed_at_us=at_us + first, left_out=count)

    second = 1_000_000
    await write(
        store,
        left_out("a:1", -9 * second, -8 * second, 1),
        left_out("a:1", -5 * second, -1 * second, 10),
        left_out("a:1", 0, second, 100),
        left_out("b:1", 0, second, 1_000),
    )

    found = await list_left_out(conn, datetime_of(at_us - 3 * second), datetime_of(at_us + 9 * second))

    assert found == [
        LeftOut("a:1", 110, at_us - 5 * second, at_us + second),
        LeftOut("b:1", 1_000, at_us, at_us + second),
    ]


async def test_messages_of_a_key_are_found_by_what_their_publishers_stored(conn: Connection) -> None:
    message_id, other = uuid4(), uuid4()
    stored_at = datetime.now(UTC)
    rows = [
        (1, 5, 0, message_id, None, 0),
        (1, 6, 60, message_id, 7, 1),
        (2, 5, 30, message_id, 7, 0),
        (2, 6, 9, other, None, 0),
    ]
    for queue_id, offset, seconds, each, target, redrives in rows:
        await conn.execute(
            "INSERT INTO message (queue_id, queue_offset, stored_at, message_id, namespace, topic, event_code, key,"
            " body, born_at, stress, target_group, redrives)"
            " VALUES (%s, %s, %s, %s, 'default', 'TP', 'EC', 'k', '', now(), false, %s, %s)",
            (queue_id, offset, stored_at + timedelta(milliseconds=seconds), each, target, redrives),
        )

    assert await list_ids_of_key(conn, "default", "TP", "k", 10) == [other, message_id]
    assert await list_ids_of_key(conn, "other", "TP", "k", 10) == []


async def test_the_first_day_of_which_events_are_kept_is_known(conn: Connection) -> None:
    day = await first_traced_day(conn)

    assert day is not None
    assert timedelta() <= datetime.now(UTC).date() - day <= timedelta(days=2)
