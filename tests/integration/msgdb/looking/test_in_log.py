"""Looking through queues: from where to where, what is wanted of it, and merged as one log."""

from __future__ import annotations

import asyncio
import random
from datetime import timedelta

import pytest

from msgbroker.contract.errors import InvalidSettingError
from msgdb.log.found import Position
from msgdb.looking.queues_of import list_left_queues
from msgdb.looking.spans import Span, find_spans
from msgdb.looking.stretches import EVERY_MESSAGE, WantedMessages, read_stretches
from msgdb.postgres.connections import Connection
from tests.support.message_rows import NOON, StoredMessage, drop_day, put_rows, run_of

_US = timedelta(microseconds=1)


def micros(seconds: float) -> int:
    return round((NOON + timedelta(seconds=seconds)).timestamp() * 1_000_000)


@pytest.mark.parametrize(
    "first, end, expected",
    [
        (None, None, (0, 10)),
        (3, None, (3, 10)),
        (2.5, 7, (3, 7)),
        (None, 0, None),
        (-9, 0.5, (0, 1)),
        (9, 99, (9, 10)),
        (10, None, None),
    ],
)
async def test_a_span_has_what_was_stored_between_two_times(
    conn: Connection, database_url: str, first: float | None, end: float | None, expected: tuple[int, int] | None
) -> None:
    put_rows(database_url, run_of(1, 10))

    from_us, before_us = (None if each is None else micros(each) for each in (first, end))
    spans = await find_spans(conn, [1, 2], from_us=from_us, before_us=before_us)

    assert spans == ([] if expected is None else [Span(1, *expected)])


async def test_spans_begin_where_dropped_days_have_ended(conn: Connection, database_url: str) -> None:
    yesterday = NOON - timedelta(days=1)
    put_rows(database_url, [*run_of(1, 5, stored_at=yesterday), *run_of(1, 5, first=5), *run_of(2, 3)])
    drop_day(database_url, yesterday, [(1, 5)])

    assert await find_spans(conn, [1, 2], before_us=micros(2)) == [Span(1, 5, 7), Span(2, 0, 2)]
    assert await find_spans(conn, [], before_us=micros(2)) == []


@pytest.mark.parametrize("newest_first", [True, False])
async def test_who_goes_on_behind_any_place_has_the_rest_and_nothing_else(
    conn: Connection, database_url: str, newest_first: bool
) -> None:
    chance = random.Random(4)
    rows = []
    for queue_id in (1, 2, 3):
        at = NOON
        for offset in range(20):
            at += chance.choice([0, 0, 1, 2]) * _US
            rows.append(StoredMessage(queue_id=queue_id, queue_offset=offset, stored_at=at))
    put_rows(database_url, rows)
    places = sorted(Position(round(r.stored_at.timestamp() * 1e6), r.queue_id, r.queue_offset) for r in rows)

    for after in places:
        spans = await find_spans(conn, [1, 2, 3], after=after, newest_first=newest_first)
        rest = {(span.queue_id, offset) for span in spans for offset in range(span.first, span.end)}
        expected = [each for each in places if (each < after if newest_first else each > after)]
        assert rest == {(each.queue_id, each.queue_offset) for each in expected}


async def test_a_stretch_gives_what_is_wanted_of_it_and_when_its_last_message_was_stored(
    conn: Connection, database_url: str
) -> None:
    rows = [
        StoredMessage(
            queue_id=1,
            queue_offset=offset,
            stored_at=NOON + timedelta(seconds=offset),
            event_code="EC_PAID" if offset % 2 else "EC_OTHER",
            key=f"key-{offset % 3}",
            headers={"region": "hz", "number": str(offset)} if offset > 5 else None,
        )
        for offset in range(12)
    ]
    put_rows(database_url, [*rows, *run_of(2, 3)])
    span = Span(1, 1, 11)

    async def offsets(wanted: WantedMessages, limit: int = 100, *, newest_first: bool = False) -> list[int]:
        (read,) = await read_stretches(conn, [span], wanted, limit, newest_first=newest_first)
        assert read.edge_stored_at_us == micros(1 if newest_first else 10)
        return [message.queue_offset for message in read.found]

    assert await offsets(EVERY_MESSAGE) == list(range(1, 11))
    assert await offsets(EVERY_MESSAGE, 3, newest_first=True) == [10, 9, 8]
    assert await offsets(WantedMessages(event_code="EC_PAID")) == [1, 3, 5, 7, 9]
    assert await offsets(WantedMessages(key="key-0"), newest_first=True) == [9, 6, 3]
    assert await offsets(WantedMessages(headers={"region": "hz"})) == [6, 7, 8, 9, 10]
    assert await offsets(WantedMessages(headers={"region": "hz", "number": "7"}, event_code="EC_PAID")) == [7]
    assert await offsets(WantedMessages(headers={"region": "sh"})) == []

    both = await read_stretches(conn, [Span(2, 0, 2), Span(3, 0, 5)], EVERY_MESSAGE, 10)
    assert [(read.span.queue_id, len(read.found), read.edge_stored_at_us) for read in both] == [
        (2, 2, micros(1)),
        (3, 0, None),
    ]


@pytest.mark.parametrize("wanted", [{"key": "a\0"}, {"headers": {"a\0": ""}}, {"event_code": "x" * 5_000}])
def test_what_no_message_can_have_is_refused(wanted: dict[str, str]) -> None:
    with pytest.raises(InvalidSettingError):
        WantedMessages(**wanted)  # type: ignore[arg-type]


async def test_what_a_deleted_topic_left_behind_is_known_by_its_messages(conn: Connection, database_url: str) -> None:
    put_rows(database_url, [*run_of(1, 2), *run_of(2, 2)])
    await asyncio.to_thread(put_rows, database_url, [StoredMessage(queue_id=3, queue_offset=0, topic="TP_OLD")])

    assert [(each.queue_id, each.topic) for each in await list_left_queues(conn, [1])] == [
        (2, "TP_TRADE"),
        (3, "TP_OLD"),
    ]
    assert len(await list_left_queues(conn, [])) == 3
