"""Cursors beyond the end of a log that lost its end."""

from __future__ import annotations

from msgdb.lanes.leases import claim, load_redeliveries, release
from msgdb.lanes.lost_log import clamp_to_ends
from msgdb.lanes.records import LaneCheckpoint, LaneEpoch, LaneKey, OffsetRange, RedeliveryUpsert
from msgdb.lanes.reset_acts import list_put_back_acts
from msgdb.postgres.connections import Connection
from tests.support.rows import GROUP, OTHER_OWNER, OWNER, lanes_to_claim, make_queue, persist, put_messages


async def settled(
    conn: Connection, queue_id: int, acked_offset: int, ranges: list[OffsetRange], *waiting: RedeliveryUpsert
) -> LaneEpoch:
    """Return a lane that was just claimed, after a checkpoint of an earlier owner's."""
    (first,) = await claim(conn, OWNER, lanes_to_claim([queue_id]), 60)
    mark = LaneCheckpoint(first.key, first.epoch, acked_offset, ranges, list(waiting))
    await persist(conn, OWNER, [mark], {})
    await release(conn, OWNER, [LaneEpoch(first.key, first.epoch)])
    (again,) = await claim(conn, OTHER_OWNER, lanes_to_claim([queue_id]), 60)
    return LaneEpoch(again.key, again.epoch)


async def lose_from(conn: Connection, queue_id: int, offset: int) -> None:
    """Take the end of the log away."""
    await conn.execute("DELETE FROM message WHERE queue_id = %s AND queue_offset >= %s", (queue_id, offset))


async def progress(conn: Connection, queue_id: int) -> tuple[int, list[OffsetRange]]:
    """Return what the lane's cursor has behind it."""
    (lane,) = await claim(conn, OTHER_OWNER, lanes_to_claim([queue_id]), 60)
    return lane.acked_offset, lane.acked_ranges


async def test_a_cursor_beyond_the_end_is_brought_back_to_it_for_good(conn: Connection) -> None:
    queue_id = await make_queue(conn)
    await put_messages(conn, queue_id, range(20), days_ago=1)
    lane = await settled(conn, queue_id, 15, [(17, 19)])
    await lose_from(conn, queue_id, 10)

    assert await clamp_to_ends(conn, OTHER_OWNER, [lane]) == {lane.key: 10}
    assert await progress(conn, queue_id) == (10, [])


async def test_that_a_lane_was_put_back_is_noted_with_it(conn: Connection) -> None:
    queue_id, other = await make_queue(conn), await make_queue(conn, 2)
    await put_messages(conn, queue_id, range(20), days_ago=1)
    lane = await settled(conn, queue_id, 15, [])
    await lose_from(conn, queue_id, 10)

    await clamp_to_ends(conn, OTHER_OWNER, [lane])
    await clamp_to_ends(conn, OTHER_OWNER, [lane])

    (act,) = await list_put_back_acts(conn, queue_id)
    assert (act.group_id, act.to_offset, act.goes_back) == (GROUP, 10, True)
    assert (act.actor, act.reason) == (f"broker {OTHER_OWNER}", "the log had lost its end")
    assert await list_put_back_acts(conn, other) == []


async def test_ranges_beyond_the_end_go_and_those_below_it_stay(conn: Connection) -> None:
    queue_id = await make_queue(conn)
    await put_messages(conn, queue_id, range(20), days_ago=1)
    lane = await settled(conn, queue_id, 2, [(4, 6), (8, 12), (15, 20)])
    await lose_from(conn, queue_id, 10)

    assert await clamp_to_ends(conn, OTHER_OWNER, [lane]) == {lane.key: 10}
    assert await progress(conn, queue_id) == (2, [(4, 6), (8, 10)])


async def test_redeliveries_beyond_the_end_do_not_stand_for_what_is_stored_there_next(conn: Connection) -> None:
    queue_id = await make_queue(conn)
    rows = await put_messages(conn, queue_id, range(20), days_ago=1)
    waiting = [RedeliveryUpsert(offset, rows[offset].stored_at_us, 2, 60.0, None, None) for offset in (3, 12)]
    lane = await settled(conn, queue_id, 8, [], *waiting)
    await lose_from(conn, queue_id, 10)

    assert await clamp_to_ends(conn, OTHER_OWNER, [lane]) == {lane.key: 10}
    loaded = await load_redeliveries(conn, [lane.key])
    assert [row.queue_offset for row in loaded[lane.key]] == [3]


async def test_what_was_stored_there_before_the_loss_was_noticed_is_not_passed(conn: Connection) -> None:
    queue_id = await make_queue(conn)
    await put_messages(conn, queue_id, range(20), days_ago=1)
    lane = await settled(conn, queue_id, 20, [])
    await lose_from(conn, queue_id, 10)
    await put_messages(conn, queue_id, range(10, 15))

    assert await clamp_to_ends(conn, OTHER_OWNER, [lane]) == {lane.key: 10}
    assert await progress(conn, queue_id) == (10, [])


async def test_a_lane_that_is_suspected_is_brought_back_though_the_log_reaches_beyond_it_again(
    conn: Connection,
) -> None:
    queue_id = await make_queue(conn)
    await put_messages(conn, queue_id, range(20), days_ago=1)
    lane = await settled(conn, queue_id, 20, [])
    await lose_from(conn, queue_id, 10)
    await put_messages(conn, queue_id, range(10, 40))

    assert await clamp_to_ends(conn, OTHER_OWNER, [lane]) == {}
    assert await clamp_to_ends(conn, OTHER_OWNER, [lane], {lane.key}) == {lane.key: 10}
    assert await progress(conn, queue_id) == (10, [])


async def test_lanes_within_their_logs_are_left_alone(conn: Connection) -> None:
    at_the_end, dropped, empty = [await make_queue(conn, topic_id) for topic_id in (1, 2, 3)]
    await put_messages(conn, at_the_end, range(20))
    lanes = [
        await settled(conn, at_the_end, 20, []),
        await settled(conn, dropped, 50, []),
        await settled(conn, empty, 0, []),
    ]
    # All its days are gone; its row of `queue` says where it was.
    await conn.execute("UPDATE queue SET start_offset = 50 WHERE queue_id = %s", (dropped,))

    assert await clamp_to_ends(conn, OTHER_OWNER, lanes) == {}


async def test_a_lane_that_another_broker_has_is_left_alone(conn: Connection) -> None:
    queue_id = await make_queue(conn)
    lane = await settled(conn, queue_id, 5, [])

    assert await clamp_to_ends(conn, OWNER, [lane], {lane.key}) == {}
    assert await clamp_to_ends(conn, OTHER_OWNER, [lane._replace(epoch=lane.epoch - 1)], {lane.key}) == {}
    assert await clamp_to_ends(conn, OTHER_OWNER, [LaneEpoch(LaneKey(GROUP + 1, "", queue_id), 1)]) == {}
