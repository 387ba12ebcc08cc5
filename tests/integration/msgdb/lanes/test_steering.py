"""Steering in the store: one message is skipped or due at once, and nothing of a former owner is written any more."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from msgdb.lanes.leases import claim, load_redeliveries, renew
from msgdb.lanes.records import SHELVED_SECONDS, DeadLetterMove, LaneCheckpoint, LaneEpoch, RedeliveryUpsert
from msgdb.lanes.resets import LanePlace, find_leases, find_places, find_waiting, reset_lanes
from msgdb.lanes.steering import (
    LaneSteered,
    StandByRows,
    Standing,
    SteeredMessage,
    count_others,
    find_stand,
    hold_lane,
    retry_message_now,
    skip_message,
)
from msgdb.log.copies import find_copy_at
from msgdb.postgres.connections import Connection
from msgdb.postgres.failures import RowsHeldError
from msgdb.store import MessageStore
from tests.support.rows import GROUP, GROUP_NAMES, OTHER_OWNER, OWNER, lanes_to_claim, make_queue, persist, put_messages
from tests.support.waiting import until_someone_waits_for_a_lock

END = 20
ACKED, SETTLED_ABOVE = 10, (12, 14)
WAITING_BELOW, SHELVED_BELOW, WAITING_ABOVE, UNREAD = 3, 5, 11, 16


async def served(conn: Connection) -> LaneEpoch:
    """Return a lane that has settled some of a queue of 20 messages, of which some wait."""
    queue_id = await make_queue(conn)
    rows = await put_messages(conn, queue_id, range(END))
    (lane,) = await claim(conn, OWNER, lanes_to_claim([queue_id]), 60)
    upserts = [
        RedeliveryUpsert(o, rows[o].stored_at_us, 3, 60.0, None, "no") for o in (WAITING_BELOW, WAITING_ABOVE)
    ] + [RedeliveryUpsert(SHELVED_BELOW, rows[SHELVED_BELOW].stored_at_us, 2, SHELVED_SECONDS, None, "no", "1")]
    ranges = [(WAITING_ABOVE, SETTLED_ABOVE[1])]
    await persist(conn, OWNER, [LaneCheckpoint(lane.key, lane.epoch, ACKED, ranges, upserts)], GROUP_NAMES)
    return LaneEpoch(lane.key, lane.epoch)


async def message_at(conn: Connection, queue_id: int, offset: int, initial_offset: int = 0) -> SteeredMessage:
    copy = await find_copy_at(conn, queue_id, offset)
    assert copy is not None
    return SteeredMessage(GROUP, GROUP_NAMES[GROUP], copy, initial_offset)


async def skip(conn: Connection, message: SteeredMessage, floor: int = 0) -> tuple[StandByRows, LaneSteered]:
    async with conn.transaction():
        stand = await hold_lane(conn, message, floor)
        return stand, await skip_message(conn, message, stand, floor)


async def retry_now(conn: Connection, message: SteeredMessage) -> LaneSteered:
    async with conn.transaction():
        await hold_lane(conn, message, 0)
        return await retry_message_now(conn, message, 0)


async def place_of(conn: Connection, lane: LaneEpoch) -> LanePlace:
    return (await find_places(conn, GROUP, [lane.key.queue_id]))[lane.key.queue_id]


async def letters(conn: Connection) -> list[tuple[Any, ...]]:
    read = await conn.execute(
        "SELECT id, group_name, queue_offset, attempts, reason, last_error, octet_length(body) FROM dead_letter"
    )
    return await read.fetchall()


@pytest.mark.parametrize(
    "offset, standing, attempt",
    [
        (0, Standing.SETTLED, 1),
        (WAITING_BELOW, Standing.WAITING, 3),
        (SHELVED_BELOW, Standing.SHELVED, 2),
        (ACKED, Standing.UNSETTLED, 1),
        (WAITING_ABOVE, Standing.WAITING, 3),
        (SETTLED_ABOVE[0], Standing.SETTLED, 1),
        (SETTLED_ABOVE[1], Standing.UNSETTLED, 1),
        (UNREAD, Standing.UNSETTLED, 1),
        (END - 1, Standing.UNSETTLED, 1),
    ],
)
async def test_where_a_message_stands_is_what_its_cursor_and_its_row_say(
    conn: Connection, offset: int, standing: Standing, attempt: int
) -> None:
    lane = await served(conn)

    stand = await find_stand(conn, await message_at(conn, lane.key.queue_id, offset))

    assert (stand.standing, stand.attempt) == (standing, attempt)


@pytest.mark.parametrize(
    "offset, place, attempts, last_error",
    [
        (WAITING_BELOW, LanePlace(10, [(11, 14)], [5, 11]), 2, "no"),
        (SHELVED_BELOW, LanePlace(10, [(11, 14)], [3, 11]), 1, "no"),
        (ACKED, LanePlace(14, [], [3, 5, 11]), 0, None),
        (WAITING_ABOVE, LanePlace(10, [(11, 14)], [3, 5]), 2, "no"),
        (UNREAD, LanePlace(10, [(11, 14), (16, 17)], [3, 5, 11]), 0, None),
    ],
)
async def test_a_skipped_message_is_a_dead_letter_and_the_rest_of_its_lane_is_where_it_was(
    conn: Connection, offset: int, place: LanePlace, attempts: int, last_error: str | None
) -> None:
    lane = await served(conn)
    message = await message_at(conn, lane.key.queue_id, offset)

    _, steered = await skip(conn, message)

    assert await place_of(conn, lane) == place
    assert await letters(conn) == [
        (steered.dead_letter_id, GROUP_NAMES[GROUP], offset, attempts, "SKIPPED", last_error, 10)
    ]
    stand = await find_stand(conn, message)
    assert (stand.standing, stand.dead_letter_id) == (Standing.SETTLED, steered.dead_letter_id)


async def test_what_is_skipped_is_counted_once_as_a_dead_letter(conn: Connection) -> None:
    lane = await served(conn)
    await skip(conn, await message_at(conn, lane.key.queue_id, UNREAD))
    await skip(conn, await message_at(conn, lane.key.queue_id, WAITING_BELOW))
    async with conn.transaction():
        await reset_lanes(conn, GROUP, {lane.key.queue_id: 0}, 5, 0)
    # It was one before, and stays that one.
    await skip(conn, await message_at(conn, lane.key.queue_id, UNREAD))

    counted = await conn.execute("SELECT group_id, topic_id, sum(dead_lettered) FROM usage_minute GROUP BY 1, 2")

    assert await counted.fetchall() == [(GROUP, 1, 2)]


@pytest.mark.parametrize(
    "offset, place, attempt",
    [
        (WAITING_BELOW, LanePlace(10, [(11, 14)], [3, 5, 11]), 3),
        (ACKED, LanePlace(14, [], [3, 5, 10, 11]), 1),
        (WAITING_ABOVE, LanePlace(10, [(11, 14)], [3, 5, 11]), 3),
        (UNREAD, LanePlace(10, [(11, 14), (16, 17)], [3, 5, 11, 16]), 1),
    ],
)
async def test_a_message_that_is_to_be_tried_now_is_due_as_the_attempt_that_it_was(
    conn: Connection, offset: int, place: LanePlace, attempt: int
) -> None:
    lane = await served(conn)

    await retry_now(conn, await message_at(conn, lane.key.queue_id, offset))

    assert await place_of(conn, lane) == place
    (rows,) = (await load_redeliveries(conn, [lane.key])).values()
    assert [(row.attempt, row.due_in_seconds <= 0) for row in rows if row.queue_offset == offset] == [(attempt, True)]
    # The others wait on, as they did.
    others = {row.queue_offset: (row.attempt, row.shelved_by) for row in rows if row.queue_offset != offset}
    assert others.items() <= {3: (3, None), 5: (2, "1"), 11: (3, None)}.items()
    assert all(row.due_in_seconds > 50 for row in rows if row.queue_offset != offset)
    assert await letters(conn) == []


async def test_a_former_owner_writes_nothing_any_more_and_keeps_its_lease_till_it_knows(conn: Connection) -> None:
    lane = await served(conn)
    message = await message_at(conn, lane.key.queue_id, UNREAD)
    _, steered = await skip(conn, message)
    leases = await find_leases(conn, GROUP, [lane.key.queue_id])

    assert steered.epoch == lane.epoch + 1
    assert await find_waiting(conn, GROUP, leases) == {lane.key.queue_id: OWNER}
    assert await claim(conn, OTHER_OWNER, lanes_to_claim([lane.key.queue_id]), 60) == []
    late = LaneCheckpoint(
        lane.key, lane.epoch, END, [], dead_letters=[DeadLetterMove(UNREAD, 0, 1, "REJECTED", None, had_row=False)]
    )
    assert await persist(conn, OWNER, [late], GROUP_NAMES) == set()
    assert (await renew(conn, OWNER, [lane], 60)).lost == {lane.key}

    (anew,) = await claim(conn, OWNER, lanes_to_claim([lane.key.queue_id]), 60)
    assert (anew.epoch, anew.acked_offset, anew.acked_ranges) == (lane.epoch + 2, ACKED, [(11, 14), (16, 17)])
    assert await find_waiting(conn, GROUP, leases) == {}


@pytest.mark.parametrize("acked", [UNREAD + 1, UNREAD])
async def test_a_checkpoint_that_is_under_way_is_waited_for_and_what_it_settled_is_not_skipped(
    store: MessageStore, conn: Connection, acked: int
) -> None:
    lane = await served(conn)
    message = await message_at(conn, lane.key.queue_id, UNREAD)
    async with store.transaction() as other:
        await other.execute("UPDATE cursor SET acked_offset = %s WHERE queue_id = %s", (acked, lane.key.queue_id))

        async def look() -> StandByRows:
            async with conn.transaction():
                return await hold_lane(conn, message, 0)

        holding = asyncio.create_task(look())
        await until_someone_waits_for_a_lock(other)
    stand = await holding

    assert stand.standing is (Standing.SETTLED if acked > UNREAD else Standing.UNSETTLED)


async def test_of_two_who_skip_the_same_message_the_second_finds_it_settled(
    store: MessageStore, conn: Connection
) -> None:
    lane = await served(conn)
    message = await message_at(conn, lane.key.queue_id, WAITING_BELOW)
    async with store.transaction() as first:
        stand = await hold_lane(first, message, 0)
        await skip_message(first, message, stand, 0)

        async def look() -> StandByRows:
            async with conn.transaction():
                return await hold_lane(conn, message, 0)

        second = asyncio.create_task(look())
        await until_someone_waits_for_a_lock(first)
    assert (await second).standing is Standing.SETTLED
    assert len(await letters(conn)) == 1


async def test_a_row_that_goes_with_its_day_just_now_is_waited_for(store: MessageStore, conn: Connection) -> None:
    lane = await served(conn)
    message = await message_at(conn, lane.key.queue_id, WAITING_BELOW)
    async with store.transaction() as expiring:
        await expiring.execute("DELETE FROM redelivery WHERE queue_offset = %s", (WAITING_BELOW,))

        async def look() -> StandByRows:
            async with conn.transaction():
                return await hold_lane(conn, message, 0)

        holding = asyncio.create_task(look())
        await until_someone_waits_for_a_lock(expiring)
    assert (await holding).standing is Standing.SETTLED


async def test_whoever_holds_the_lane_for_long_makes_it_fail_and_nothing_is_changed(
    store: MessageStore, conn: Connection
) -> None:
    lane = await served(conn)
    message = await message_at(conn, lane.key.queue_id, UNREAD)
    before = await place_of(conn, lane)
    async with store.transaction() as other:
        await other.execute("SELECT 1 FROM cursor FOR UPDATE")

        async def try_it() -> None:
            async with store.transaction() as steering:
                await hold_lane(steering, message, 0, lock_seconds=0.05)

        with pytest.raises(RowsHeldError):
            await try_it()
    assert await place_of(conn, lane) == before


async def test_a_lane_that_nobody_ever_served_begins_where_its_subscriptions_do(conn: Connection) -> None:
    queue_id = await make_queue(conn)
    await put_messages(conn, queue_id, range(END))
    before_it = await message_at(conn, queue_id, 3, initial_offset=4)
    assert (await find_stand(conn, before_it)).standing is Standing.SETTLED

    _, steered = await skip(conn, await message_at(conn, queue_id, 9, initial_offset=4), floor=100)

    assert steered.epoch == 101
    assert await find_leases(conn, GROUP, [queue_id]) == {}
    (lane,) = await claim(conn, OWNER, lanes_to_claim([queue_id], initial_offset=7), 60, epoch_floor=100)
    assert (lane.acked_offset, lane.acked_ranges) == (4, [(9, 10)])


async def test_what_was_a_dead_letter_before_the_group_was_put_back_stays_that_one(conn: Connection) -> None:
    lane = await served(conn)
    message = await message_at(conn, lane.key.queue_id, UNREAD)
    _, first = await skip(conn, message)
    async with conn.transaction():
        await reset_lanes(conn, GROUP, {lane.key.queue_id: 0}, 5, 0)
    assert (await find_stand(conn, message)).standing is Standing.UNSETTLED

    _, again = await skip(conn, message)

    assert again.dead_letter_id == first.dead_letter_id
    assert len(await letters(conn)) == 1
    assert (await find_stand(conn, message)).standing is Standing.SETTLED


async def test_other_groups_and_other_lanes_stay_as_they_are(conn: Connection) -> None:
    lane = await served(conn)
    others = lanes_to_claim([lane.key.queue_id])
    (other,) = await claim(conn, OWNER, [replace_group(others[0])], 60)

    await skip(conn, await message_at(conn, lane.key.queue_id, UNREAD))

    assert (await renew(conn, OWNER, [LaneEpoch(other.key, other.epoch)], 60)).lost == set()
    assert (await find_places(conn, GROUP + 1, [lane.key.queue_id]))[lane.key.queue_id] == LanePlace(0, [], [])


def replace_group(lane: Any) -> Any:
    return lane._replace(group_id=GROUP + 1)


async def test_the_others_that_may_come_again_are_those_that_an_owner_may_have_handed_out(conn: Connection) -> None:
    lane = await served(conn)
    message = await message_at(conn, lane.key.queue_id, UNREAD)
    # 10 and 14 to 19, without the message itself; what waits is not due.
    assert await count_others(conn, message, 100) == 6
    assert await count_others(conn, message, 4) == 1
    await conn.execute("UPDATE redelivery SET due_at = clock_timestamp() WHERE queue_offset = 3")
    assert await count_others(conn, message, 100) == 7

    await conn.execute("UPDATE cursor SET lease_until = clock_timestamp() - interval '1 second'")
    assert await count_others(conn, message, 100) == 0


async def test_a_second_one_does_not_make_the_first_one_obeyed(conn: Connection) -> None:
    lane = await served(conn)
    await skip(conn, await message_at(conn, lane.key.queue_id, UNREAD))
    leases = await find_leases(conn, GROUP, [lane.key.queue_id])
    await skip(conn, await message_at(conn, lane.key.queue_id, END - 1))

    # Its owner knows of neither, and may be handing out both.
    assert await find_waiting(conn, GROUP, leases) == {lane.key.queue_id: OWNER}
    (anew,) = await claim(conn, OWNER, lanes_to_claim([lane.key.queue_id]), 60)
    assert anew.epoch == lane.epoch + 3
    assert await find_waiting(conn, GROUP, leases) == {}
