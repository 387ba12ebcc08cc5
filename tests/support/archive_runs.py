"""Runs that archive a day, as far as msgdb sees them: claimed, closed, marked, with nothing written anywhere."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from uuid import UUID

from msgdb import ids
from msgdb.archive.claims import claim, mark_verified
from msgdb.archive.closing import close_day
from msgdb.archive.records import ArchiveRun, ClosedDay, VerifiedRange, VerifiedRun
from msgdb.log.partitions import day_bounds, ensure_for
from msgdb.names import MESSAGE
from msgdb.postgres.connections import Connection

HOLDER = "spark-1"
ACTOR = "ada"
_PUT = """
INSERT INTO message (queue_id, queue_offset, stored_at, message_id, namespace, topic, event_code, body, born_at, stress)
SELECT %(queue_id)s, o, %(stored_at)s, gen_random_uuid(), 'default', 'TP_TRADE', 'EC_PAID', 'x', %(stored_at)s, false
FROM generate_series(%(first)s::bigint, %(last)s::bigint) AS o
"""
_BURY = """
INSERT INTO dead_letter (group_id, group_name, died_at, attempts, reason, queue_id, queue_offset, stored_at, message_id,
                         namespace, topic, event_code, body, born_at, stress)
SELECT 7, 'SG_POINTS', died_at, 16, 'REJECTED', 1, (random() * 1e15)::bigint, died_at, gen_random_uuid(), 'default',
       'TP_TRADE', 'EC_PAID', 'x', died_at, false
FROM unnest(%s::timestamptz[]) WITH ORDINALITY AS d (died_at, place) ORDER BY place
RETURNING id, message_id
"""
_LAPSE = "UPDATE archive_run SET lease_until = clock_timestamp() - interval '1 second' WHERE run_id = %s"


def days_ago(count: int) -> date:
    """Return the day in UTC that was so many days ago."""
    return datetime.now(UTC).date() - timedelta(days=count)


def new_run_id() -> UUID:
    """Return an id for a run."""
    return UUID(int=ids.mint_run())


async def put_at(conn: Connection, queue_id: int, offsets: range, stored_at: datetime) -> None:
    """Store messages at these offsets, all at that moment."""
    await ensure_for(conn, stored_at.astimezone(UTC).date())
    parameters = {"first": offsets.start, "last": offsets.stop - 1, "queue_id": queue_id, "stored_at": stored_at}
    await conn.execute(_PUT, parameters)


async def put_on(conn: Connection, queue_id: int, offsets: range, day: date) -> None:
    """Store messages at these offsets, at noon of that day."""
    await put_at(conn, queue_id, offsets, day_bounds(day)[0] + timedelta(hours=12))


async def bury(conn: Connection, *died_at: datetime) -> list[tuple[int, UUID]]:
    """Make a dead letter for each of these moments, in their order; return their ids, and those of their messages."""
    return [(row[0], row[1]) for row in await (await conn.execute(_BURY, (list(died_at),))).fetchall()]


async def claim_day(
    conn: Connection, day: date, table: str = MESSAGE, *, holder: str = HOLDER, again: bool = False
) -> ArchiveRun:
    """Claim a day in a transaction of its own."""
    async with conn.transaction():
        return await claim(conn, table, day, run_id=new_run_id(), holder=holder, lease_seconds=60, again=again)


async def mark(conn: Connection, run: ArchiveRun, closed: ClosedDay) -> VerifiedRun:
    """Mark the run in a transaction of its own, as if all that was closed had been written and read back."""
    verified = verified_run(closed.ranges)
    async with conn.transaction():
        await mark_verified(conn, run, verified)
    return verified


async def archive_day(conn: Connection, day: date, table: str = MESSAGE, *, again: bool = False) -> ArchiveRun:
    """Claim, close and mark a day."""
    run = await claim_day(conn, day, table, again=again)
    await mark(conn, run, await close_day(conn, run))
    return run


async def let_lapse(conn: Connection, run: ArchiveRun) -> None:
    """Let the run's lease have passed."""
    await conn.execute(_LAPSE, (run.run_id,))


def verified_run(ranges: Sequence[tuple[int, int, int, UUID]]) -> VerifiedRun:
    """Return what a run would say of these ranges."""
    verified = tuple(
        VerifiedRange(queue_id, last - first + 1, f"digest-{queue_id}") for queue_id, first, last, _ in ranges
    )
    return VerifiedRun("day/run/_manifest.json", sum(r.row_count for r in verified), 1, 1_000, verified)
