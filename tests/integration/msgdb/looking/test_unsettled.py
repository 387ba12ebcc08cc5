"""What the store says of what a group has not settled."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from msgdb.log.beginnings import keep_beginning
from msgdb.log.found import Position
from msgdb.looking.unsettled import find_known, list_next, list_standings, list_waiting
from msgdb.postgres.connections import Connection
from tests.support.rows import GROUP, OWNER, make_queue, put_messages

_CURSOR = """
INSERT INTO cursor (group_id, member, queue_id, acked_offset, acked_ranges, owner, epoch, lease_until)
VALUES (%s, '', %s, %s, %s, %s, %s, clock_timestamp() + %s * interval '1 second')
"""
_WAITING = """
INSERT INTO redelivery (group_id, member, queue_id, queue_offset, stored_at, attempt, due_at, last_error, shelved_by)
VALUES (%s, '', %s, %s, %s, 2, now(), %s, %s)
"""
LONG_AGO = datetime.now(UTC) - timedelta(hours=1)


async def put_cursor(
    conn: Connection, queue_id: int, acked: int, ranges: str = "{}", epoch: int = 3, lease_seconds: float = 60.0
) -> None:
    await conn.execute(_CURSOR, (GROUP, queue_id, acked, ranges, OWNER, epoch, lease_seconds))


async def put_row(
    conn: Connection, queue_id: int, offset: int, stored_at: datetime, error: str = "no", by: str | None = None
) -> None:
    await conn.execute(_WAITING, (GROUP, queue_id, offset, stored_at, error, by))


async def test_a_lane_stands_behind_what_is_settled_and_is_its_owners_while_the_lease_lasts(conn: Connection) -> None:
    served, abandoned, never, kept = [await make_queue(conn, topic_id) for topic_id in (1, 2, 3, 4)]
    await put_cursor(conn, served, 4, "{[6,8)}")
    # Retention has moved it into what is settled.
    await put_cursor(conn, abandoned, 6, "{[5,9),[12,13)}", epoch=5, lease_seconds=-1.0)
    async with conn.transaction():
        assert await keep_beginning(conn, GROUP, [kept], 9)

    lanes = await list_standings(conn, GROUP, {served: 0, abandoned: 0, never: 7, kept: 7})

    assert {each.queue_id: (each.epoch, each.owner, each.first_offset) for each in lanes.values()} == {
        served: (3, OWNER, 4),
        abandoned: (5, None, 9),
        never: (0, None, 7),
        kept: (0, None, 0),
    }
    assert abs(lanes[served].read_at_us - datetime.now(UTC).timestamp() * 1_000_000) < 60_000_000


async def test_what_waits_is_told_the_oldest_first_over_all_queues_and_no_more_than_asked_for(
    conn: Connection,
) -> None:
    one, two = await make_queue(conn, 1), await make_queue(conn, 2)
    for offset in range(4):
        await put_row(conn, one, offset, LONG_AGO + timedelta(seconds=2 * offset))
        await put_row(conn, two, offset, LONG_AGO + timedelta(seconds=2 * offset + 1), by="5" if offset == 1 else None)

    all_of_it = await list_waiting(conn, GROUP, [one, two], 100)
    oldest = await list_waiting(conn, GROUP, [one, two], 3)
    of_one = await list_waiting(conn, GROUP, [one], 100)
    shelved = await list_waiting(conn, GROUP, [one, two], 100, is_shelved=True)
    not_shelved = await list_waiting(conn, GROUP, [one, two], 100, is_shelved=False)

    assert [(each.queue_id, each.queue_offset) for each in all_of_it] == [
        (queue_id, offset) for offset in range(4) for queue_id in (one, two)
    ]
    assert (oldest, of_one) == (all_of_it[:3], [each for each in all_of_it if each.queue_id == one])
    assert [(each.queue_offset, each.shelved_by) for each in shelved] == [(1, "5")]
    assert not_shelved == [each for each in all_of_it if each.shelved_by is None]
    assert await list_waiting(conn, GROUP + 1, [one, two], 100) == []


async def test_of_a_message_its_row_and_what_it_waits_for_are_known_as_far_as_they_are_there(conn: Connection) -> None:
    queue_id = await make_queue(conn)
    first, second = await put_messages(conn, queue_id, range(2))
    stored_at = datetime.fromtimestamp(0, UTC) + timedelta(microseconds=second.stored_at_us)
    await put_row(conn, queue_id, 1, stored_at, "boom")
    await put_row(conn, queue_id, 9, LONG_AGO, "gone with its day")

    places = [Position(first.stored_at_us, queue_id, 0), Position(second.stored_at_us, queue_id, 1)]
    gone = Position(int(LONG_AGO.timestamp() * 1_000_000), queue_id, 9)
    # Of another message, that the log has lost, nothing is told.
    lost = Position(second.stored_at_us + 1, queue_id, 1)
    known = await find_known(conn, GROUP, [*places, gone])
    of_lost = await find_known(conn, GROUP, [lost])

    told = {
        offset: (each.message and each.message.key, each.attempt, each.last_error)
        for (_, offset), each in known.items()
    }
    assert told == {0: ("key-0", None, None), 1: ("key-1", 2, "boom"), 9: (None, 2, "gone with its day")}
    assert [(each.message, each.attempt) for each in of_lost.values()] == [(None, None)]


async def test_what_comes_next_is_the_first_message_that_is_there(conn: Connection) -> None:
    one, two, empty = [await make_queue(conn, topic_id) for topic_id in (1, 2, 3)]
    await put_messages(conn, two, range(3, 6), days_ago=1)
    await put_messages(conn, one, range(4))

    found = await list_next(conn, {one: 2, two: 0, empty: 0})
    behind = await list_next(conn, {one: 4, two: 5})

    assert [(each.queue_id, each.queue_offset) for each in found] == [(two, 3), (one, 2)]
    assert [(each.queue_id, each.queue_offset) for each in behind] == [(two, 5)]
