"""What is written down of a reset tells later, of each message, whether it was skipped."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from msgdb.acts import write_act
from msgdb.lanes import reset_acts
from msgdb.lanes.reset_acts import LaneResetAct, detail_of, list_reset_acts
from msgdb.lanes.resets import LanePlace
from msgdb.postgres.connections import Connection

QUEUE, OTHER = 5, 6
LONG_AGO = datetime.now(UTC) - timedelta(days=1)
PLACES = {QUEUE: LanePlace(10, [(12, 14), (16, 17)], [3]), OTHER: LanePlace(0)}


async def note(conn: Connection, detail: dict[str, Any], action: str = "group.reset") -> int:
    about: dict[str, Any] = {"namespace": "shop", "thing": "group SG", "detail": detail}
    return await write_act(conn, actor="ada", action=action, reason="why", **about)


async def acts_of(conn: Connection, offset: int, queue_id: int = QUEUE) -> list[LaneResetAct]:
    return (await list_reset_acts(conn, queue_id, offset, LONG_AGO)).acts


async def test_each_offset_is_told_whether_it_was_skipped(conn: Connection) -> None:
    await note(conn, detail_of(7, 70, {QUEUE: 18, OTHER: 0}, PLACES))

    skipped = {offset: [act.skips for act in await acts_of(conn, offset)] for offset in range(20)}

    assert [offset for offset, acts in skipped.items() if acts == [True]] == [3, 10, 11, 14, 15, 17]
    assert all(acts in ([True], [False]) for acts in skipped.values())
    (act,) = await acts_of(conn, 3)
    assert (act.group_id, act.from_offset, act.to_offset, act.subscription_id, act.goes_back) == (7, 10, 18, 70, False)
    assert (act.actor, act.reason) == ("ada", "why")


async def test_what_was_not_written_down_is_not_known(conn: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reset_acts, "RANGES_MAX", 2)
    await note(conn, detail_of(7, 70, {QUEUE: 18}, PLACES))

    skips = [(await acts_of(conn, offset))[0].skips for offset in (2, 3, 9, 11, 12, 14, 17, 18)]

    assert skips == [False, True, False, True, None, None, None, False]


async def test_resets_are_told_in_their_order_and_others_are_left_out(
    conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    await note(conn, detail_of(7, 70, {QUEUE: 18}, PLACES))
    await note(conn, detail_of(7, 70, {OTHER: 1}, PLACES))
    await note(conn, detail_of(8, 70, {QUEUE: 4}, PLACES))
    await note(conn, {"queues": "of another kind"}, "group.drain")
    await note(conn, {"queues": [[QUEUE, 1, 2]]})

    found = await acts_of(conn, 3)
    assert [(act.group_id, act.goes_back) for act in found] == [(7, False), (8, True)]
    later = await list_reset_acts(conn, QUEUE, 3, datetime.now(UTC) + timedelta(hours=1))
    assert (later.acts, later.is_complete) == ([], True)
    assert {group_id: act.to_offset for group_id, act in later.before.items()} == {7: 18, 8: 4}
    monkeypatch.setattr(reset_acts, "_ACTS_MAX", 1)
    assert not (await list_reset_acts(conn, QUEUE, 3, LONG_AGO)).is_complete


async def test_that_a_group_was_put_somewhere_before_is_not_taken_for_complete_where_not_all_acts_are_read(
    conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    await note(conn, detail_of(7, 70, {QUEUE: 18}, PLACES))
    for _ in range(2):
        await note(conn, detail_of(8, 70, {OTHER: 4}, PLACES))
    monkeypatch.setattr(reset_acts, "_ACTS_MAX", 1)

    in_an_hour = datetime.now(UTC) + timedelta(hours=1)

    of_other_queues = await list_reset_acts(conn, QUEUE, 3, in_an_hour)
    await note(conn, detail_of(8, 70, {QUEUE: 4}, PLACES))
    of_this_one = await list_reset_acts(conn, QUEUE, 3, in_an_hour)

    assert (list(of_other_queues.before), of_other_queues.is_complete) == ([7], True)
    assert (list(of_this_one.before), of_this_one.is_complete) == ([8], False)


async def test_of_many_resets_those_are_told_that_concern_the_message(
    conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reset_acts, "_ACTS_MAX", 5)
    for _ in range(20):
        await note(conn, detail_of(7, 70, {QUEUE: 0}, {QUEUE: LanePlace(50)}))
        await note(conn, detail_of(7, 70, {QUEUE: 50}, {QUEUE: LanePlace(0)}))
    await note(conn, detail_of(8, 70, {QUEUE: 90}, {QUEUE: LanePlace(0)}))

    found = await list_reset_acts(conn, QUEUE, 30, LONG_AGO)

    assert found.is_complete
    assert [(act.group_id, act.goes_back, act.skips) for act in found.acts] == [
        (7, True, False),
        (7, False, True),
        (8, False, True),
    ]
