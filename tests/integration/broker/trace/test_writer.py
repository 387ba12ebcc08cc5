"""Writing what was traced: what the store does not take is left out and counted, and nobody waits for it."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from confdb.services import ConfigService
from msgbroker.client import MessageCenter
from msgbroker.server import clock
from msgbroker.server.app import Broker
from msgbroker.server.trace.buffer import Noted, TraceBuffer
from msgbroker.server.trace.writer import CHUNK_EVENTS, TraceWriter
from msgdb.store import MessageStore
from msgdb.trace.records import TraceKind
from tests.support.collecting import GROUP, PAID, TOPIC, all_settled, register_group, subscribed
from tests.support.own_postgres import OwnPostgres
from tests.support.traces import all_events, of_kinds

BROKER = "host:1"


def failure(offset: int, at: float | None = None) -> Noted:
    return Noted(TraceKind.REJECTED, 3, offset, offset, clock.now() if at is None else at, group_id=7, detail="a\0b")


async def test_what_happened_is_told_by_the_clock_of_the_database(message_store: MessageStore) -> None:
    # A clock that says anything.
    buffer = TraceBuffer(now=lambda: 50.0)
    writer = TraceWriter(buffer, message_store, BROKER)
    buffer.note(Noted(TraceKind.ACKED, 3, 1, 1, 40.0, handed_at=38.5))

    assert await writer.write_once()

    (event,) = await all_events(message_store)
    assert event.handed_at_us is not None
    assert event.at_us - event.handed_at_us == 1_500_000
    ago = datetime.now(UTC).timestamp() - event.at_us / 1e6
    assert 9 < ago < 15


async def test_more_than_goes_at_once_is_written_in_turns(message_store: MessageStore) -> None:
    buffer = TraceBuffer()
    for offset in range(0, 2 * CHUNK_EVENTS + 10, 2):
        buffer.note(failure(offset))

    assert await TraceWriter(buffer, message_store, BROKER).write_once()

    events = await all_events(message_store)
    assert [event.first_offset for event in events] == list(range(0, 2 * CHUNK_EVENTS + 10, 2))
    assert {event.detail for event in events} == {"a\N{REPLACEMENT CHARACTER}b"}
    assert len(buffer) == 0


async def test_what_was_left_out_is_told_once(message_store: MessageStore) -> None:
    buffer = TraceBuffer(failures_per_second_max=1)
    writer = TraceWriter(buffer, message_store, BROKER)
    now = clock.now()
    for offset in (0, 2, 4):
        buffer.note_failure(failure(offset, now))

    await writer.write_once()
    await writer.write_once()

    (told,) = of_kinds(await all_events(message_store), "LEFT_OUT")
    assert (told.left_out, told.queue_id, told.detail) == (
        2,
        0,
        "more failures of a kind than are noted in a second: 2",
    )
    assert told.handed_at_us is not None
    assert told.handed_at_us <= told.at_us


async def test_a_day_that_is_missing_is_made(message_store: MessageStore) -> None:
    day = datetime.now(UTC).date()
    async with message_store.connection() as conn:
        await conn.execute(f"DROP TABLE trace_event_p{day:%Y%m%d}")
        await conn.execute(f"DROP TABLE trace_event_p{day + timedelta(days=1):%Y%m%d}")
    buffer = TraceBuffer()
    buffer.note(failure(1))

    assert await TraceWriter(buffer, message_store, BROKER).write_once()

    assert len(await all_events(message_store)) == 1


async def test_a_batch_that_is_not_taken_is_left_out_and_those_before_it_are_there(message_store: MessageStore) -> None:
    async with message_store.connection() as conn:
        await conn.execute("ALTER TABLE trace_event ADD CONSTRAINT odd CHECK (first_offset <> 601)")
    buffer = TraceBuffer()
    writer = TraceWriter(buffer, message_store, BROKER)
    for offset in range(0, 4 * CHUNK_EVENTS, 2):
        buffer.note(failure(offset))
    buffer._noted[CHUNK_EVENTS + 5] = failure(601)

    with pytest.raises(psycopg.errors.CheckViolation):
        await writer.write_once()
    buffer.note(failure(1))
    await writer.write_once()

    events = await all_events(message_store)
    assert len(of_kinds(events, "REJECTED")) == CHUNK_EVENTS + 1
    (told,) = of_kinds(events, "LEFT_OUT")
    assert told.left_out is not None
    assert told.left_out >= CHUNK_EVENTS


async def test_while_the_store_is_away_what_was_noted_waits_and_what_does_not_fit_is_counted(
    own_postgres: OwnPostgres,
) -> None:
    buffer = TraceBuffer(events_max=2)
    async with MessageStore.open(own_postgres.url, pool_size=1) as store:
        writer = TraceWriter(buffer, store, BROKER)
        own_postgres.kill()
        for offset in (0, 2, 4, 6):
            buffer.note(failure(offset))

        assert not await writer.write_once()

        own_postgres.start_again()
        while not await writer.write_once():
            await asyncio.sleep(0.05)
        events = await all_events(store)

    assert [event.first_offset for event in of_kinds(events, "REJECTED")] == [0, 2]
    assert [event.left_out for event in of_kinds(events, "LEFT_OUT")] == [2]


async def test_nothing_waits_for_a_table_that_is_locked(
    trade: ConfigService, broker: Broker, center: MessageCenter, message_store: MessageStore
) -> None:
    await register_group(trade, GROUP)
    changed = await trade.topics.update("default", TOPIC, trace_rate=1.0)
    await trade.wait_until_active(changed.version)
    async with message_store.transaction() as locking:
        await locking.execute("LOCK TABLE trace_event IN ACCESS EXCLUSIVE MODE")
        writing = asyncio.ensure_future(broker.trace.write_once())
        async with subscribed(broker.address) as got:
            for number in range(20):
                await center.publish(TOPIC, PAID, str(number))
            await got.until(20)
            await all_settled(broker)
        assert not await all_blocked(message_store)
        writing.cancel()


async def all_blocked(store: MessageStore) -> bool:
    """Return whether anybody waits for a lock but those who write the trace."""
    async with store.connection() as conn:
        found = await conn.execute(
            "SELECT query FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
            " AND query NOT LIKE '%trace_event%'"
        )
        return bool(await found.fetchall())
