"""Dead letters: paged, shown, counted, by whatever people ask for."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from msgbroker.contract.errors import InvalidSettingError, ThingNotFoundError
from msgdb.dead_letters import reading
from msgdb.dead_letters.choosing import Landing, note_redriven
from msgdb.dead_letters.reading import (
    DeadLetterCount,
    count_dead_letters,
    get_dead_letter,
    list_dead_letters,
    list_redrives,
)
from msgdb.dead_letters.wanted import IDS_MAX, WantedDeadLetters
from msgdb.postgres.connections import Connection
from tests.support.dead_letter_rows import bury
from tests.support.rows import GROUP

OTHER_GROUP = GROUP + 1


async def ids_of(conn: Connection, **wanted: Any) -> list[int]:
    page = await list_dead_letters(conn, WantedDeadLetters(**wanted))
    assert (page.next_before_id, page.is_cut) == (None, False)
    return [summary.dead_letter_id for summary in page.items]


async def test_pages_go_from_the_newest_to_the_oldest(conn: Connection) -> None:
    ids = await bury(conn, 5)
    await bury(conn, 2, group_id=OTHER_GROUP)
    wanted = WantedDeadLetters(group_id=GROUP)

    first = await list_dead_letters(conn, wanted, limit=3)
    second = await list_dead_letters(conn, wanted, before_id=first.next_before_id, limit=3)

    assert [summary.dead_letter_id for summary in (*first.items, *second.items)] == ids[::-1]
    assert (first.next_before_id, second.next_before_id) == (ids[2], None)
    assert {summary.group_id for summary in (*first.items, *second.items)} == {GROUP}


async def test_a_page_that_is_just_full_may_have_another_one_behind_it(conn: Connection) -> None:
    ids = await bury(conn, 3)

    page = await list_dead_letters(conn, limit=3)

    assert page.next_before_id == ids[0]
    assert (await list_dead_letters(conn, before_id=page.next_before_id)).items == []


@pytest.mark.parametrize(
    "said, wanted",
    [
        ({"group_id": OTHER_GROUP}, {"group_id": OTHER_GROUP}),
        ({"namespace": "shop"}, {"namespace": "shop"}),
        ({"topic": "TP_STOCK"}, {"topic": "TP_STOCK"}),
        ({"event_code": "EC_SENT"}, {"event_code": "EC_SENT"}),
        ({"reason": "REJECTED"}, {"why": "REJECTED"}),
        ({"last_error": "ReadTimeout('100% of 5 s')"}, {"error": "READTIMEOUT('100%"}),
        ({"age": "3 days"}, {"died_before": datetime.now(UTC) - timedelta(days=1)}),
        ({"age": "-3 days"}, {"died_from": datetime.now(UTC) + timedelta(days=1)}),
    ],
)
async def test_they_are_found_by_what_is_known_of_them(
    conn: Connection, said: dict[str, Any], wanted: dict[str, Any]
) -> None:
    await bury(conn, 2)
    ids = await bury(conn, 1, **said)
    await bury(conn, 1, last_error=None)

    assert await ids_of(conn, **wanted) == ids


async def test_they_are_found_by_key_by_id_and_by_all_of_it_together(conn: Connection) -> None:
    ids = await bury(conn, 3)

    assert await ids_of(conn, key="key-2") == [ids[1]]
    assert await ids_of(conn, ids=(ids[0], ids[2], 10**9)) == [ids[2], ids[0]]
    assert await ids_of(conn, ids=(ids[0], ids[1]), key="key-2", group_id=GROUP) == [ids[1]]
    assert await ids_of(conn, ids=(ids[0],), key="key-2") == []


async def test_what_was_redriven_is_told_apart_and_says_where_it_is(conn: Connection) -> None:
    first, second = await bury(conn, 2)
    await note_redriven(conn, 3, [Landing(first, 11, 5)])
    await note_redriven(conn, 4, [Landing(first, None, None)])

    assert await ids_of(conn, is_open=True) == [second]
    assert await ids_of(conn, is_open=False) == [first]
    assert (await get_dead_letter(conn, first)).summary.redriven_at_us is not None
    assert (await get_dead_letter(conn, second)).summary.redriven_at_us is None
    assert [(each.job_id, each.queue_id, each.queue_offset) for each in await list_redrives(conn, first)] == [
        (3, 11, 5),
        (4, None, None),
    ]


async def test_looking_ends_before_a_page_is_full_where_conditions_leave_out_most(
    conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "SCANNED_MAX", 4)
    (wanted_id,) = await bury(conn, 1, topic="TP_STOCK")
    others = await bury(conn, 6)
    wanted = WantedDeadLetters(topic="TP_STOCK")

    page = await list_dead_letters(conn, wanted)
    assert (page.items, page.next_before_id, page.is_cut) == ([], others[2], True)
    page = await list_dead_letters(conn, wanted, before_id=page.next_before_id)
    assert ([each.dead_letter_id for each in page.items], page.is_cut) == ([wanted_id], False)


async def test_they_are_counted_by_group_and_those_that_are_open_apart(conn: Connection) -> None:
    ids = await bury(conn, 5)
    await bury(conn, 2, group_id=OTHER_GROUP)
    for job_id in (1, 2):
        await note_redriven(conn, job_id, [Landing(ids[0], 1, 1), Landing(ids[1], 1, 2)])

    assert await count_dead_letters(conn) == {GROUP: DeadLetterCount(5, 3), OTHER_GROUP: DeadLetterCount(2, 2)}


async def test_one_that_is_not_there_is_not_found(conn: Connection) -> None:
    with pytest.raises(ThingNotFoundError, match="dead letter"):
        await get_dead_letter(conn, 17)


@pytest.mark.parametrize(
    "wanted", [{"ids": ()}, {"ids": (1,) * (IDS_MAX + 1)}, {"error": "a\0b"}, {"key": "x" * 1_001}]
)
def test_what_cannot_be_asked_is_refused(wanted: dict[str, Any]) -> None:
    with pytest.raises(InvalidSettingError):
        WantedDeadLetters(**wanted)
