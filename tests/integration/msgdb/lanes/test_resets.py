"""Resets in the store: one transaction, whoever serves the lanes, and nothing of a former owner is written any more."""

from __future__ import annotations

import asyncio

import pytest

from msgdb.lanes.leases import claim, load_redeliveries, renew
from msgdb.lanes.records import LaneCheckpoint, LaneEpoch, LaneKey, LaneReset, LaneToClaim, RedeliveryUpsert
from msgdb.lanes.resets import (
    LanePlace,
    OutsideOfLogError,
    effect_of,
    find_leases,
    find_places,
    find_waiting,
    reset_lanes,
)
from msgdb.log.beginnings import keep_beginning
from msgdb.postgres.connections import Connection
from msgdb.postgres.failures import RowsHeldError
from msgdb.store import MessageStore
from tests.support.rows import GROUP, GROUP_NAMES, OTHER_OWNER, OWNER, lanes_to_claim, make_queue, persist, put_messages
from tests.support.waiting import until_someone_waits_for_a_lock

END = 20


async def served(conn: Connection, *, acked: int = 10, waiting: tuple[int, ...] = (3, 8, 11)) -> LaneEpoch:
    """Return a lane that has settled some of a queue of 20 messages, of which some wait for another attempt."""
    queue_id = await make_queue(conn)
    rows = await put_messages(conn, queue_id, range(END))
    (lane,) = await claim(conn, OWNER, lanes_to_claim([queue_id]), 60)
    upserts = [RedeliveryUpsert(o, rows[o].stored_at_us, 2, 60.0, None, "no") for o in waiting]
    mark = LaneCheckpoint(lane.key, lane.epoch, acked, [(12, 14)], redeliveries=upserts)
    await persist(conn, OWNER, [mark], GROUP_NAMES)
    return LaneEpoch(lane.key, lane.epoch)


async def reset(conn: Connection, queue_id: int, to_offset: int, *, floor: int = 0) -> dict[int, int]:
    async with conn.transaction():
        return await reset_lanes(conn, GROUP, {queue_id: to_offset}, 5, floor)


async def place_of(conn: Connection, lane: LaneEpoch) -> LanePlace:
    return (await find_places(conn, GROUP, [lane.key.queue_id]))[lane.key.queue_id]


@pytest.mark.parametrize(
    "to_offset, expected",
    [
        (20, LanePlace(20, [], [])),
        (13, LanePlace(13, [(13, 14)], [])),
        (11, LanePlace(11, [(12, 14)], [11])),
        (10, LanePlace(10, [(12, 14)], [11])),
        (9, LanePlace(9, [], [3, 8])),
        (5, LanePlace(5, [], [3])),
        (0, LanePlace(0, [], [])),
    ],
)
async def test_a_lane_is_put_where_it_is_to_go_with_what_waits_there(
    conn: Connection, to_offset: int, expected: LanePlace
) -> None:
    lane = await served(conn)
    before = await place_of(conn, lane)

    await reset(conn, lane.key.queue_id, to_offset)

    assert await place_of(conn, lane) == expected
    effect = effect_of(before, to_offset)
    assert effect.skipped_waiting + effect.anew == len(before.waiting) - len(expected.waiting)


async def test_a_former_owner_writes_nothing_any_more_and_keeps_its_lease_till_it_knows(conn: Connection) -> None:
    lane = await served(conn)
    epochs = await reset(conn, lane.key.queue_id, 5)

    leases = await find_leases(conn, GROUP, [lane.key.queue_id])
    assert epochs == {lane.key.queue_id: lane.epoch + 1}
    assert await find_waiting(conn, GROUP, leases) == {lane.key.queue_id: OWNER}
    assert await claim(conn, OTHER_OWNER, lanes_to_claim([lane.key.queue_id]), 60) == []
    assert await persist(conn, OWNER, [LaneCheckpoint(lane.key, lane.epoch, 20, [])], GROUP_NAMES) == set()
    assert (await renew(conn, OWNER, [lane], 60)).lost == {lane.key}

    (anew,) = await claim(conn, OWNER, lanes_to_claim([lane.key.queue_id]), 60)
    assert (anew.epoch, anew.acked_offset, anew.reset) == (lane.epoch + 2, 5, LaneReset(5, 5))
    assert await find_waiting(conn, GROUP, leases) == {}
    (waiting,) = (await load_redeliveries(conn, [lane.key])).values()
    assert [row.queue_offset for row in waiting] == [3]


async def test_it_is_obeyed_once_the_lease_of_an_owner_that_is_gone_has_passed(conn: Connection) -> None:
    lane = await served(conn)
    await reset(conn, lane.key.queue_id, 20)
    leases = await find_leases(conn, GROUP, [lane.key.queue_id])
    await conn.execute("UPDATE cursor SET lease_until = clock_timestamp() - interval '1 second'")

    assert await find_waiting(conn, GROUP, leases) == {}
    (taken,) = await claim(conn, OTHER_OWNER, lanes_to_claim([lane.key.queue_id]), 60)
    assert (taken.acked_offset, taken.reset) == (20, LaneReset(20, 5))


async def test_a_lane_that_nobody_ever_served_is_put_there_for_whoever_comes(conn: Connection) -> None:
    queue_id = await make_queue(conn)
    await put_messages(conn, queue_id, range(END))
    epochs = await reset(conn, queue_id, 7, floor=100)

    assert epochs == {queue_id: 101}
    assert await find_leases(conn, GROUP, [queue_id]) == {}
    (lane,) = await claim(conn, OWNER, [LaneToClaim(GROUP, "", queue_id, 15)], 60, epoch_floor=100)
    assert (lane.acked_offset, lane.reset, lane.epoch) == (7, LaneReset(7, 5), 102)


async def test_a_beginning_that_is_kept_for_a_version_is_waited_for_by_nobody(conn: Connection) -> None:
    queue_id = await make_queue(conn)
    await put_messages(conn, queue_id, range(END))
    async with conn.transaction():
        assert await keep_beginning(conn, GROUP, [queue_id], 3)

    await reset(conn, queue_id, 7)
    assert await find_waiting(conn, GROUP, await find_leases(conn, GROUP, [queue_id])) == {}


@pytest.mark.parametrize("to_offset", [-1, END + 1])
async def test_where_the_log_has_nothing_no_lane_is_put_and_none_of_the_others_either(
    conn: Connection, to_offset: int
) -> None:
    lane = await served(conn)
    other = await make_queue(conn, topic_id=2)
    await put_messages(conn, other, range(5))
    before = await place_of(conn, lane)

    with pytest.raises(OutsideOfLogError) as refused:
        async with conn.transaction():
            await reset_lanes(conn, GROUP, {other: 2, lane.key.queue_id: to_offset}, 5, 0)

    assert refused.value.outside == (lane.key.queue_id, to_offset, 0, END)
    assert await place_of(conn, lane) == before
    assert await find_places(conn, GROUP, [other]) == {}


async def test_a_checkpoint_that_is_under_way_is_waited_for_and_does_not_come_through(
    store: MessageStore, conn: Connection, database_url: str
) -> None:
    lane = await served(conn)
    async with store.transaction() as other:
        await other.execute("UPDATE cursor SET acked_offset = 19 WHERE queue_id = %s", (lane.key.queue_id,))
        resetting = asyncio.create_task(reset(conn, lane.key.queue_id, 15))
        await until_someone_waits_for_a_lock(other)
    await resetting

    # It went back, from where the checkpoint had left it.
    assert await place_of(conn, lane) == LanePlace(15, [], [3, 8, 11])


async def test_whoever_holds_a_cursor_for_long_makes_it_fail_as_a_whole(store: MessageStore, conn: Connection) -> None:
    lane = await served(conn)
    async with store.transaction() as other:
        await other.execute("SELECT 1 FROM cursor FOR UPDATE")

        async def try_it() -> None:
            async with store.transaction() as resetting:
                await reset_lanes(resetting, GROUP, {lane.key.queue_id: 0}, 5, 0, lock_seconds=0.05)

        with pytest.raises(RowsHeldError):
            await try_it()
    assert (await place_of(conn, lane)).acked_offset == 10


async def test_other_groups_stay_where_they_are(conn: Connection) -> None:
    lane = await served(conn)
    (other,) = await claim(conn, OWNER, [LaneToClaim(GROUP + 1, "", lane.key.queue_id, 4)], 60)
    await reset(conn, lane.key.queue_id, 0)

    assert other.key == LaneKey(GROUP + 1, "", lane.key.queue_id)
    assert (await find_places(conn, GROUP + 1, [lane.key.queue_id]))[lane.key.queue_id] == LanePlace(4, [], [])
    assert (await renew(conn, OWNER, [LaneEpoch(other.key, other.epoch)], 60)).lost == set()
