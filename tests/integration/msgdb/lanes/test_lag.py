"""Lag, by the tables alone."""

from __future__ import annotations

import pytest

from msgbroker.contract.limits import REDELIVERIES_PER_LANE_MAX
from msgdb.lanes.lag import list_lag
from msgdb.lanes.leases import claim
from msgdb.lanes.records import LaneCheckpoint, LaneToClaim, MatchingShare, OffsetRange, RedeliveryUpsert
from msgdb.postgres.connections import Connection
from tests.support.rows import GROUP, OWNER, lanes_to_claim, make_queue, persist, put_messages


async def test_a_lane_is_behind_by_what_is_neither_settled_nor_moved(conn: Connection) -> None:
    queue_id = await make_queue(conn)
    old = await put_messages(conn, queue_id, range(5), days_ago=1)
    await put_messages(conn, queue_id, range(5, 20))
    (lane,) = await claim(conn, OWNER, lanes_to_claim([queue_id]), 60)
    upsert = RedeliveryUpsert(2, old[2].stored_at_us, 2, 60.0, None, None)
    await persist(conn, OWNER, [LaneCheckpoint(lane.key, 1, 8, [(10, 12)], [upsert])], {})

    (lag,) = await list_lag(conn)

    assert (lag.key, lag.topic_id, lag.ordinal) == (lane.key, 1, 0)
    assert (lag.acked_offset, lag.next_offset) == (8, 20)
    assert (lag.behind, lag.redeliveries, lag.unsettled) == (10, 1, 11)
    assert lag.oldest_stored_at_us == old[2].stored_at_us
    assert (lag.owner, lag.epoch) == (OWNER, 1)
    assert lag.lease_in_seconds is not None
    assert 0 < lag.lease_in_seconds <= 60


async def test_the_oldest_message_is_the_first_above_the_cursor(conn: Connection) -> None:
    queue_id = await make_queue(conn)
    await put_messages(conn, queue_id, range(5), days_ago=1)
    newer = await put_messages(conn, queue_id, range(5, 20))
    await claim(conn, OWNER, lanes_to_claim([queue_id], initial_offset=5), 60)

    (lag,) = await list_lag(conn)

    assert (lag.behind, lag.oldest_stored_at_us) == (15, newer[0].stored_at_us)


async def test_a_lane_that_has_caught_up_is_behind_by_nothing(conn: Connection) -> None:
    queue_id = await make_queue(conn)
    await put_messages(conn, queue_id, range(3))
    await claim(conn, OWNER, lanes_to_claim([queue_id], initial_offset=3), 60)

    (lag,) = await list_lag(conn)

    assert (lag.unsettled, lag.oldest_stored_at_us) == (0, None)


async def test_days_that_were_dropped_are_not_counted(conn: Connection) -> None:
    queue_id = await make_queue(conn)
    await put_messages(conn, queue_id, range(10, 15))
    await conn.execute("UPDATE queue SET start_offset = 10")
    await claim(conn, OWNER, lanes_to_claim([queue_id]), 60)

    (lag,) = await list_lag(conn)

    assert lag.behind == 5


async def test_settled_ranges_of_dropped_days_are_not_counted(conn: Connection) -> None:
    queue_id = await make_queue(conn)
    await put_messages(conn, queue_id, range(10, 15))
    (lane,) = await claim(conn, OWNER, lanes_to_claim([queue_id]), 60)
    await persist(conn, OWNER, [LaneCheckpoint(lane.key, 1, 0, [(2, 12)])], {})
    await conn.execute("UPDATE queue SET start_offset = 10")

    (lag,) = await list_lag(conn)

    assert lag.behind == 3


async def test_a_lane_with_as_many_redeliveries_as_may_be_is_alarmed(conn: Connection) -> None:
    queue_id = await make_queue(conn)
    await claim(conn, OWNER, lanes_to_claim([queue_id]), 60)
    insert = """
    INSERT INTO redelivery (group_id, member, queue_id, queue_offset, stored_at, attempt, due_at)
    SELECT %s, '', %s, o, now(), 2, now() FROM generate_series(%s::bigint, %s::bigint) o
    """
    await conn.execute(insert, (GROUP, queue_id, 2, REDELIVERIES_PER_LANE_MAX))
    assert [lag.alarm for lag in await list_lag(conn)] == [False]
    await conn.execute(insert, (GROUP, queue_id, 1, 1))
    assert [lag.alarm for lag in await list_lag(conn)] == [True]


async def test_lag_may_be_asked_for_some_groups(conn: Connection) -> None:
    queue_id = await make_queue(conn)
    await claim(conn, OWNER, [LaneToClaim(group_id, "", queue_id, 0) for group_id in (GROUP, GROUP + 1)], 60)

    assert [lag.group_id for lag in await list_lag(conn)] == [GROUP, GROUP + 1]
    assert [lag.group_id for lag in await list_lag(conn, [GROUP + 1])] == [GROUP + 1]
    assert await list_lag(conn, []) == []


@pytest.mark.parametrize(
    "share, read, ranges, matching",
    [
        # Nothing above the cursor is settled: nobody has read any of it.
        (0.1, 1_000.0, [], 10),
        (0.0, 1_000.0, [], 0),
        (1.0, 1_000.0, [], 100),
        # Learnt from too few.
        (0.1, 49.9, [], None),
        # Five of the 40 that were read match, and six of the other 60.
        (0.1, 1_000.0, [(2, 10), (11, 23), (24, 35), (36, 40)], 11),
        # All that was read is settled but for one, and there is nothing else.
        (0.01, 1_000.0, [(1, 100)], 1),
        # It was read to its end, and all that matches is with instances.
        (0.5, 1_000.0, [(offset, offset + 1) for offset in range(1, 100, 2)], 50),
        # Somebody has skipped a message far above of what was read.
        (0.1, 1_000.0, [(90, 91)], 10),
    ],
)
async def test_what_a_lane_is_behind_by_matches_by_the_share_that_was_learnt(
    conn: Connection, share: float, read: float, ranges: list[OffsetRange], matching: int | None
) -> None:
    queue_id = await make_queue(conn)
    await put_messages(conn, queue_id, range(100))
    (lane,) = await claim(conn, OWNER, lanes_to_claim([queue_id]), 60)
    await persist(conn, OWNER, [LaneCheckpoint(lane.key, 1, 0, ranges, matching=MatchingShare(8, share, read))], {})

    (lag,) = await list_lag(conn)

    assert lag.matching_of(8) == matching
    assert lag.matching_of(9) is None
