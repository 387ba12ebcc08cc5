"""Leases of lanes: claimed with what is persisted of the lane, renewed, released, cut down.

Every write of a lane names its owner and epoch in the same statement, or follows one that did in the same transaction:
a stale owner changes nothing. All of it is by the database's clock.

That clock may be set back, and a standby's may be behind: then a lease runs for longer than anybody can have given it.
It is cut down to the longest there may be, by whoever meets it, and not taken: its owner may be alive, and will have
renewed or stopped by then. One of a broker that is dead passes with that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from psycopg.types.multirange import Multirange

from msgbroker.contract.limits import LEASE_SECONDS_MAX, REDELIVERIES_PER_LANE_MAX
from msgdb.lanes.keys import LANE_KEY, Parameters, key_columns, owned_columns, owned_lane, same_lane
from msgdb.lanes.records import ClaimedLane, LaneEpoch, LaneKey, LaneToClaim, MatchingShare, OffsetRange, RedeliveryRow
from msgdb.lanes.resets import reset_of
from msgdb.log.beginnings import FIRST_KEEPER, keeper_of
from msgdb.postgres.array_rows import array_rows
from msgdb.postgres.binary_rows import TO_1970, binary_cursor
from msgdb.postgres.connections import Connection

_ROWS_AT_ONCE: Final = 2_000

_LONGEST_LEASE: Final = f"clock_timestamp() + {LEASE_SECONDS_MAX} * interval '1 second'"

# One statement: makes the missing rows, takes the free ones, leaves those of living owners alone, except that it cuts
# down leases from before the clock was set back. A row that somebody has locked (a checkpoint that is under way,
# perhaps of a broker that is frozen in it) is left for the next round: the others do not wait for it. clock_timestamp,
# not now: the caller's transaction must not make a lease shorter in the table than the owner counts it. In the order
# of the key, or two brokers that make the same rows could each wait for the other.
_CLAIM: Final = f"""
WITH wanted AS (
    SELECT * FROM {array_rows("wanted", **LANE_KEY, initial_offset="bigint")}
), made AS (
    INSERT INTO cursor AS c (group_id, member, queue_id, acked_offset, owner, epoch, lease_until)
    SELECT wanted.group_id, wanted.member, wanted.queue_id, wanted.initial_offset, %(owner)s, %(epoch_floor)s + 1,
           clock_timestamp() + %(lease_seconds)s * interval '1 second'
    FROM wanted
    WHERE NOT EXISTS (
        SELECT 1 FROM cursor known WHERE {same_lane("known", "wanted")}
    )
    ORDER BY wanted.group_id, wanted.member, wanted.queue_id
    ON CONFLICT (group_id, member, queue_id) DO NOTHING
    RETURNING c.group_id, c.member, c.queue_id, c.epoch, c.acked_offset, c.acked_ranges, c.reset_offset,
              c.reset_subscription_id, c.matching_asked, c.matching_share, c.matching_read
), free AS (
    SELECT c.group_id, c.member, c.queue_id
    FROM wanted JOIN cursor c USING (group_id, member, queue_id)
    WHERE c.owner IS NULL OR c.owner = %(owner)s OR c.lease_until <= clock_timestamp()
       OR c.owner BETWEEN %(first_keeper)s AND %(last_keeper)s
    FOR NO KEY UPDATE OF c SKIP LOCKED
), taken AS (
    UPDATE cursor c
    SET owner = %(owner)s, epoch = greatest(c.epoch, %(epoch_floor)s) + 1,
        lease_until = clock_timestamp() + %(lease_seconds)s * interval '1 second'
    FROM free WHERE {same_lane("c", "free")}
    RETURNING c.group_id, c.member, c.queue_id, c.epoch, c.acked_offset, c.acked_ranges, c.reset_offset,
              c.reset_subscription_id, c.matching_asked, c.matching_share, c.matching_read
), ahead AS (
    SELECT c.group_id, c.member, c.queue_id
    FROM wanted JOIN cursor c USING (group_id, member, queue_id)
    WHERE c.owner <> %(owner)s AND c.lease_until > {_LONGEST_LEASE}
    FOR NO KEY UPDATE OF c SKIP LOCKED
), cut AS (
    UPDATE cursor c SET lease_until = {_LONGEST_LEASE}
    FROM ahead WHERE {same_lane("c", "ahead")}
)
TABLE made UNION ALL TABLE taken
"""

# All cursors are read, once a minute by one broker: of lanes that nobody wants, too, it is asked who owns them.
_CUT_LEASES: Final = f"""
WITH ahead AS (
    SELECT group_id, member, queue_id FROM cursor WHERE lease_until > {_LONGEST_LEASE} FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE cursor c SET lease_until = {_LONGEST_LEASE}
FROM ahead WHERE {same_lane("c", "ahead")}
"""

_OWNED: Final = array_rows("owned", **LANE_KEY, epoch="bigint")
_GUARD: Final = owned_lane("c", "owned")

# A lease that has passed and that nobody took is still ours: nobody else was told anything in between. One lane whose
# row is locked must not cost the others their leases: it is passed over, and told apart from those that are lost.
#
# It answers with the lanes that were not renewed, which are few. EXCEPT, not an outer join: the planner, which expects
# ten rows, would compare each lane with each.
_RENEW: Final = f"""
WITH mine AS (
    SELECT * FROM {_OWNED}
), free AS (
    SELECT c.group_id, c.member, c.queue_id FROM mine AS owned JOIN cursor c ON {_GUARD}
    FOR NO KEY UPDATE OF c SKIP LOCKED
), renewed AS (
    UPDATE cursor c SET lease_until = clock_timestamp() + %(lease_seconds)s * interval '1 second'
    FROM free WHERE {same_lane("c", "free")}
    RETURNING c.group_id, c.member, c.queue_id, c.epoch
), others AS (
    TABLE mine EXCEPT TABLE renewed
)
SELECT owned.group_id, owned.member, owned.queue_id, c.queue_id IS NOT NULL
FROM others AS owned LEFT JOIN cursor c ON {_GUARD}
"""

# The epoch stays: it goes up with the next claim. As in the renewal, a lane whose row is locked is passed over, and the
# others need not wait for it.
_RELEASE: Final = f"""
WITH free AS (
    SELECT c.group_id, c.member, c.queue_id FROM {_OWNED} JOIN cursor c ON {_GUARD}
    FOR NO KEY UPDATE OF c SKIP LOCKED
)
UPDATE cursor c SET owner = NULL, lease_until = NULL
FROM free WHERE {same_lane("c", "free")}
RETURNING c.group_id, c.member, c.queue_id
"""

# Of all lanes that were claimed together; by the primary key of redelivery.
_HAVE_REDELIVERIES: Final = f"""
SELECT wanted.group_id, wanted.member, wanted.queue_id FROM {array_rows("wanted", **LANE_KEY)}
WHERE EXISTS (
    SELECT 1 FROM redelivery r WHERE {same_lane("r", "wanted")}
)
"""
_LOAD_REDELIVERIES: Final = f"""
SELECT wanted.group_id, wanted.member, wanted.queue_id,
       r.queue_offset, r.stored_at + {TO_1970}, r.attempt,
       extract(epoch FROM r.due_at - clock_timestamp())::float8, r.ordering_key, r.shelved_by
FROM {array_rows("wanted", **LANE_KEY)}
CROSS JOIN LATERAL (
    SELECT * FROM redelivery waiting WHERE {same_lane("waiting", "wanted")}
    ORDER BY waiting.queue_offset LIMIT %(limit)s
) r
"""


async def claim(
    conn: Connection,
    owner: UUID,
    lanes: Iterable[LaneToClaim],
    lease_seconds: float,
    *,
    epoch_floor: int = 0,
    config_version: int = 0,
) -> list[ClaimedLane]:
    """Take those of *lanes* that are free (or ours already), each with a new epoch, and return their state.

    Waits for nobody: a lane whose row is locked is not among them. Ask again later.

    Count the lease from before the call: the database counts it from later on. *epoch_floor* is of the database's
    history: the epochs of an earlier one are not given out again. *config_version* is the configuration that the lanes
    will be served by: what is kept for it (`msgdb.log.beginnings`) is free.
    """
    wanted = {lane.key: lane for lane in lanes}
    if not wanted:
        return []
    parameters = {
        **key_columns(wanted),
        "initial_offset": [lane.initial_offset for lane in wanted.values()],
        "owner": owner,
        "lease_seconds": lease_seconds,
        "epoch_floor": epoch_floor,
        "first_keeper": FIRST_KEEPER,
        "last_keeper": keeper_of(config_version),
    }
    cursor = await conn.execute(_CLAIM, parameters)
    return [
        ClaimedLane(
            LaneKey(group_id, member, queue_id),
            epoch,
            acked_offset,
            _ranges_above(acked_offset, acked_ranges),
            reset_of(*rest[:2]),
            MatchingShare._make(rest[2:]),
        )
        for group_id, member, queue_id, epoch, acked_offset, acked_ranges, *rest in await cursor.fetchall()
    ]


async def cut_leases(conn: Connection) -> int:
    """Cut down the leases that run for longer than any can be given; return how many there were."""
    return (await conn.execute(_CUT_LEASES)).rowcount


async def have_redeliveries(conn: Connection, lanes: Sequence[LaneKey]) -> set[LaneKey]:
    """Return those of *lanes* that have redeliveries: they are loaded lane by lane, because they may be many."""
    return await _guarded(conn, _HAVE_REDELIVERIES, key_columns(lanes))


async def load_redeliveries(
    conn: Connection, lanes: Sequence[LaneKey], limit: int = 2 * REDELIVERIES_PER_LANE_MAX
) -> dict[LaneKey, list[RedeliveryRow]]:
    """Return the redeliveries of each lane, by offset. After its claim: no earlier owner can add to them any more."""
    loaded: dict[LaneKey, list[RedeliveryRow]] = {lane: [] for lane in lanes}
    cursor = binary_cursor(conn)
    await cursor.execute(_LOAD_REDELIVERIES, {**key_columns(loaded), "limit": limit})
    # Made into objects by and by: of tens of thousands that would hold everybody up.
    while rows := await cursor.fetchmany(_ROWS_AT_ONCE):
        for group_id, member, queue_id, *row in rows:
            loaded[LaneKey(group_id, member, queue_id)].append(RedeliveryRow(*row))
        await asyncio.sleep(0)
    return loaded


class Renewal(NamedTuple):
    """What became of the leases that were to be renewed: those in neither set are renewed."""

    lost: set[LaneKey]
    """The lanes that have another owner, or another epoch."""
    held_up: set[LaneKey]
    """The lanes that are still ours, but whose row somebody has locked: their leases run on, and may be renewed a
    moment later."""


async def renew(conn: Connection, owner: UUID, lanes: Sequence[LaneEpoch], lease_seconds: float) -> Renewal:
    """Extend the leases of lanes that are still ours. Count the lease from before the call."""
    parameters = {**owned_columns(owner, lanes), "lease_seconds": lease_seconds}
    cursor = await conn.execute(_RENEW, parameters, binary=True)
    renewal = Renewal(set(), set())
    for *key, is_ours in await cursor.fetchall():
        (renewal.held_up if is_ours else renewal.lost).add(LaneKey(*key))
    return renewal


async def release(conn: Connection, owner: UUID, lanes: Sequence[LaneEpoch]) -> set[LaneKey]:
    """Give the lanes up, so that others need not wait for the leases; return those that are given up.

    The rest is not ours any more, or its row is locked: ask again later.
    """
    return await _guarded(conn, _RELEASE, owned_columns(owner, lanes))


async def _guarded(conn: Connection, statement: str, parameters: Parameters) -> set[LaneKey]:
    cursor = await conn.execute(statement, parameters, binary=True)
    return {LaneKey(*row) for row in await cursor.fetchall()}


def _ranges_above(acked_offset: int, acked_ranges: Multirange[int]) -> list[OffsetRange]:
    # Retention may have moved the offset into or past ranges that were noted before.
    bounds = [(r.lower, r.upper) for r in acked_ranges]
    return [
        (max(first, acked_offset), end)
        for first, end in bounds
        if first is not None and end is not None and end > acked_offset
    ]
