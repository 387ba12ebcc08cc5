"""Alarms at one broker: raised once, cleared once; what is set aside is tried again, less and less often."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import pytest
from structlog.testing import capture_logs

from msgbroker.contract.errors import StoreUnavailableError
from msgbroker.server.alarms.board import RAISED_MAX, STANDING_MAX, AlarmBoard
from msgbroker.server.alarms.set_aside import UNTRIED_SECONDS_MAX, WAIT_SECONDS_MAX, WAIT_SECONDS_MIN, SetAside, divided
from msgdb.postgres.failures import RowsHeldError
from msgdb.reports.alarms import Alarm, AlarmKind

FULL = Alarm(AlarmKind.REDELIVERIES_FULL, "queue 1", "full")


def make_board() -> AlarmBoard:
    return AlarmBoard(None, UUID(int=1), "here")  # type: ignore[arg-type]


class Clock:
    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> float:
        return self.seconds


@pytest.fixture
def board() -> AlarmBoard:
    return make_board()


def test_an_alarm_stands_until_it_is_cleared_and_is_logged_once(board: AlarmBoard) -> None:
    with capture_logs() as logs:
        for _ in range(3):
            board.raise_alarm(FULL)
        assert board.standing == [FULL]
        for _ in range(2):
            board.clear(FULL.kind, FULL.thing)
        assert board.standing == []

    assert [entry["event"] for entry in logs] == ["alarm.raised", "alarm.cleared"]


def test_of_a_kind_just_what_is_named_stands(board: AlarmBoard) -> None:
    other = Alarm(AlarmKind.LANE_SET_ASIDE, "queue 1", "why")
    board.raise_alarm(other)
    board.replace(FULL.kind, [FULL, FULL._replace(thing="queue 2")])
    board.replace(FULL.kind, [FULL._replace(thing="queue 2", detail="fuller")])

    assert board.standing == [other, FULL._replace(thing="queue 2", detail="fuller")]


def test_there_is_a_most_that_stand_and_what_found_no_place_has_one_when_others_are_cleared(board: AlarmBoard) -> None:
    alarms = [FULL._replace(thing=f"queue {number}") for number in range(STANDING_MAX + 5)]
    for alarm in alarms:
        board.raise_alarm(alarm)
    assert board.standing == alarms[:STANDING_MAX]

    board.clear(FULL.kind, "queue 0")
    assert board.standing == alarms[1 : STANDING_MAX + 1]


def test_alarms_that_are_raised_again_and_again_are_logged_once_each_whether_they_stand_or_not(
    board: AlarmBoard,
) -> None:
    alarms = [FULL._replace(thing=f"queue {number}") for number in range(STANDING_MAX + 5)]
    with capture_logs() as logs:
        for _ in range(3):
            board.replace(FULL.kind, alarms)
        board.replace(FULL.kind, [])

    assert [entry["event"] for entry in logs] == ["alarm.raised"] * len(alarms) + ["alarm.cleared"] * len(alarms)


def test_of_more_alarms_than_can_be_told_apart_it_is_logged_once_that_there_are_more(board: AlarmBoard) -> None:
    alarms = [FULL._replace(thing=f"queue {number}") for number in range(RAISED_MAX + 5)]
    with capture_logs() as logs:
        for _ in range(3):
            board.replace(FULL.kind, alarms)

    assert [entry["event"] for entry in logs] == ["alarm.raised"] * RAISED_MAX + ["alarms.too_many"]


def test_texts_are_kept_as_the_store_takes_them(board: AlarmBoard) -> None:
    board.raise_alarm(FULL._replace(thing="a\0b", detail="half \ud800 of a pair" + "x" * 10_000))
    (alarm,) = board.standing

    assert "\0" not in alarm.thing
    assert len(alarm.detail.encode()) < 1_000
    board.clear(FULL.kind, "a\0b")
    assert board.standing == []


def test_what_fails_is_set_aside_for_longer_each_time_until_it_works(board: AlarmBoard) -> None:
    clock = Clock()
    aside: SetAside[int] = SetAside(board, lambda queue: FULL._replace(thing=f"queue {queue}"), clock.now)
    waits: list[float] = []

    def fail() -> None:
        raise ValueError("a page is\n corrupt")

    for _ in range(9):
        with aside.contained(7):
            fail()
        failed_at = clock.seconds
        while aside.is_waiting(7):
            clock.seconds += WAIT_SECONDS_MIN
        waits.append(clock.seconds - failed_at)

    assert waits[:3] == [WAIT_SECONDS_MIN, 2 * WAIT_SECONDS_MIN, 4 * WAIT_SECONDS_MIN]
    assert waits[-1] == WAIT_SECONDS_MAX
    assert not aside.is_waiting(8)
    assert board.standing == [FULL._replace(thing="queue 7", detail="ValueError: a page is corrupt")]

    aside.worked(7)
    assert board.standing == []
    assert not aside.is_set_aside(7)


def test_what_nobody_tries_any_more_is_forgotten_long_after_its_time(board: AlarmBoard) -> None:
    clock = Clock()
    aside: SetAside[int] = SetAside(board, lambda queue: FULL._replace(thing=f"queue {queue}"), clock.now)
    for queue in (7, 8):
        aside.failed(queue, ValueError("a page is corrupt"))
    clock.seconds += UNTRIED_SECONDS_MAX
    aside.forget_untried()
    assert set(aside.units) == {7, 8}

    aside.failed(8, ValueError("a page is corrupt"))
    clock.seconds += 2 * WAIT_SECONDS_MIN
    aside.forget_untried()

    assert set(aside.units) == {8}
    assert [alarm.thing for alarm in board.standing] == ["queue 8"]


@pytest.mark.parametrize("error", [StoreUnavailableError("away"), MemoryError()])
def test_what_is_known_or_concerns_the_whole_broker_is_passed_on(board: AlarmBoard, error: Exception) -> None:
    aside: SetAside[int] = SetAside(board, lambda _: FULL)
    with pytest.raises(type(error)), aside.contained(7):
        raise error

    assert not aside.is_set_aside(7)
    assert board.standing == []


def test_work_whose_rows_somebody_has_locked_is_not_set_aside(board: AlarmBoard) -> None:
    aside: SetAside[int] = SetAside(board, lambda _: FULL)
    aside.failed_unless_held(7, RowsHeldError("somebody has locked them"))
    assert not aside.is_set_aside(7)

    aside.failed_unless_held(7, ValueError("a page is corrupt"))
    assert aside.is_set_aside(7)


async def test_what_fails_of_many_is_found_by_halves_and_the_others_are_done() -> None:
    done: list[int] = []
    failed: dict[int, str] = {}
    calls = 0

    async def act(parts: Sequence[int]) -> None:
        nonlocal calls
        calls += 1
        for part in parts:
            if part in {3, 60}:
                raise ValueError(f"bad {part}")
        done.extend(parts)

    await divided(range(100), act, lambda part, error: failed.update({part: str(error)}))

    assert failed == {3: "bad 3", 60: "bad 60"}
    assert sorted(done) == [part for part in range(100) if part not in failed]
    assert calls < 30


async def test_rows_that_somebody_has_locked_keep_only_their_own_part_waiting() -> None:
    failed: list[tuple[int, type[Exception]]] = []
    done: list[int] = []

    async def act(parts: Sequence[int]) -> None:
        if 5 in parts:
            raise RowsHeldError("held")
        done.extend(parts)

    await divided(range(8), act, lambda part, error: failed.append((part, type(error))))

    assert failed == [(5, RowsHeldError)]
    assert sorted(done) == [0, 1, 2, 3, 4, 6, 7]


async def test_an_outage_is_raised_at_once() -> None:
    async def act(_: Sequence[int]) -> None:
        raise StoreUnavailableError("away")

    with pytest.raises(StoreUnavailableError):
        await divided(range(8), act, lambda part, error: None)
    await divided([], act, lambda part, error: None)
