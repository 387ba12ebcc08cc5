"""Resets: a group's lanes are put somewhere else, whether anybody serves them or not.

All of a reset is one transaction. It gives each cursor a new epoch, so that nothing its owner still has of the lane is
written any more, and leaves owner and lease as they are, so that nobody else claims it while the owner may be handing
out from where it was. The owner finds its lanes lost when it writes of them next, or renews their leases, and claims
them anew, at their new place. Then, or when the lease has passed, the reset is *obeyed*: nothing is handed out by the
former place any more.

A lane that goes *forward* skips what lies between, and what waits for another attempt below its new place; what was
settled or waits above it stays so. One that goes *back* has everything from its new place on come again, as if for the
first time; what waits below it goes on waiting. A subscription may have started later than the place a group is put
back to: the cursor says from where on those of that moment count instead.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, NamedTuple
from uuid import UUID

from msgdb.lanes.records import LaneReset, OffsetRange
from msgdb.log.beginnings import FIRST_KEEPER
from msgdb.log.ends import last_message, next_offset
from msgdb.postgres.array_rows import array_rows
from msgdb.postgres.connections import Connection

LOCK_SECONDS: Final = 3.0
"""How long somebody who writes of one of the lanes is waited for."""
_WAIT_FOR_LOCKS: Final = "SELECT set_config('lock_timeout', %s, true)"

_TARGETS: Final = array_rows("w", queue_id="bigint", to_offset="bigint")

# In the order of the key, as all who lock several. A checkpoint that is under way is waited for: what it persists is
# overwritten then, and what it moved to the redeliveries is forgotten.
_LOCK: Final = f"""
SELECT c.queue_id, c.acked_offset
FROM {_TARGETS} JOIN cursor c ON c.group_id = %(group_id)s AND c.member = '' AND c.queue_id = w.queue_id
ORDER BY c.queue_id FOR UPDATE OF c
"""

# One probe of each log's end. Under the cursors' locks, so that no claim takes the new place for one that was lost.
_FIND_OUTSIDE: Final = f"""
SELECT q.queue_id, w.to_offset, q.start_offset, {next_offset("q", "last")}
FROM {_TARGETS} JOIN queue q ON q.queue_id = w.queue_id
LEFT JOIN LATERAL {last_message("q.queue_id")} AS last ON true
WHERE w.to_offset < q.start_offset OR w.to_offset > {next_offset("q", "last")}
"""

# A lane that nobody ever served has no cursor yet: one is made, free for whoever claims it.
_RESET: Final = f"""
INSERT INTO cursor AS c (group_id, member, queue_id, acked_offset, epoch, reset_offset, reset_subscription_id)
SELECT %(group_id)s, '', w.queue_id, w.to_offset, %(epoch_floor)s + 1, w.to_offset, %(subscription_id)s FROM {_TARGETS}
ORDER BY w.queue_id
ON CONFLICT (group_id, member, queue_id) DO UPDATE
SET acked_offset = excluded.acked_offset, epoch = greatest(c.epoch, %(epoch_floor)s) + 1,
    acked_ranges = CASE WHEN excluded.acked_offset >= c.acked_offset
        THEN c.acked_ranges * int8multirange(int8range(excluded.acked_offset, NULL)) ELSE '{{}}' END,
    reset_offset = excluded.reset_offset, reset_subscription_id = excluded.reset_subscription_id
RETURNING c.queue_id, c.epoch
"""

# By the beginning of the primary key.
_FORGET_REDELIVERIES: Final = f"""
DELETE FROM redelivery r USING {array_rows("w", queue_id="bigint", first="bigint", behind="bigint")}
WHERE r.group_id = %(group_id)s AND r.member = '' AND r.queue_id = w.queue_id
  AND r.queue_offset >= w.first AND r.queue_offset < w.behind
"""
_ALL_OFFSETS: Final = 2**63 - 1

# By the primary keys.
_FIND_LANES: Final = """
SELECT c.queue_id, c.acked_offset, c.acked_ranges, coalesce((
    SELECT array_agg(r.queue_offset ORDER BY r.queue_offset) FROM redelivery r
    WHERE r.group_id = c.group_id AND r.member = c.member AND r.queue_id = c.queue_id
), '{}'), c.reset_offset, c.reset_subscription_id
FROM cursor c WHERE c.group_id = %(group_id)s AND c.member = '' AND c.queue_id = ANY(%(queue_ids)s)
"""

# By the primary keys.
_FIND_LEASES: Final = """
SELECT c.queue_id, c.lease_until FROM cursor c
WHERE c.group_id = %(group_id)s AND c.member = '' AND c.queue_id = ANY(%(queue_ids)s)
  AND c.lease_until > clock_timestamp()
"""

# An owner that does not know of the new epoch renews nothing, and whoever claims the lane has a later lease. The epoch
# itself does not tell: the next reset gives one as well. A version of the configuration that keeps a beginning is no
# owner.
_FIND_WAITING: Final = f"""
SELECT c.queue_id, c.owner FROM {array_rows("w", queue_id="bigint", lease_until="timestamptz")}
JOIN cursor c ON c.group_id = %(group_id)s AND c.member = '' AND c.queue_id = w.queue_id
WHERE c.owner < %(first_keeper)s AND c.lease_until <= w.lease_until AND c.lease_until > clock_timestamp()
ORDER BY c.queue_id
"""


@dataclass(frozen=True, slots=True)
class LanePlace:
    """Where a lane is, as far as a reset changes it."""

    acked_offset: int
    acked_ranges: Sequence[OffsetRange] = ()
    waiting: Sequence[int] = ()
    """The offsets of what waits for another attempt, ascending."""
    reset: LaneReset | None = field(default=None, compare=False)
    """Where it was put by hand before: no part of the place itself."""


class ResetEffect(NamedTuple):
    """What a reset does to one lane. Ranges are ascending, each with its first offset and the one after its last."""

    skipped: list[OffsetRange]
    """What has not been settled and was not tried yet, and would not come any more."""
    skipped_waiting: int
    """How many messages that wait for another attempt would not come any more."""
    again: list[OffsetRange]
    """What would come though it was settled."""
    anew: int
    """How many messages that wait for another attempt would begin anew."""


class OutsideOfLog(NamedTuple):
    """A place where a lane cannot be put: the log does not reach there."""

    queue_id: int
    to_offset: int
    start_offset: int
    next_offset: int


class OutsideOfLogError(Exception):
    """A lane cannot be put where the log has nothing. Nothing was reset."""

    def __init__(self, outside: OutsideOfLog) -> None:
        super().__init__(f"queue {outside.queue_id} has offsets {outside.start_offset} to {outside.next_offset}")
        self.outside = outside


async def reset_lanes(
    conn: Connection,
    group_id: int,
    targets: Mapping[int, int],
    subscription_id: int,
    epoch_floor: int,
    *,
    lock_seconds: float = LOCK_SECONDS,
) -> dict[int, int]:
    """Put a group's lanes at these offsets, by queue, in the caller's transaction; return the epoch of each.

    Subscriptions up to *subscription_id* count from there on, if they start later. *epoch_floor* is of the database's
    history, as for a claim. Raises OutsideOfLogError, or RowsHeldError where somebody holds a cursor for too long.
    """
    parameters = {
        "group_id": group_id,
        "queue_id": list(targets),
        "to_offset": list(targets.values()),
        "subscription_id": subscription_id,
        "epoch_floor": epoch_floor,
    }
    await conn.execute(_WAIT_FOR_LOCKS, (f"{round(lock_seconds * 1_000)}",))
    places: dict[int, int] = dict(await (await conn.execute(_LOCK, parameters)).fetchall())
    # Never prepared: a plan made while a day was empty would read it from end to end when it is full.
    outside = await (await conn.execute(_FIND_OUTSIDE, parameters, prepare=False)).fetchone()
    if outside is not None:
        raise OutsideOfLogError(OutsideOfLog._make(outside))
    epochs: dict[int, int] = dict(await (await conn.execute(_RESET, parameters)).fetchall())
    forgotten = [
        (queue_id, *((0, to_offset) if to_offset >= places[queue_id] else (to_offset, _ALL_OFFSETS)))
        for queue_id, to_offset in targets.items()
        if queue_id in places
    ]
    columns = {name: [row[at] for row in forgotten] for at, name in enumerate(("queue_id", "first", "behind"))}
    await conn.execute(_FORGET_REDELIVERIES, {**columns, "group_id": group_id})
    return epochs


async def lock_places(
    conn: Connection, group_id: int, queue_ids: Sequence[int], *, lock_seconds: float = LOCK_SECONDS
) -> dict[int, LanePlace]:
    """Return where the group's lanes are, and let nobody move them before the caller's transaction ends.

    What is then reset and written down is exactly what was there. Raises RowsHeldError as `reset_lanes` does.
    """
    await conn.execute(_WAIT_FOR_LOCKS, (f"{round(lock_seconds * 1_000)}",))
    parameters = {"group_id": group_id, "queue_id": list(queue_ids), "to_offset": list(queue_ids)}
    await conn.execute(_LOCK, parameters)
    return await find_places(conn, group_id, queue_ids)


async def find_places(conn: Connection, group_id: int, queue_ids: Sequence[int]) -> dict[int, LanePlace]:
    """Return where the group's lanes are, by queue; one that was never served has none."""
    rows = await (await conn.execute(_FIND_LANES, {"group_id": group_id, "queue_ids": list(queue_ids)})).fetchall()
    return {
        queue_id: LanePlace(acked_offset, [(each.lower, each.upper) for each in ranges], waiting, reset_of(*reset))
        for queue_id, acked_offset, ranges, waiting, *reset in rows
    }


def effect_of(place: LanePlace, to_offset: int) -> ResetEffect:
    """Return what putting a lane at *to_offset* does. Pure; what `reset_lanes` does, in other words."""
    if to_offset >= place.acked_offset:
        skipped = _without((place.acked_offset, to_offset), place.acked_ranges)
        below = [offset for offset in place.waiting if offset < to_offset]
        # What waits above the cursor has a row, and is no part of what was not tried.
        tried = [(offset, offset + 1) for offset in below if offset >= place.acked_offset]
        return ResetEffect([part for each in skipped for part in _without(each, tried)], len(below), [], 0)
    anew = [offset for offset in place.waiting if offset >= to_offset]
    settled = [(to_offset, place.acked_offset), *place.acked_ranges]
    waiting = [(offset, offset + 1) for offset in anew]
    return ResetEffect([], 0, [part for each in settled for part in _without(each, waiting)], len(anew))


def skipped_by(place: LanePlace, to_offset: int) -> list[OffsetRange]:
    """Return all that a lane put at *to_offset* never comes to, ascending: what waits for another attempt, too. Pure.

    Nothing, where it goes back.
    """
    if to_offset < place.acked_offset:
        return []
    untried = _without((place.acked_offset, to_offset), place.acked_ranges)
    waiting = [(offset, offset + 1) for offset in place.waiting if offset < to_offset]
    merged: list[OffsetRange] = []
    for first, end in sorted(untried + waiting):
        if merged and first <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((first, end))
    return merged


def _without(whole: OffsetRange, parts: Sequence[OffsetRange]) -> list[OffsetRange]:
    """Return what of *whole* is in none of *parts*, which ascend."""
    left: list[OffsetRange] = []
    at, end = whole
    for first, after in parts:
        if after <= at or first >= end:
            continue
        if first > at:
            left.append((at, first))
        at = max(at, after)
    if at < end:
        left.append((at, end))
    return left


async def find_leases(conn: Connection, group_id: int, queue_ids: Collection[int]) -> dict[int, datetime]:
    """Return until when the group's lanes are leased, by queue; those that nobody serves are left out.

    In the transaction that gives them new epochs: what it returns is what their owners had then.
    """
    rows = await conn.execute(_FIND_LEASES, {"group_id": group_id, "queue_ids": list(queue_ids)})
    return dict(await rows.fetchall())


async def find_waiting(conn: Connection, group_id: int, leases: Mapping[int, datetime]) -> dict[int, UUID]:
    """Return the queues on which a reset is not obeyed yet, with who may still hand out by the former place.

    *leases* are those of `find_leases`, of the moment of the reset.
    """
    parameters = {
        "group_id": group_id,
        "queue_id": list(leases),
        "lease_until": list(leases.values()),
        "first_keeper": FIRST_KEEPER,
    }
    return dict(await (await conn.execute(_FIND_WAITING, parameters)).fetchall())


def reset_of(reset_offset: int | None, subscription_id: int | None) -> LaneReset | None:
    """Return what a cursor's columns say of a reset; None: it was never reset."""
    if reset_offset is None or subscription_id is None:
        return None
    return LaneReset(reset_offset, subscription_id)
