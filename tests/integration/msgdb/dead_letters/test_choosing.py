"""Dead letters as jobs take them: all that are meant, once each, some at a time; and gone, with all that was noted."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from msgdb.dead_letters import choosing
from msgdb.dead_letters.choosing import (
    ChosenDeadLetters,
    Landing,
    choose_next,
    count_wanted,
    days_of,
    note_redriven,
    purge_dead_letters,
    read_buried,
)
from msgdb.dead_letters.reading import get_dead_letter, list_redrives
from msgdb.dead_letters.wanted import WantedDeadLetters
from msgdb.log.partitions import today
from msgdb.postgres.connections import Connection
from tests.support.dead_letter_rows import all_dead_letters, bury
from tests.support.rows import GROUP

KIB = 1_024


async def choose_all(
    conn: Connection, wanted: WantedDeadLetters, last_id: int, *, limit: int = 3, bytes_max: int = KIB
) -> list[list[int]]:
    """Return what each step would take."""
    steps: list[list[int]] = []
    chosen = ChosenDeadLetters([], 0, is_end=False)
    while not chosen.is_end:
        after_id = chosen.through_id
        chosen = await choose_next(conn, wanted, after_id=after_id, last_id=last_id, limit=limit, bytes_max=bytes_max)
        assert chosen.through_id > after_id or chosen.is_end
        steps.append(chosen.ids)
    return steps


async def test_each_that_is_meant_is_chosen_once(conn: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choosing, "SCANNED_MAX", 4)
    await bury(conn, 5, topic="TP_STOCK")
    meant = await bury(conn, 4)
    await bury(conn, 9, topic="TP_STOCK")
    meant += await bury(conn, 1)
    later = await bury(conn, 2)

    steps = await choose_all(conn, WantedDeadLetters(topic="TP_TRADE"), meant[-1])

    assert [dead_letter_id for step in steps for dead_letter_id in step] == meant
    assert max(map(len, steps)) == 3
    assert later[0] > meant[-1]


async def test_large_bodies_make_small_steps_and_one_passes_whatever_its_size(conn: Connection) -> None:
    ids = [
        *await bury(conn, 2, body_bytes=400),
        *await bury(conn, 1, body_bytes=5_000),
        *await bury(conn, 3, body_bytes=200),
    ]

    steps = await choose_all(conn, WantedDeadLetters(), ids[-1], limit=10)

    assert steps == [ids[:2], ids[2:3], ids[3:]]


async def test_a_sum_says_of_whom_and_which_types_they_are_and_how_many_were_redriven(conn: Connection) -> None:
    first, *_ = await bury(conn, 3)
    (other,) = await bury(conn, 1, group_id=GROUP + 1, group_name="SG_STOCK", stress=True, event_code="EC_SENT")
    await note_redriven(conn, 1, [Landing(first, 1, 1)])

    sums = await count_wanted(conn, WantedDeadLetters())

    assert [(each.group_name, each.event_code, each.stress, each.letters, each.redriven) for each in sums] == [
        ("SG_POINTS", "EC_PAID", False, 3, 1),
        ("SG_STOCK", "EC_SENT", True, 1, 0),
    ]
    assert sums[1].last_id == other
    assert await count_wanted(conn, WantedDeadLetters(key="nobody's")) == []


async def test_what_is_read_is_the_message_that_died(conn: Connection) -> None:
    first, second = await bury(conn, 2, redrives=4)

    read = await read_buried(conn, [second, first, 10**9])

    assert [message.dead_letter_id for message in read] == [first, second]
    letter = await get_dead_letter(conn, first)
    for name in read[0]._fields:
        shown = letter.body if name == "body" else getattr(letter.summary, name)
        assert getattr(read[0], name) == shown, name


async def test_noting_a_redrive_again_changes_nothing_and_of_what_was_purged_nothing_is_noted(conn: Connection) -> None:
    first, second = await bury(conn, 2)
    assert await purge_dead_letters(conn, [second, second, 10**9]) == 1

    for queue_offset in (1, 2):
        await note_redriven(conn, 5, [Landing(first, 3, queue_offset), Landing(second, 3, 9)])

    assert [(each.queue_id, each.queue_offset) for each in await list_redrives(conn, first)] == [(3, 1)]
    assert await list_redrives(conn, second) == []


async def test_what_is_purged_is_gone_with_all_that_was_noted_of_it(conn: Connection) -> None:
    first, second = await bury(conn, 2)
    await note_redriven(conn, 5, [Landing(first, 3, 1)])

    assert await purge_dead_letters(conn, [first]) == 1

    assert [letter.dead_letter_id for letter in await all_dead_letters(conn)] == [second]
    assert await list_redrives(conn, first) == []


async def test_they_are_told_apart_by_the_day_they_died_in_utc(conn: Connection) -> None:
    await conn.execute("SET timezone = 'Pacific/Kiritimati'")
    new = await bury(conn, 2)
    old = await bury(conn, 1, age="48 hours")

    by_day = await days_of(conn, [*new, *old, 10**9])

    assert [sorted(ids) for ids in by_day.values()] == [old, new]
    assert [*by_day][1] == await today(conn)


_TIMES = st.none() | st.datetimes(timezones=st.timezones())


@given(
    st.builds(
        WantedDeadLetters,
        namespace=st.none() | st.just("default"),
        group_id=st.none() | st.integers(1, 2**60),
        ids=st.none() | st.lists(st.integers(1, 2**60), min_size=1, max_size=5).map(tuple),
        topic=st.none() | st.text("aé", max_size=5),
        error=st.none() | st.text("aé\"'%_\\", max_size=5),
        died_from=_TIMES,
        died_before=_TIMES,
        is_open=st.none() | st.booleans(),
    )
)
def test_a_job_keeps_exactly_what_was_wanted(wanted: WantedDeadLetters) -> None:
    kept = WantedDeadLetters.of_json(wanted.as_json())

    # A time that comes twice as clocks are set back equals no time of another zone, for Python.
    assert (in_utc(kept.died_from), in_utc(kept.died_before)) == (in_utc(wanted.died_from), in_utc(wanted.died_before))
    assert replace(kept, died_from=None, died_before=None) == replace(wanted, died_from=None, died_before=None)


def in_utc(time: datetime | None) -> datetime | None:
    return None if time is None else time.astimezone(UTC)
