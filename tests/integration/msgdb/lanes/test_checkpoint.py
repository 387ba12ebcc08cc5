"""Checkpoints: all of a lane or nothing of it, and nothing of a stale owner's."""

from __future__ import annotations

import psycopg
import pytest

from msgbroker.engine.matching_share import MatchingMeter
from msgdb.dead_letters.reading import get_dead_letter, list_dead_letters
from msgdb.lanes.checkpoints import Checkpointed
from msgdb.lanes.leases import claim, have_redeliveries, load_redeliveries
from msgdb.lanes.records import (
    NOTHING_LEARNT,
    ClaimedLane,
    DeadLetterMove,
    LaneCheckpoint,
    LaneKey,
    MatchingShare,
    RedeliveryUpsert,
)
from msgdb.log.reads import MessageRow
from msgdb.postgres.connections import Connection
from msgdb.postgres.failures import RowsHeldError
from msgdb.store import MessageStore
from tests.support.rows import (
    GROUP_NAMES,
    OTHER_OWNER,
    OWNER,
    keys_of,
    lanes_to_claim,
    make_queue,
    persist,
    put_messages,
    write_checkpoint,
)


def waiting(row: MessageRow, attempt: int = 2, due_in_seconds: float = 60.0) -> RedeliveryUpsert:
    return RedeliveryUpsert(row.queue_offset, row.stored_at_us, attempt, due_in_seconds, None, "it failed")


def dead(row: MessageRow, *, had_row: bool = False) -> DeadLetterMove:
    return DeadLetterMove(row.queue_offset, row.stored_at_us, 3, "REJECTED", "never again", had_row)


async def claim_one(conn: Connection, queue_id: int) -> ClaimedLane:
    (lane,) = await claim(conn, OWNER, lanes_to_claim([queue_id]), 60)
    return lane


async def test_progress_is_there_for_the_next_owner(conn: Connection) -> None:
    lane = await claim_one(conn, 1)

    persisted = await persist(conn, OWNER, [LaneCheckpoint(lane.key, 1, 20, [(22, 25), (30, 31)])], GROUP_NAMES)

    assert persisted == {lane.key}
    next_owned = await claim_one(conn, 1)
    assert (next_owned.acked_offset, next_owned.acked_ranges) == (20, [(22, 25), (30, 31)])


async def test_what_was_learnt_of_matching_is_there_for_the_next_owner(conn: Connection) -> None:
    lane, other = await claim(conn, OWNER, lanes_to_claim([1, 2]), 60)
    assert (lane.matching, other.matching) == (NOTHING_LEARNT, NOTHING_LEARNT)
    # What does not fit into a real is written as well as it goes.
    marks = [
        LaneCheckpoint(lane.key, 1, 20, [], matching=MatchingShare(-(2**63), 0.1, 9_999.5)),
        LaneCheckpoint(other.key, 1, 20, [], matching=MatchingShare(8, 1e-7, 50.0)),
    ]

    await persist(conn, OWNER, marks, GROUP_NAMES)

    again = await claim(conn, OWNER, lanes_to_claim([1, 2]), 60)
    found = {lane.key: lane.matching for lane in again}
    assert found == {mark.key: pytest.approx(mark.matching) for mark in marks}


async def test_a_lane_goes_on_after_a_million_messages_that_its_group_does_not_get(conn: Connection) -> None:
    lane, other = await claim(conn, OWNER, lanes_to_claim([1, 2]), 60)
    meter = MatchingMeter(lane.matching)
    meter.read = meter.matched = 1
    meter.share(0)
    meter.read = 1_100_000
    learnt = meter.share(0)
    marks = [
        LaneCheckpoint(lane.key, 1, 1_100_001, [], matching=learnt),
        LaneCheckpoint(other.key, 1, 20, []),
    ]

    persisted = await persist(conn, OWNER, marks, GROUP_NAMES)

    assert persisted == {lane.key, other.key}


async def test_redeliveries_are_there_for_the_next_owner(conn: Connection) -> None:
    queue_id = await make_queue(conn)
    rows = await put_messages(conn, queue_id, range(3))
    lane = await claim_one(conn, queue_id)
    upserts = [waiting(rows[0]), RedeliveryUpsert(2, rows[2].stored_at_us, 5, -3.0, "order-1", None)]

    await persist(conn, OWNER, [LaneCheckpoint(lane.key, 1, 3, [], upserts)], GROUP_NAMES)

    first, second = (await load_redeliveries(conn, [lane.key]))[lane.key]
    assert (first.queue_offset, first.stored_at_us, first.attempt) == (0, rows[0].stored_at_us, 2)
    assert 50 < first.due_in_seconds <= 60
    assert (second.queue_offset, second.attempt, second.ordering_key) == (2, 5, "order-1")
    assert second.due_in_seconds <= -3


async def test_a_redelivery_is_replaced_by_its_next_attempt(conn: Connection) -> None:
    queue_id = await make_queue(conn)
    (row,) = await put_messages(conn, queue_id, range(1))
    lane = await claim_one(conn, queue_id)
    await persist(conn, OWNER, [LaneCheckpoint(lane.key, 1, 1, [], [waiting(row)])], GROUP_NAMES)
    await persist(conn, OWNER, [LaneCheckpoint(lane.key, 1, 1, [], [waiting(row, attempt=3)])], GROUP_NAMES)

    (loaded,) = (await load_redeliveries(conn, [lane.key]))[lane.key]
    assert loaded.attempt == 3


async def test_a_redelivery_that_is_done_with_is_deleted(conn: Connection) -> None:
    queue_id = await make_queue(conn)
    rows = await put_messages(conn, queue_id, range(2))
    lane = await claim_one(conn, queue_id)
    await persist(conn, OWNER, [LaneCheckpoint(lane.key, 1, 2, [], [waiting(row) for row in rows])], GROUP_NAMES)
    await persist(conn, OWNER, [LaneCheckpoint(lane.key, 1, 2, [], redelivered=[0])], GROUP_NAMES)

    assert [row.queue_offset for row in (await load_redeliveries(conn, [lane.key]))[lane.key]] == [1]


async def test_a_dead_letter_is_a_full_copy_and_takes_its_redelivery_along(conn: Connection) -> None:
    queue_id = await make_queue(conn)
    rows = await put_messages(conn, queue_id, range(2), days_ago=1)
    lane = await claim_one(conn, queue_id)
    await persist(conn, OWNER, [LaneCheckpoint(lane.key, 1, 2, [], [waiting(row) for row in rows])], GROUP_NAMES)

    mark = LaneCheckpoint(lane.key, 1, 2, [], dead_letters=[dead(rows[1], had_row=True)])
    await persist(conn, OWNER, [mark], GROUP_NAMES)

    assert [row.queue_offset for row in (await load_redeliveries(conn, [lane.key]))[lane.key]] == [0]
    (summary,) = (await list_dead_letters(conn)).items
    assert (summary.group_name, summary.attempts, summary.reason) == ("SG_POINTS", 3, "REJECTED")
    assert (summary.message_id, summary.stored_at_us) == (rows[1].message_id, rows[1].stored_at_us)
    assert (summary.key, summary.headers) == ("key-1", {"region": "hz"})
    assert (await get_dead_letter(conn, summary.dead_letter_id)).body == rows[1].body


async def test_a_checkpoint_whose_answer_was_lost_may_be_repeated(conn: Connection) -> None:
    queue_id = await make_queue(conn)
    rows = await put_messages(conn, queue_id, range(2))
    lane = await claim_one(conn, queue_id)
    mark = LaneCheckpoint(lane.key, 1, 1, [], [waiting(rows[1])], dead_letters=[dead(rows[0])])

    for _ in range(2):
        assert await persist(conn, OWNER, [mark], GROUP_NAMES) == {lane.key}

    assert [letter.queue_offset for letter in (await list_dead_letters(conn)).items] == [0]
    assert [row.queue_offset for row in (await load_redeliveries(conn, [lane.key]))[lane.key]] == [1]


async def test_a_stale_epoch_changes_nothing(conn: Connection) -> None:
    queue_id = await make_queue(conn)
    rows = await put_messages(conn, queue_id, range(3))
    lane = await claim_one(conn, queue_id)
    await claim_one(conn, queue_id)

    mark = LaneCheckpoint(lane.key, lane.epoch, 3, [], [waiting(rows[0])], [1], [dead(rows[2])])
    persisted = await persist(conn, OWNER, [mark], GROUP_NAMES)

    assert persisted == set()
    assert (await claim_one(conn, queue_id)).acked_offset == 0
    assert await load_redeliveries(conn, [lane.key]) == {lane.key: []}
    assert (await list_dead_letters(conn)).items == []


async def test_another_owner_changes_nothing_even_with_the_right_epoch(conn: Connection) -> None:
    lane = await claim_one(conn, 1)

    assert await persist(conn, OTHER_OWNER, [LaneCheckpoint(lane.key, lane.epoch, 3, [])], GROUP_NAMES) == set()
    assert (await claim_one(conn, 1)).acked_offset == 0


async def test_a_stale_lane_does_not_disturb_the_others_of_its_checkpoint(conn: Connection) -> None:
    queue_ids = [await make_queue(conn, topic_id) for topic_id in (1, 2)]
    rows = [(await put_messages(conn, queue_id, range(1)))[0] for queue_id in queue_ids]
    lanes = [await claim_one(conn, queue_id) for queue_id in queue_ids]
    stale, living = lanes
    await claim_one(conn, stale.key.queue_id)

    marks = [LaneCheckpoint(lane.key, lane.epoch, 1, [], [waiting(row)]) for lane, row in zip(lanes, rows, strict=True)]
    assert await persist(conn, OWNER, marks, GROUP_NAMES) == {living.key}

    loaded = await load_redeliveries(conn, [stale.key, living.key])
    assert [len(loaded[key]) for key in (stale.key, living.key)] == [0, 1]


async def test_a_cursor_does_not_move_without_its_redeliveries(conn: Connection) -> None:
    lane = await claim_one(conn, 1)
    impossible = RedeliveryUpsert(0, 0, 2**40, 1.0, None, None)

    with pytest.raises(psycopg.errors.NumericValueOutOfRange):
        await persist(conn, OWNER, [LaneCheckpoint(lane.key, 1, 5, [], [impossible])], GROUP_NAMES)

    assert (await claim_one(conn, 1)).acked_offset == 0


async def test_an_offset_that_retention_moved_up_is_not_moved_back(conn: Connection) -> None:
    lane = await claim_one(conn, 1)
    await conn.execute("UPDATE cursor SET acked_offset = 50")

    await persist(conn, OWNER, [LaneCheckpoint(lane.key, 1, 10, [(20, 60), (70, 71)])], GROUP_NAMES)

    again = await claim_one(conn, 1)
    assert (again.acked_offset, again.acked_ranges) == (50, [(50, 60), (70, 71)])


async def test_a_new_owner_comes_after_a_checkpoint_that_has_begun(store: MessageStore, conn: Connection) -> None:
    queue_id = await make_queue(conn)
    (row,) = await put_messages(conn, queue_id, range(1))
    (lane,) = await claim(conn, OWNER, lanes_to_claim([queue_id]), 0)
    wanted = lanes_to_claim([queue_id])
    async with store.transaction() as checkpointing:
        await persist(checkpointing, OWNER, [LaneCheckpoint(lane.key, 1, 1, [], [waiting(row)])], GROUP_NAMES)
        assert await claim(conn, OTHER_OWNER, wanted, 60) == []

    (taken,) = await claim(conn, OTHER_OWNER, wanted, 60)
    redeliveries = (await load_redeliveries(conn, [lane.key]))[lane.key]

    # The old owner's last word, all of it: nothing comes afterwards.
    assert (taken.epoch, taken.acked_offset, len(redeliveries)) == (2, 1, 1)


async def test_a_dead_letter_of_a_dropped_day_does_not_stop_the_lane(conn: Connection) -> None:
    lane = await claim_one(conn, 1)
    gone = DeadLetterMove(0, 0, 3, "REJECTED", None, had_row=False)

    assert await persist(conn, OWNER, [LaneCheckpoint(lane.key, 1, 1, [], dead_letters=[gone])], {}) == {lane.key}


async def test_a_checkpoint_of_no_lanes_is_nothing(conn: Connection) -> None:
    assert await persist(conn, OWNER, [], {}) == set()


async def test_many_lanes_are_one_checkpoint(conn: Connection) -> None:
    lanes = await claim(conn, OWNER, lanes_to_claim(range(1, 501)), 60)

    persisted = await persist(conn, OWNER, [LaneCheckpoint(lane.key, 1, 9, [(11, 12)]) for lane in lanes], {})

    assert persisted == keys_of(lanes)
    assert LaneKey(lanes[0].key.group_id, "", 500) in persisted


async def test_lanes_whose_rows_somebody_has_locked_do_not_hold_up_the_others(
    store: MessageStore, conn: Connection
) -> None:
    locked, free = await claim(conn, OWNER, lanes_to_claim([1, 2]), 60)
    marks = [LaneCheckpoint(lane.key, lane.epoch, 9, []) for lane in (locked, free)]
    async with store.transaction() as holder:
        await holder.execute("SELECT FROM cursor WHERE queue_id = 1 FOR UPDATE")
        result = await write_checkpoint(conn, OWNER, marks, GROUP_NAMES)
        assert result == Checkpointed({free.key}, {locked.key})

    # And when it is let go, what was kept is written.
    assert await persist(conn, OWNER, marks, GROUP_NAMES) == {locked.key, free.key}


async def test_redeliveries_that_somebody_has_locked_are_told_from_an_outage(
    store: MessageStore, conn: Connection
) -> None:
    queue_id = await make_queue(conn)
    (row,) = await put_messages(conn, queue_id, range(1))
    lane = await claim_one(conn, queue_id)
    await persist(conn, OWNER, [LaneCheckpoint(lane.key, 1, 1, [], [waiting(row)])], GROUP_NAMES)
    async with store.transaction() as holder:
        await holder.execute("SELECT FROM redelivery FOR UPDATE")
        with pytest.raises(RowsHeldError):
            await _persist_impatiently(store, LaneCheckpoint(lane.key, 1, 2, [], redelivered=[0]))

    assert (await claim_one(conn, queue_id)).acked_offset == 1


async def _persist_impatiently(store: MessageStore, mark: LaneCheckpoint) -> None:
    async with store.transaction() as checkpointing:
        await checkpointing.execute("SET LOCAL lock_timeout = '50ms'")
        await persist(checkpointing, OWNER, [mark], {})


async def test_texts_and_times_are_stored_as_they_are(conn: Connection) -> None:
    queue_id = await make_queue(conn)
    rows = await put_messages(conn, queue_id, range(3))
    lane = await claim_one(conn, queue_id)
    texts = ['a "quoted" \\ {text}, with everything', "", "NULL"]
    upserts = [
        RedeliveryUpsert(row.queue_offset, row.stored_at_us, 2, 1e-9, text, text)
        for row, text in zip(rows, texts, strict=True)
    ]
    await persist(conn, OWNER, [LaneCheckpoint(lane.key, 1, 3, [], upserts)], GROUP_NAMES)

    loaded = (await load_redeliveries(conn, [lane.key]))[lane.key]
    assert [row.ordering_key for row in loaded] == texts
    assert [row.stored_at_us for row in loaded] == [row.stored_at_us for row in rows]


async def test_which_lanes_have_redeliveries_is_known_before_they_are_loaded(conn: Connection) -> None:
    queue_id = await make_queue(conn)
    (row,) = await put_messages(conn, queue_id, range(1))
    lane = await claim_one(conn, queue_id)
    await persist(conn, OWNER, [LaneCheckpoint(lane.key, 1, 1, [], [waiting(row)])], GROUP_NAMES)

    assert await have_redeliveries(conn, [lane.key, lane.key._replace(queue_id=999)]) == {lane.key}
