"""How far groups are behind, looked at in the store: whether they have instances or not; since when they are late."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from uuid import UUID

from msgdb.figures.backlog import (
    Backlog,
    LateLane,
    Reading,
    list_backlog,
    list_late,
    list_looked_at,
    look,
    readings_parameters,
)
from msgdb.figures.usage import UsageBroker, write_usage
from msgdb.postgres.connections import Connection
from msgdb.store import MessageStore

BROKER = UUID(int=1)
TOPIC_ID, GROUP_ID = 5, 7
_QUEUE = "INSERT INTO queue (topic_id, generation, ordinal) VALUES (%s, 1, %s) RETURNING queue_id"
_MESSAGE = """
INSERT INTO message (queue_id, queue_offset, stored_at, message_id, namespace, topic, event_code, body, born_at, stress)
SELECT %s, o, now() - %s * interval '1 second', gen_random_uuid(), 'default', 'TP', 'EC', '', now(), false
FROM generate_series(%s::int, %s::int - 1) o
"""
_CURSOR = """
INSERT INTO cursor (group_id, member, queue_id, acked_offset, acked_ranges)
VALUES (%(group_id)s, '', %(queue_id)s, %(acked_offset)s, %(ranges)s)
ON CONFLICT (group_id, member, queue_id) DO UPDATE
SET acked_offset = excluded.acked_offset, acked_ranges = excluded.acked_ranges
"""
_LEARNT = "UPDATE cursor SET matching_asked = 8, matching_share = 0.1, matching_read = 1000 WHERE queue_id = ANY(%s)"
_REDELIVERY = """
INSERT INTO redelivery (group_id, member, queue_id, queue_offset, stored_at, attempt, due_at)
SELECT %s, '', %s, o, now() - interval '300 seconds', 2, now() FROM generate_series(0, %s::int - 1) o
"""


async def queue(conn: Connection, ordinal: int = 0) -> int:
    row = await (await conn.execute(_QUEUE, (TOPIC_ID, ordinal))).fetchone()
    assert row is not None
    return int(row[0])


async def stored(conn: Connection, queue_id: int, first: int, end: int, *, seconds_ago: float = 0) -> None:
    await conn.execute(_MESSAGE, (queue_id, seconds_ago, first, end))


async def moved(conn: Connection, queue_id: int, acked_offset: int, ranges: str = "{}") -> None:
    values = {"group_id": GROUP_ID, "queue_id": queue_id, "acked_offset": acked_offset, "ranges": ranges}
    await conn.execute(_CURSOR, values)


async def looked(conn: Connection, *readings: Reading, apart_seconds: float = 0.0) -> bool:
    await write_usage(conn, [], UsageBroker(BROKER, "here", datetime.now(UTC), has_ended=False))
    given = readings or (Reading(GROUP_ID, TOPIC_ID, {}),)
    return await look(conn, BROKER, readings_parameters(given), apart_seconds=apart_seconds)


async def found(conn: Connection) -> Sequence[Backlog]:
    now = datetime.now(UTC)
    return await list_backlog(conn, now - timedelta(hours=1), now + timedelta(minutes=1))


async def test_what_is_neither_settled_nor_waits_for_redelivery_is_behind(conn: Connection) -> None:
    one, other = await queue(conn, 0), await queue(conn, 1)
    await stored(conn, one, 0, 10)
    await stored(conn, other, 0, 4)
    await moved(conn, one, 3, "{[5,7)}")
    await moved(conn, other, 4)
    await conn.execute(_REDELIVERY, (GROUP_ID, other, 2))

    assert await looked(conn)

    (backlog,) = await found(conn)
    assert (backlog.group_id, backlog.topic_id, backlog.behind, backlog.behind_max) == (GROUP_ID, TOPIC_ID, 5, 5)
    assert backlog.redeliveries == 2
    assert backlog.oldest_at is not None
    assert timedelta(seconds=299) < datetime.now(UTC) - backlog.oldest_at < timedelta(seconds=310)


async def test_a_group_that_never_had_an_instance_is_behind_from_its_subscription_on(conn: Connection) -> None:
    one, other = await queue(conn, 0), await queue(conn, 1)
    await stored(conn, one, 0, 10)
    await stored(conn, other, 0, 10)

    await looked(conn, Reading(GROUP_ID, TOPIC_ID, {one: 8}), Reading(8, TOPIC_ID, {one: 10, other: 10}))

    # A queue that a subscription does not name is younger than it.
    assert [(backlog.group_id, backlog.behind) for backlog in await found(conn)] == [(GROUP_ID, 12)]


async def test_a_queue_whose_days_were_dropped_is_not_behind_before_its_start(conn: Connection) -> None:
    one = await queue(conn)
    await stored(conn, one, 20, 25)
    await conn.execute("UPDATE queue SET start_offset = 20")
    await moved(conn, one, 3)

    await looked(conn)

    assert [backlog.behind for backlog in await found(conn)] == [5]


async def test_a_group_that_was_never_behind_has_no_row_and_one_that_caught_up_has_one_that_says_so(
    conn: Connection,
) -> None:
    one = await queue(conn)
    await stored(conn, one, 0, 10)
    await moved(conn, one, 10)
    await looked(conn)
    assert await found(conn) == []

    await moved(conn, one, 2)
    await looked(conn)
    await moved(conn, one, 10)
    await looked(conn)

    rows = await found(conn)
    # Two rows where a minute has begun in between.
    assert rows[0].behind == 0
    assert max(row.behind_max for row in rows) == 8


async def test_one_look_at_a_time_and_not_sooner_than_is_said(store: MessageStore, conn: Connection) -> None:
    readings = readings_parameters([Reading(GROUP_ID, TOPIC_ID, {})])
    async with store.connection() as other, other.transaction():
        assert await look(other, UUID(int=2), readings, apart_seconds=0.0)
        assert not await look(conn, BROKER, readings, apart_seconds=0.0)

    assert await looked(conn)
    assert not await looked(conn, apart_seconds=60.0)


async def test_it_is_late_since_what_it_has_not_got_in_time(conn: Connection) -> None:
    one = await queue(conn)
    await stored(conn, one, 0, 1, seconds_ago=90)
    await stored(conn, one, 1, 2, seconds_ago=70)
    await stored(conn, one, 2, 3, seconds_ago=1)
    await moved(conn, one, 0)
    await looked(conn)
    (first,) = await list_late(conn)

    # It goes on, and is late still: since then.
    await moved(conn, one, 1)
    await looked(conn)
    assert await list_late(conn) == [first] == [LateLane(GROUP_ID, one, first.late_since)]
    assert timedelta(seconds=89) < datetime.now(UTC) - first.late_since < timedelta(seconds=100)

    # It has got what was stored long ago; what it has not was stored a moment ago.
    await moved(conn, one, 2)
    await looked(conn)
    assert await list_late(conn) == []


async def test_since_when_it_is_late_is_kept_over_minutes(conn: Connection) -> None:
    one = await queue(conn)
    await stored(conn, one, 0, 5, seconds_ago=90)
    await moved(conn, one, 0)
    await looked(conn)
    await conn.execute(
        "UPDATE backlog_minute SET minute = minute - interval '1 hour', late_since = late_since - interval '1 hour'"
        " WHERE group_id <> 0"
    )

    await looked(conn)

    assert timedelta(seconds=3_600) < datetime.now(UTC) - (await list_late(conn))[0].late_since


async def test_what_only_waits_for_another_attempt_does_not_make_a_group_late(conn: Connection) -> None:
    one = await queue(conn)
    await stored(conn, one, 0, 1, seconds_ago=300)
    await moved(conn, one, 1)
    await conn.execute(_REDELIVERY, (GROUP_ID, one, 1))

    await looked(conn)

    assert [(backlog.behind, backlog.redeliveries) for backlog in await found(conn)] == [(0, 1)]
    assert await list_late(conn) == []


async def test_a_minute_that_was_looked_at_says_so_though_nobody_was_behind(conn: Connection) -> None:
    now = datetime.now(UTC)
    await looked(conn)

    (minute,) = await list_looked_at(conn, now - timedelta(minutes=5), now + timedelta(minutes=5))

    assert abs(minute - now) < timedelta(minutes=2)


async def test_a_day_that_is_missing_is_made(conn: Connection) -> None:
    await conn.execute(f"DROP TABLE backlog_minute_p{datetime.now(UTC):%Y%m%d}")

    assert await looked(conn)


async def test_how_much_of_it_matches_is_added_up_where_it_is_known(conn: Connection) -> None:
    queues = [await queue(conn, ordinal) for ordinal in range(4)]
    for queue_id in queues:
        await stored(conn, queue_id, 0, 100)
        await moved(conn, queue_id, 20)
    await moved(conn, queues[3], 100)
    await conn.execute(_LEARNT, (queues[:2],))

    await looked(conn, Reading(GROUP_ID, TOPIC_ID, {}, 8))

    (backlog,) = await found(conn)
    assert (backlog.behind, backlog.matching, backlog.matching_unknown) == (240, 16, 80)


async def test_where_other_things_are_asked_for_by_now_nobody_knows_how_much_matches(conn: Connection) -> None:
    one = await queue(conn)
    await stored(conn, one, 0, 100)
    await moved(conn, one, 20)
    await conn.execute(_LEARNT, ([one],))
    # Nobody ever read for the second group.
    await looked(conn, Reading(GROUP_ID, TOPIC_ID, {}, 9), Reading(8, TOPIC_ID, {}, 8))

    known = {backlog.group_id: (backlog.matching, backlog.matching_unknown) for backlog in await found(conn)}

    assert known == {GROUP_ID: (None, 80), 8: (None, 100)}


async def test_who_has_caught_up_is_behind_by_nothing_that_matches(conn: Connection) -> None:
    one = await queue(conn)
    await stored(conn, one, 0, 100)
    await moved(conn, one, 20)
    await looked(conn)
    await moved(conn, one, 100)
    await looked(conn)

    assert ((await found(conn))[0].matching, (await found(conn))[0].matching_unknown) == (0, 0)


async def test_a_look_of_an_earlier_version_leaves_no_more_matching_than_there_is(conn: Connection) -> None:
    one = await queue(conn)
    await stored(conn, one, 0, 100)
    await moved(conn, one, 20)
    await conn.execute(_LEARNT, ([one],))
    await looked(conn, Reading(GROUP_ID, TOPIC_ID, {}, 8))

    # It does not know of the column.
    await conn.execute("UPDATE backlog_minute SET behind = 3 WHERE group_id = %s", (GROUP_ID,))

    assert ((await found(conn))[0].behind, (await found(conn))[0].matching) == (3, 3)
