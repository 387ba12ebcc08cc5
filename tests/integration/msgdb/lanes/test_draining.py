"""What of a group is left below an end, by what is stored."""

from __future__ import annotations

import pytest

from msgdb.lanes.draining import LaneEnd, LaneLeft, find_left
from msgdb.lanes.leases import claim
from msgdb.lanes.records import SHELVED_SECONDS, ClaimedLane, LaneCheckpoint, RedeliveryUpsert
from msgdb.log.beginnings import keep_beginning
from msgdb.postgres.connections import Connection
from tests.support.rows import GROUP, GROUP_NAMES, OWNER, lanes_to_claim, make_queue, persist, put_messages

END = 20


async def served(conn: Connection, acked: int, ranges: list[tuple[int, int]], **waiting: list[int]) -> ClaimedLane:
    queue_id = await make_queue(conn)
    rows = await put_messages(conn, queue_id, range(END))
    (lane,) = await claim(conn, OWNER, lanes_to_claim([queue_id]), 60)
    upserts = [
        RedeliveryUpsert(o, rows[o].stored_at_us, 2, 60.0 + o, None, None) for o in waiting.get("redeliveries", [])
    ] + [
        RedeliveryUpsert(o, rows[o].stored_at_us, 1, SHELVED_SECONDS, None, None, "1")
        for o in waiting.get("shelved", [])
    ]
    await persist(conn, OWNER, [LaneCheckpoint(lane.key, lane.epoch, acked, ranges, upserts)], GROUP_NAMES)
    return lane


async def left_below(conn: Connection, queue_id: int, end: int, initial: int = 0) -> LaneLeft:
    (left,) = await find_left(conn, GROUP, [LaneEnd(queue_id, end, initial)])
    return left


@pytest.mark.parametrize(
    "end, behind, redeliveries, shelved",
    [(0, 0, 0, 0), (4, 0, 1, 0), (10, 0, 1, 1), (12, 1, 2, 1), (14, 3, 2, 1), (17, 4, 2, 1), (20, 7, 2, 1)],
)
async def test_what_is_left_is_counted_below_the_end_only(
    conn: Connection, end: int, behind: int, redeliveries: int, shelved: int
) -> None:
    lane = await served(conn, 10, [(11, 12), (14, 16)], redeliveries=[3, 11], shelved=[5])

    left = await left_below(conn, lane.key.queue_id, end)

    assert (left.behind, left.redeliveries, left.shelved) == (behind, redeliveries, shelved)
    assert left.unsettled == behind + redeliveries + shelved
    assert left.is_served


async def test_when_the_next_and_the_last_attempt_are_due_is_told_without_the_shelf(conn: Connection) -> None:
    lane = await served(conn, 10, [], redeliveries=[3, 4, 9], shelved=[5])

    left = await left_below(conn, lane.key.queue_id, 9)

    assert left.next_due_in_seconds == pytest.approx(63, abs=5)
    assert left.last_due_in_seconds == pytest.approx(64, abs=5)
    none = await left_below(conn, lane.key.queue_id, 0)
    assert (none.next_due_in_seconds, none.last_due_in_seconds) == (None, None)


async def test_a_lane_that_nobody_ever_served_is_behind_from_where_it_would_begin(conn: Connection) -> None:
    queue_id = await make_queue(conn)
    await put_messages(conn, queue_id, range(END))

    assert await left_below(conn, queue_id, END, 15) == (queue_id, 5, 0, 0, None, None, False)
    assert (await left_below(conn, queue_id, 10, 15)).unsettled == 0
    await conn.execute("UPDATE queue SET start_offset = 18")
    assert (await left_below(conn, queue_id, END, 15)).behind == 2


async def test_what_was_dropped_with_its_day_is_not_waited_for(conn: Connection) -> None:
    lane = await served(conn, 2, [(4, 6)])
    await conn.execute("UPDATE queue SET start_offset = 5")

    assert (await left_below(conn, lane.key.queue_id, 10)).behind == 4


async def test_neither_a_lease_that_has_passed_nor_a_beginning_that_is_kept_is_a_broker(conn: Connection) -> None:
    lane = await served(conn, 2, [])
    await conn.execute("UPDATE cursor SET lease_until = clock_timestamp() - interval '1 second'")
    assert not (await left_below(conn, lane.key.queue_id, END)).is_served

    kept = await make_queue(conn, topic_id=2)
    async with conn.transaction():
        assert await keep_beginning(conn, GROUP, [kept], 3)
    assert not (await left_below(conn, kept, END)).is_served
