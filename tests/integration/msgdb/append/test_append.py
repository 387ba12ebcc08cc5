"""Appending on a real database: offsets, order, and what is stored once."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest

from msgdb.append.appender import Appender, LayoutChangedError
from msgdb.append.plan import AppendFrame, Gap, Stored, StoredBefore
from msgdb.log.partitions import ensure_for
from msgdb.log.queues import ensure_queues
from msgdb.postgres.connections import Connection
from msgdb.store import MessageStore
from tests.support.appending import (
    REFUSED,
    bodies,
    frame,
    message,
    new_publisher,
    open_appender,
    places,
    rows_of,
)
from tests.support.rows import make_queue


@pytest.fixture
async def appender(store: MessageStore) -> AsyncIterator[Appender]:
    async with open_appender(store) as appender:
        yield appender


@pytest.fixture
async def queues(conn: Connection) -> list[int]:
    return [queue.queue_id for queue in await ensure_queues(conn, 1, 1, 3)]


async def test_each_queue_counts_its_messages_from_zero(
    appender: Appender, conn: Connection, queues: list[int]
) -> None:
    first, second, _ = queues
    mixed = frame(new_publisher(), 1, [message(first, "a"), message(second, "b"), message(first, "c")])
    (stored,) = await appender.append([mixed])
    (later,) = await appender.append([frame(new_publisher(), 1, [message(first, "d")])])

    assert places(stored) == [(first, 0), (second, 0), (first, 1)]
    assert places(later) == [(first, 2)]
    assert await bodies(conn, first) == ["a", "c", "d"]


async def test_a_row_says_what_the_publisher_said(appender: Appender, conn: Connection, queues: list[int]) -> None:
    (stored,) = await appender.append([frame(new_publisher(), 1, [message(queues[0], "body")])])

    assert isinstance(stored, Stored)
    (row,) = await rows_of(conn, queues[0])
    assert (row.topic, row.event_code, row.key, row.ordering_key) == ("TP_TRADE", "EC_PAID", "key", None)
    assert (row.headers, row.body, row.born_host, row.publisher_group) == ({"region": "hz"}, b"body", "host", "PG_SHOP")
    assert (row.message_id, row.stored_at_us) == (stored.outcome.first_message_id, stored.outcome.stored_at_us)


async def test_four_appenders_at_once_leave_no_gap_and_no_message_out_of_sight(
    store: MessageStore, conn: Connection, queues: list[int]
) -> None:
    frames_each = 40
    done = asyncio.Event()

    async def publish(number: int) -> None:
        publisher = new_publisher()
        async with open_appender(store) as appender:
            for sequence in range(1, frames_each + 1):
                out = [message(queue_id, f"{number}-{sequence}") for queue_id in queues]
                (result,) = await appender.append([frame(publisher, sequence, out)])
                assert isinstance(result, Stored)

    async def watch() -> int:
        looks = 0
        while not done.is_set():
            seen = await conn.execute("SELECT queue_id, count(*), max(queue_offset) + 1 FROM message GROUP BY queue_id")
            async for _, count, end in seen:
                # Whoever sees an offset sees all below it.
                assert count == end
                looks += 1
        return looks

    watching = asyncio.create_task(watch())
    await asyncio.gather(*(publish(number) for number in range(4)))
    done.set()

    assert await watching > 0
    for queue_id in queues:
        rows = await rows_of(conn, queue_id)
        assert [row.queue_offset for row in rows] == list(range(4 * frames_each))
        times = [row.stored_at_us for row in rows]
        assert times == sorted(times)
        for number in range(4):
            own = [row.body for row in rows if row.body.startswith(b"%d-" % number)]
            assert own == [b"%d-%d" % (number, sequence) for sequence in range(1, frames_each + 1)]


async def test_a_frame_sent_again_through_another_broker_is_answered_as_it_was(
    store: MessageStore, appender: Appender, conn: Connection, queues: list[int]
) -> None:
    publisher = new_publisher()

    def the_frame() -> AppendFrame:
        return frame(publisher, 1, [message(queues[0], "a"), message(queues[1], "b")], refused_indexes=[1])

    (first,) = await appender.append([the_frame()])
    async with open_appender(store) as another:
        (again,) = await another.append([the_frame()])

    assert isinstance(first, Stored)
    assert isinstance(again, Stored)
    assert (first.duplicate, again.duplicate) == (False, True)
    assert places(again) == [(queues[0], 0), (0, 0), (queues[1], 0)]
    assert again.outcome.first_message_id == first.outcome.first_message_id
    assert again.outcome.stored_at_us == first.outcome.stored_at_us
    assert [(r.index, r.reason, r.status, r.message, r.facts) for r in again.outcome.refusals] == [(1, *REFUSED)]
    assert await bodies(conn, queues[0]) == ["a"]


async def test_each_frame_of_one_commit_is_answered_as_it_was(
    appender: Appender, conn: Connection, queues: list[int]
) -> None:
    publisher = new_publisher()

    def frames() -> list[AppendFrame]:
        return [frame(publisher, n, [message(queues[n % 3], str(n))] * n) for n in range(1, 6)]

    first = await appender.append(frames())
    again = [(await appender.append([one]))[0] for one in reversed(frames())]

    assert [places(result) for result in reversed(again)] == [places(result) for result in first]
    assert await bodies(conn, queues[1]) == ["1", "4", "4", "4", "4"]


async def test_a_frame_behind_a_missing_one_is_not_stored(
    appender: Appender, conn: Connection, queues: list[int]
) -> None:
    publisher = new_publisher()
    results = await appender.append(
        [
            frame(publisher, 1, [message(queues[0], "1")]),
            frame(publisher, 3, [message(queues[0], "3")]),
            frame(new_publisher(), 2, [message(queues[0], "stranger")]),
        ]
    )

    assert results[1:] == [Gap(2), Gap(1)]
    assert await bodies(conn, queues[0]) == ["1"]


async def test_a_frame_with_nothing_left_in_it_uses_its_number(
    appender: Appender, conn: Connection, queues: list[int]
) -> None:
    publisher = new_publisher()
    (refused,) = await appender.append([frame(publisher, 1, [], refused_indexes=[0, 1])])
    (stored,) = await appender.append([frame(publisher, 2, [message(queues[0], "2")])])

    assert places(refused) == [(0, 0), (0, 0)]
    assert places(stored) == [(queues[0], 0)]


async def test_a_frame_whose_answer_is_no_longer_kept_is_not_stored_again(
    appender: Appender, conn: Connection, queues: list[int]
) -> None:
    publisher = new_publisher()
    for sequence in (1, 2):
        await appender.append([frame(publisher, sequence, [message(queues[0], str(sequence))])])
    await conn.execute("DELETE FROM publisher_frame WHERE sequence = 1")

    (again,) = await appender.append([frame(publisher, 1, [message(queues[0], "1")])])

    assert again == StoredBefore(2)
    assert await bodies(conn, queues[0]) == ["1", "2"]


async def test_frames_without_a_publisher_are_all_stored(
    appender: Appender, conn: Connection, queues: list[int]
) -> None:
    results = await appender.append([frame(b"", 0, [message(queues[0], str(n))]) for n in range(3)])
    results += await appender.append([frame(b"", 0, [message(queues[0], "3")])])

    assert [places(result) for result in results] == [[(queues[0], n)] for n in range(4)]
    assert await bodies(conn, queues[0]) == ["0", "1", "2", "3"]


async def test_time_does_not_go_back_within_a_queue(appender: Appender, conn: Connection, queues: list[int]) -> None:
    await appender.append([frame(new_publisher(), 1, [message(queues[0], "early")])])
    ahead = datetime.now(UTC) + timedelta(hours=1)
    await conn.execute("UPDATE message SET stored_at = %s", (ahead,))

    publisher = new_publisher()
    both = [message(queues[0], "late"), message(queues[1], "on time")]
    (later,) = await appender.append([frame(publisher, 1, both)])
    (again,) = await appender.append([frame(publisher, 1, both)])

    assert isinstance(later, Stored)
    assert isinstance(again, Stored)
    ahead_us = int(ahead.timestamp() * 1_000_000)
    for outcome in (later.outcome, again.outcome):
        assert outcome.stored_at_us_in(queues[0]) == ahead_us
        assert outcome.stored_at_us_in(queues[1]) < ahead_us
    assert [row.stored_at_us for row in await rows_of(conn, queues[0])] == [ahead_us, ahead_us]
    assert [row.stored_at_us for row in await rows_of(conn, queues[1])] == [later.outcome.stored_at_us]
    assert await bodies(conn, queues[0]) == ["early", "late"]


async def test_a_queue_that_is_days_ahead_gets_the_day_it_needs(
    appender: Appender, conn: Connection, queues: list[int]
) -> None:
    ahead = datetime.now(UTC) + timedelta(days=30)
    await appender.append([frame(new_publisher(), 1, [message(queues[0], "early")])])
    await ensure_for(conn, ahead.date())
    await conn.execute("UPDATE message SET stored_at = %s", (ahead,))
    await conn.execute("ALTER TABLE publisher_frame DETACH PARTITION " + f"publisher_frame_p{ahead:%Y%m%d}")

    (stored,) = await appender.append([frame(new_publisher(), 1, [message(queues[0], "b"), message(queues[1], "c")])])

    assert places(stored) == [(queues[0], 1), (queues[1], 0)]


async def test_offsets_go_on_where_days_were_dropped(appender: Appender, conn: Connection, queues: list[int]) -> None:
    await conn.execute("UPDATE queue SET start_offset = 500 WHERE queue_id = %s", (queues[0],))

    (stored,) = await appender.append([frame(new_publisher(), 1, [message(queues[0])])])

    assert places(stored) == [(queues[0], 500)]


async def test_nothing_is_appended_to_a_sealed_queue(appender: Appender, conn: Connection) -> None:
    sealed = await make_queue(conn)
    (current,) = await ensure_queues(conn, 1, 2, 1)
    publisher = new_publisher()

    with pytest.raises(LayoutChangedError) as raised:
        await appender.append([frame(publisher, 1, [message(current.queue_id, "a"), message(sealed, "b")])])

    assert raised.value.queue_ids == (sealed,)
    assert await bodies(conn, sealed) == await bodies(conn, current.queue_id) == []
    (stored,) = await appender.append([frame(publisher, 1, [message(current.queue_id, "a")])])
    assert places(stored) == [(current.queue_id, 0)]


async def test_a_missing_day_is_made(appender: Appender, conn: Connection, queues: list[int]) -> None:
    for table in ("message", "publisher_frame"):
        days = await conn.execute(
            "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = %s::regclass", (table,)
        )
        for (partition,) in await days.fetchall():
            await conn.execute(f"DROP TABLE {partition}")

    (stored,) = await appender.append([frame(new_publisher(), 1, [message(queues[0], "a")])])

    assert places(stored) == [(queues[0], 0)]
    assert await bodies(conn, queues[0]) == ["a"]


async def test_a_message_that_postgresql_will_not_take_is_refused_alone(
    appender: Appender, conn: Connection, queues: list[int]
) -> None:
    await conn.execute("ALTER TABLE message ADD CONSTRAINT only_good CHECK (event_code <> 'EC_BAD')")
    publisher = new_publisher()
    poisoned = [message(queues[0], str(n), event_code="EC_BAD" if n in {1, 4} else "EC_PAID") for n in range(6)]

    before, mixed, after = await appender.append(
        [
            frame(publisher, 1, [message(queues[0], "before")]),
            frame(publisher, 2, poisoned),
            frame(publisher, 3, [message(queues[0], "after")]),
        ]
    )

    q = queues[0]
    assert [places(before), places(after)] == [[(q, 0)], [(q, 5)]]
    assert places(mixed) == [(q, 1), (0, 0), (q, 2), (q, 3), (0, 0), (q, 4)]
    assert isinstance(mixed, Stored)
    assert [(refused.index, refused.reason) for refused in mixed.outcome.refusals] == [
        (1, "STORE_REFUSED"),
        (4, "STORE_REFUSED"),
    ]
    assert "only_good" in mixed.outcome.refusals[0].message
    assert await bodies(conn, q) == ["before", "0", "2", "3", "5", "after"]


async def test_what_a_large_frame_fails_of_is_looked_for_with_as_much_time_as_it_is_stored_with(
    appender: Appender, conn: Connection, queues: list[int]
) -> None:
    # Whatever is done in the time of a small frame fails.
    await conn.execute(
        "ALTER TABLE message ADD CONSTRAINT only_good"
        " CHECK (event_code <> 'EC_BAD' AND current_setting('statement_timeout') <> '2s')"
    )
    messages = [message(queues[0], str(n), event_code="EC_BAD" if n == 1 else "EC_PAID") for n in range(3)]
    large = frame(new_publisher(), 1, messages)
    large.size_bytes = 1024 * 1024

    assert list(await appender.find_broken(large)) == [1]
    (stored,) = await appender.append([large])

    assert isinstance(stored, Stored)
    assert [refused.index for refused in stored.outcome.refusals] == [1]
    assert await bodies(conn, queues[0]) == ["0", "2"]


async def test_a_message_over_a_limit_of_postgresql_is_refused_alone(
    appender: Appender, conn: Connection, queues: list[int]
) -> None:
    # Of somebody's own: a row of a B-tree has some 2,700 bytes at most.
    await conn.execute("CREATE INDEX odd ON message (encode(body, 'hex'))")
    texts = ["a", random.Random(1).randbytes(4_000).hex(), "b"]

    mixed, other = await appender.append(
        [
            frame(new_publisher(), 1, [message(queues[0], text) for text in texts]),
            frame(new_publisher(), 1, [message(queues[0], "other")]),
        ]
    )

    assert isinstance(mixed, Stored)
    assert [refused.index for refused in mixed.outcome.refusals] == [1]
    assert isinstance(other, Stored)
    assert await bodies(conn, queues[0]) == ["a", "b", "other"]


@pytest.mark.parametrize("days_wrong", [-30, 30])
async def test_the_clock_of_the_broker_does_not_decide_what_the_database_takes(
    appender: Appender, conn: Connection, queues: list[int], monkeypatch: pytest.MonkeyPatch, days_wrong: int
) -> None:
    await conn.execute("ALTER TABLE message ADD CONSTRAINT only_good CHECK (event_code <> 'EC_BAD')")
    wrong_ns = time.time_ns() + days_wrong * 86_400_000_000_000
    monkeypatch.setattr(time, "time_ns", lambda: wrong_ns)
    messages = [message(queues[0], str(n), event_code="EC_BAD" if n == 1 else "EC_PAID") for n in range(3)]

    (stored,) = await appender.append([frame(new_publisher(), 1, messages)])

    assert isinstance(stored, Stored)
    assert [refused.index for refused in stored.outcome.refusals] == [1]
    assert await bodies(conn, queues[0]) == ["0", "2"]
