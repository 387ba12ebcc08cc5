"""Steering: one message that blocks a group is given up (skipped), or tried again at once, whoever serves its lane.

As with a reset (`msgdb.lanes.resets`) it is one transaction that gives the lane's cursor a new epoch: nothing that its
owner still has of the lane is written any more, and the owner claims the lane anew, with the message where it was put.
So it makes no difference whether the message waits for another attempt, is with an instance, or was not read yet. What
else of the lane was in flight comes again; what waited goes on waiting, as the attempt that it was.

A message is in one of these places, as far as the store knows: it is settled; it has a redelivery row; or neither, and
then it lies at the cursor or above it. To skip it settles it above the cursor, or ends its row. To try it again at once
makes its row due, or gives it one, which comes before all that has none: a message that was not read yet overtakes.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, NamedTuple

from msgdb.dead_letters.copies import COPIED_COLUMNS, COPIED_FROM_MESSAGE
from msgdb.dead_letters.usage import counted_from
from msgdb.lanes.keys import same_lane
from msgdb.lanes.records import LaneReset
from msgdb.lanes.resets import LOCK_SECONDS, reset_of
from msgdb.log.found import FoundMessage
from msgdb.postgres.binary_rows import datetime_of
from msgdb.postgres.connections import Connection

_WAIT_FOR_LOCKS: Final = "SELECT set_config('lock_timeout', %s, true)"

_LANE: Final = "c.group_id = %(group_id)s AND c.member = '' AND c.queue_id = %(queue_id)s"
_ROW: Final = "r.group_id = %(group_id)s AND r.member = '' AND r.queue_id = %(queue_id)s"

# A lane that nobody ever served has no cursor yet: one is made, free for whoever claims it.
_MAKE_CURSOR: Final = """
INSERT INTO cursor (group_id, member, queue_id, acked_offset, epoch)
VALUES (%(group_id)s, '', %(queue_id)s, %(initial_offset)s, %(epoch_floor)s)
ON CONFLICT (group_id, member, queue_id) DO NOTHING
"""

# The cursor first, then the row, as a checkpoint does: one that is under way is waited for, and what it writes counts.
# Of a row that a day's end takes away just now, too, it is waited what becomes of it.
_LOCK_CURSOR: Final = f"SELECT 1 FROM cursor c WHERE {_LANE} FOR UPDATE"
_LOCK_ROW: Final = f"SELECT 1 FROM redelivery r WHERE {_ROW} AND r.queue_offset = %(queue_offset)s FOR UPDATE"

# By the primary keys, and the unique index of dead letters. A lane that nobody ever served stands where it would begin.
_FIND: Final = f"""
SELECT %(queue_offset)s < coalesce(c.acked_offset, %(initial_offset)s)
           OR coalesce(c.acked_ranges @> %(queue_offset)s::bigint, false),
       r.queue_id IS NOT NULL, coalesce(r.attempt, 1), extract(epoch FROM r.due_at - clock_timestamp())::float8,
       r.last_error, r.shelved_by, d.id, d.died_at, c.reset_offset, c.reset_subscription_id
FROM (SELECT) AS nothing
LEFT JOIN cursor c ON {_LANE}
LEFT JOIN redelivery r ON {_ROW} AND r.queue_offset = %(queue_offset)s
LEFT JOIN dead_letter d ON d.group_id = %(group_id)s AND d.queue_id = %(queue_id)s
      AND d.queue_offset = %(queue_offset)s AND d.stored_at = %(stored_at)s
"""

# Copied inside the database, by the whole primary key of message. It may be a dead letter from before the group was put
# back to here: that one stays.
_BURY: Final = f"""
WITH buried AS (
    INSERT INTO dead_letter (group_id, group_name, attempts, reason, last_error, {COPIED_COLUMNS})
    SELECT %(group_id)s, %(group_name)s, %(attempts)s, 'SKIPPED', %(last_error)s, {COPIED_FROM_MESSAGE}
    FROM message m
    WHERE m.queue_id = %(queue_id)s AND m.queue_offset = %(queue_offset)s AND m.stored_at = %(stored_at)s
    ON CONFLICT (group_id, queue_id, queue_offset, stored_at) DO NOTHING
    RETURNING id, group_id, queue_id, event_code, stress
), counted AS ({counted_from("buried")})
SELECT id FROM buried
"""
_FORGET_ROW: Final = f"DELETE FROM redelivery r WHERE {_ROW} AND r.queue_offset = %(queue_offset)s"

_MAKE_DUE: Final = """
INSERT INTO redelivery AS r (group_id, member, queue_id, queue_offset, stored_at, attempt, due_at, ordering_key)
VALUES (%(group_id)s, '', %(queue_id)s, %(queue_offset)s, %(stored_at)s, 1, clock_timestamp(), %(ordering_key)s)
ON CONFLICT (group_id, member, queue_id, queue_offset) DO UPDATE SET due_at = excluded.due_at
"""

# Above the cursor the message counts as settled for it: it is, or it has a row. Owner and lease stay.
_TURN: Final = f"""
WITH steered AS (
    SELECT c.acked_offset, c.acked_ranges + CASE WHEN %(queue_offset)s >= c.acked_offset
        THEN int8multirange(int8range(%(queue_offset)s, %(queue_offset)s + 1)) ELSE '{{}}' END AS acked_ranges
    FROM cursor c WHERE {_LANE}
), moved AS (
    SELECT coalesce((SELECT upper(r) FROM unnest(s.acked_ranges) r WHERE r @> s.acked_offset), s.acked_offset)
               AS acked_offset,
           s.acked_ranges
    FROM steered s
)
UPDATE cursor c
SET epoch = greatest(c.epoch, %(epoch_floor)s) + 1, acked_offset = moved.acked_offset,
    acked_ranges = moved.acked_ranges * int8multirange(int8range(moved.acked_offset, NULL))
FROM moved WHERE {_LANE}
RETURNING c.epoch
"""

# By the primary keys, and no further than a lane reads ahead. A row without an error may be of a message that is with
# an instance for so long that it was given one: it is due when that has not answered in time.
_COUNT_OTHERS: Final = f"""
SELECT (
    SELECT count(*) FROM redelivery r
    WHERE {same_lane("r", "c")} AND r.queue_offset <> %(queue_offset)s AND r.shelved_by IS NULL
      AND (r.due_at <= clock_timestamp() OR r.last_error IS NULL)
) + (
    SELECT count(*) FROM message m
    WHERE m.queue_id = c.queue_id AND m.queue_offset >= c.acked_offset
      AND m.queue_offset < c.acked_offset + %(window_max)s
      AND m.queue_offset <> %(queue_offset)s AND NOT c.acked_ranges @> m.queue_offset
)
FROM cursor c
WHERE {_LANE} AND c.lease_until > clock_timestamp()
"""


class Standing(StrEnum):
    """Where a message stands with a group, as far as the store knows."""

    SETTLED = "SETTLED"
    """Acknowledged, not matched, a dead letter, expired, or skipped by a reset."""
    UNSETTLED = "UNSETTLED"
    """Not read yet, on its way, or with an instance for the first time: only the lane's owner knows which."""
    WAITING = "WAITING"
    """It has a redelivery row: it waits for another attempt, or is with an instance for one."""
    SHELVED = "SHELVED"
    """It waits for paused subscriptions."""


@dataclass(frozen=True, slots=True)
class StandByRows:
    """Where a message stands with a group, by the rows of its lane: what a broker's memory has is not asked."""

    standing: Standing
    attempt: int
    """The attempt that comes next, or is under way."""
    due_in_seconds: float | None
    """When it comes, where it waits; below 0 it is due, or with an instance."""
    last_error: str | None
    shelved_by: str | None
    dead_letter_id: int | None
    """The dead letter that it became for the group once; perhaps before the group was put back behind it."""
    died_at: datetime | None
    reset: LaneReset | None
    """Where the lane was put by hand the last time."""


class LaneSteered(NamedTuple):
    """A lane whose owner has to claim it anew."""

    epoch: int
    dead_letter_id: int | None = None
    """What was skipped is kept there; None: nothing was, or its day is gone."""
    is_earlier: bool = False
    """Whether that is of before the group was put back behind the message: it stays as it was."""


@dataclass(frozen=True, slots=True)
class SteeredMessage:
    """A message of the log, and the group that is to be rid of it, or to get it at once."""

    group_id: int
    group_name: str
    copy: FoundMessage
    initial_offset: int
    """Where the group's lane begins, should nobody have served it yet."""

    def parameters(self) -> dict[str, Any]:
        """Return what the statements take."""
        return {
            "group_id": self.group_id,
            "group_name": self.group_name,
            "queue_id": self.copy.queue_id,
            "queue_offset": self.copy.queue_offset,
            "stored_at": datetime_of(self.copy.stored_at_us),
            "ordering_key": self.copy.ordering_key or None,
            "initial_offset": self.initial_offset,
        }


def standing_of(*, is_settled: bool, has_row: bool, shelved_by: str | None) -> Standing:
    """Return where a message stands. A row says more than the cursor: what has one counts as settled there. Pure."""
    if has_row:
        return Standing.SHELVED if shelved_by else Standing.WAITING
    return Standing.SETTLED if is_settled else Standing.UNSETTLED


async def find_stand(conn: Connection, message: SteeredMessage) -> StandByRows:
    """Return where a message stands with the group, as of the last checkpoint."""
    # Never prepared: with its values the planner sees how few rows there are.
    cursor = await conn.execute(_FIND, message.parameters(), prepare=False)
    row = await cursor.fetchone()
    assert row is not None, "one row is returned"
    is_settled, has_row, attempt, due_in_seconds, last_error, shelved_by, dead_letter_id, died_at, *reset = row
    standing = standing_of(is_settled=is_settled, has_row=has_row, shelved_by=shelved_by)
    return StandByRows(
        standing, attempt, due_in_seconds, last_error, shelved_by, dead_letter_id, died_at, reset_of(*reset)
    )


async def count_others(conn: Connection, message: SteeredMessage, window_max: int) -> int:
    """Return how many other messages of the lane may be with instances now, and would come again.

    By what is stored: no more than that, and none where nobody serves the lane. *window_max*: how far it reads ahead.
    """
    parameters = {**message.parameters(), "window_max": window_max}
    row = await (await conn.execute(_COUNT_OTHERS, parameters, prepare=False)).fetchone()
    return 0 if row is None else int(row[0])


async def hold_lane(
    conn: Connection, message: SteeredMessage, epoch_floor: int, *, lock_seconds: float = LOCK_SECONDS
) -> StandByRows:
    """Keep everybody from writing of the message's lane until the caller's transaction ends; return where it stands.

    Raises RowsHeldError where somebody else holds it for too long. Who does nothing then takes the transaction back.
    """
    parameters = {**message.parameters(), "epoch_floor": epoch_floor}
    await conn.execute(_WAIT_FOR_LOCKS, (f"{round(lock_seconds * 1_000)}",))
    await conn.execute(_MAKE_CURSOR, parameters)
    await conn.execute(_LOCK_CURSOR, parameters)
    await conn.execute(_LOCK_ROW, parameters)
    # In a new statement: what was waited for is seen.
    return await find_stand(conn, message)


async def skip_message(conn: Connection, message: SteeredMessage, stand: StandByRows, epoch_floor: int) -> LaneSteered:
    """Make a dead letter of a message that is not settled, in the transaction that holds its lane."""
    parameters = {
        **message.parameters(),
        "epoch_floor": epoch_floor,
        # The one that comes next, or is under way, is none that ended.
        "attempts": stand.attempt - 1,
        "last_error": stand.last_error,
    }
    buried = await (await conn.execute(_BURY, parameters, prepare=False)).fetchone()
    await conn.execute(_FORGET_ROW, parameters)
    epoch = await _turn(conn, parameters)
    if buried is None:
        return LaneSteered(epoch, stand.dead_letter_id, is_earlier=stand.dead_letter_id is not None)
    return LaneSteered(epoch, buried[0])


async def retry_message_now(conn: Connection, message: SteeredMessage, epoch_floor: int) -> LaneSteered:
    """Let the next attempt of a message be due, in the transaction that holds its lane. Its attempts count on."""
    parameters = {**message.parameters(), "epoch_floor": epoch_floor}
    await conn.execute(_MAKE_DUE, parameters)
    return LaneSteered(await _turn(conn, parameters))


async def _turn(conn: Connection, parameters: dict[str, Any]) -> int:
    row = await (await conn.execute(_TURN, parameters)).fetchone()
    assert row is not None, "the transaction holds the cursor"
    epoch: int = row[0]
    return epoch
