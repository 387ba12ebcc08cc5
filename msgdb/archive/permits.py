"""Whether an expired day may be dropped, and that it was: what a broker asks before it does anything to the day.

It is asked twice. First before what points into the day is ended: then the day is DROPPING, which lets the starts of
its queues be raised, and keeps runs from claiming it. And once more where nothing reaches the day any more, in the
transaction that drops it: what came in between is found, and the day waits for its archive again.

Each function is part of the caller's transaction. The policy is locked in it first, then the day: nobody begins to
require the archive between the answer and what is done by it.
"""

from __future__ import annotations

from datetime import date
from typing import Final, NamedTuple
from uuid import UUID

from psycopg import sql

from msgdb.archive.day_rows import has_rows
from msgdb.archive.differences import ArchivedIds, find_difference, get_archived_ids
from msgdb.archive.noting import LEASE_STANDS, LockedDay, lock_day, lock_noted_day
from msgdb.archive.records import THERE_AGAIN, DayState, RunState
from msgdb.archive.stored_days import StoredDay
from msgdb.day_tables import DayTable
from msgdb.log.partitions import DayPartition, list_partitions
from msgdb.postgres.connections import Connection

NOT_ARCHIVED: Final = "it is not archived"
_LOCK_TIMEOUT: Final = "3s"

# Whoever changes the policy waits for the transaction's end, which is near; readers, the guard on `queue` among them,
# do not.
_LOCK_POLICY: Final = "LOCK TABLE archive_policy IN SHARE MODE"
_LIMIT: Final = "SELECT set_config('lock_timeout', %s, true)"
_REQUIRED_FROM: Final = "SELECT required_from FROM archive_policy WHERE table_name = %s"

_KEY: Final = "table_name = %(table)s AND day = %(day)s"
_SET_STATE: Final = f"""
UPDATE archive_day SET state = %(state)s, reason = %(reason)s, changed_at = clock_timestamp()
WHERE {_KEY} AND (state, reason) IS DISTINCT FROM (%(state)s, %(reason)s)
"""
# Index: on (table_name, day).
_LIVE_RUN: Final = f"""
SELECT holder, lease_until FROM archive_run WHERE {_KEY} AND state = %(running)s AND {LEASE_STANDS}
ORDER BY lease_until DESC LIMIT 1
"""
# Once the day may go, a lease that was passed then never stands again, whatever becomes of the clock: what the run has
# still to read may be gone. Nobody reads the ranges of a lost run.
_LOSE_RUNS: Final = f"""
WITH lost AS (
    UPDATE archive_run SET state = 'LOST', ended_at = clock_timestamp() WHERE {_KEY} AND state = 'RUNNING'
    RETURNING run_id
)
DELETE FROM archive_range r USING lost l WHERE r.run_id = l.run_id
"""
_IS_VERIFIED: Final = "SELECT EXISTS (SELECT 1 FROM archive_run WHERE run_id = %s AND state = %s)"

# By the primary key: the table's days, which are few.
_LIST_DROPPING: Final = """
SELECT day FROM archive_day WHERE table_name = %s AND day < %s AND state = 'DROPPING' ORDER BY day
"""

# What keeps a broker that knows nothing of the archive from its DROP, where it finds no start to raise. No column is
# named: columns may change under it.
_IS_HELD: Final = "SELECT to_regclass(%s) IS NOT NULL"
_HOLD: Final = "CREATE OR REPLACE VIEW {held} AS SELECT 1 AS held FROM {partition}"
_LET_GO: Final = "DROP VIEW IF EXISTS {held}"

# For the rest of the transaction: what the guard on `queue` asks for.
_SAY_DROPPING: Final = "SELECT set_config('msgdb.dropping_day', %s, true)"


class Granted(NamedTuple):
    """The day may be dropped."""

    ids: ArchivedIds | None = None
    """Of a day without a partition that is archived: the rows that may go, and no others. None: whatever is there."""


class Waiting(NamedTuple):
    """The day stays for now."""

    reason: str


async def permit(conn: Connection, stored: StoredDay) -> Granted | Waiting:
    """Return whether an expired day may be dropped, and note it: DROPPING, or PENDING where something came to it.

    While its archive is required nobody else drops its partition, whatever the answer: a view is made on it.
    """
    if not stored.table.is_archivable:
        return Granted()
    required_from = await _lock_policy(conn, stored)
    if required_from is None:
        return await _permit_unrequired(conn, stored)
    if stored.partition is not None:
        await _hold(conn, stored.partition)
    day = await lock_day(conn, stored.table.name, stored.day)
    if stored.day < required_from:
        answer = await _permit_unrequired(conn, stored)
        if isinstance(answer, Granted):
            # By which the guard on `queue` lets its starts be raised.
            await _set_dropping(conn, stored, day)
        return answer
    return await _permit_required(conn, stored, day)


async def let_go(conn: Connection, stored: StoredDay) -> None:
    """Note that the day is gone, if anything is noted of it, and hold its partition no longer.

    In the transaction that drops it.
    """
    if not stored.table.is_archivable:
        return
    day = await _lock_noted(conn, stored)
    if day is not None:
        await _set_state(conn, stored, DayState.DROPPED, day.reason)
    if stored.partition is not None:
        await conn.execute(sql.SQL(_LET_GO).format(held=_held_name(stored.partition)))


async def list_dropping(conn: Connection, table: DayTable, before: date) -> list[date]:
    """Return the days before a day whose drop was begun and is not noted as done, in their order."""
    return [row[0] for row in await (await conn.execute(_LIST_DROPPING, (table.name, before))).fetchall()]


async def hold_days(conn: Connection, table: DayTable) -> None:
    """Keep brokers that know nothing of the archive from dropping what there is of a table whose archive is required.

    The guard on `queue` does not stop them where the starts were raised before: a drop was interrupted then.
    """
    for partition in await list_partitions(conn, table.name):
        await _hold(conn, partition)


async def release_days(conn: Connection, table: DayTable) -> None:
    """Hold nothing of a table any more: its archive is not required, and every broker drops its days as ever."""
    for partition in await list_partitions(conn, table.name):
        await conn.execute(sql.SQL(_LET_GO).format(held=_held_name(partition)))


async def say_dropping(conn: Connection, day: date) -> None:
    """Say, until the transaction's end, that what it does to queues is for the drop of this day of messages."""
    await conn.execute(_SAY_DROPPING, (day.isoformat(),))


async def _permit_unrequired(conn: Connection, stored: StoredDay) -> Granted | Waiting:
    # A day that goes row by row is not archived meanwhile: what is left of it would be taken for all there is.
    if stored.partition is not None or (day := await _lock_noted(conn, stored)) is None:
        return Granted()
    if at_it := await _find_live_run(conn, stored):
        return at_it
    await _set_dropping(conn, stored, day)
    return Granted()


async def _permit_required(conn: Connection, stored: StoredDay, day: LockedDay) -> Granted | Waiting:
    if at_it := await _find_live_run(conn, stored):
        return at_it
    if day.state is DayState.DROPPED:
        # It stays DROPPED: by that the next run knows that there are files of it already, which it supplements.
        return Waiting(THERE_AGAIN) if await has_rows(conn, stored.table, stored.day) else Granted()
    if day.is_waived:
        await _set_dropping(conn, stored, day)
        return Granted()
    if day.state is DayState.PENDING or day.run_id is None:
        reason = day.reason or NOT_ARCHIVED
    elif not await _is_verified(conn, day.run_id):
        reason = f"run {day.run_id}, which has it, is not there"
    else:
        reason = await find_difference(conn, stored, day.run_id)
    if reason or day.run_id is None:
        await _set_state(conn, stored, DayState.PENDING, reason)
        return Waiting(reason)
    await _set_dropping(conn, stored, day)
    # Without a partition the rows are deleted among those that others write: what came since does not go with them.
    return Granted(await get_archived_ids(conn, day.run_id) if stored.partition is None else None)


async def _lock_policy(conn: Connection, stored: StoredDay) -> date | None:
    """Return from which day on the table's archive is required; it stays so until the transaction's end."""
    await conn.execute(_LIMIT, (_LOCK_TIMEOUT,))
    await conn.execute(_LOCK_POLICY)
    row = await (await conn.execute(_REQUIRED_FROM, (stored.table.name,))).fetchone()
    return None if row is None else row[0]


async def _lock_noted(conn: Connection, stored: StoredDay) -> LockedDay | None:
    return await lock_noted_day(conn, stored.table.name, stored.day)


async def _find_live_run(conn: Connection, stored: StoredDay) -> Waiting | None:
    row = await (await conn.execute(_LIVE_RUN, {**_key(stored), "running": RunState.RUNNING})).fetchone()
    if row is None:
        return None
    holder, lease_until = row
    return Waiting(f"a run of {holder} is at it, until {lease_until:%Y-%m-%d %H:%M:%S%z} at least")


async def _is_verified(conn: Connection, run_id: UUID) -> bool:
    return (await (await conn.execute(_IS_VERIFIED, (run_id, RunState.VERIFIED))).fetchone()) == (True,)


async def _set_dropping(conn: Connection, stored: StoredDay, day: LockedDay) -> None:
    await conn.execute(_LOSE_RUNS, _key(stored))
    await _set_state(conn, stored, DayState.DROPPING, day.reason if day.is_waived else None)


async def _set_state(conn: Connection, stored: StoredDay, state: DayState, reason: str | None = None) -> None:
    await conn.execute(_SET_STATE, {**_key(stored), "state": state, "reason": reason})


async def _hold(conn: Connection, partition: DayPartition) -> None:
    row = await (await conn.execute(_IS_HELD, (f"{partition.name}_held",))).fetchone()
    if row != (True,):
        names = {"held": _held_name(partition), "partition": sql.Identifier(partition.name)}
        await conn.execute(sql.SQL(_HOLD).format(**names))


def _held_name(partition: DayPartition) -> sql.Identifier:
    return sql.Identifier(f"{partition.name}_held")


def _key(stored: StoredDay) -> dict[str, object]:
    return {"table": stored.table.name, "day": stored.day}
