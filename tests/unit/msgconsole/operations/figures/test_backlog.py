"""A backlog over time: by steps, with what nobody looked at, and how fast it goes down."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from msgbroker.contract.errors import InvalidSettingError
from msgconsole.operations.figures.backlog import gaps, in_steps
from msgconsole.operations.figures.pace import drain_seconds, pace_between, paces
from msgconsole.operations.figures.wanted import check_times
from msgdb.figures.backlog import Backlog
from msgdb.figures.pace import BacklogChange

TEN = datetime(2026, 11, 20, 10, tzinfo=UTC)


def at(minute: int, behind: int, *, behind_max: int = 0, group_id: int = 7) -> Backlog:
    return Backlog(minutes(minute), group_id, 1, behind, max(behind, behind_max), 0, None, None, None, behind)


def minutes(*numbers: int) -> datetime:
    return TEN + timedelta(minutes=numbers[0])


def test_of_a_step_what_was_found_last_and_the_most_that_was_found() -> None:
    rows = [at(61, 5), at(2, 3), at(1, 9, behind_max=11), at(0, 4)]

    steps = in_steps(rows, timedelta(hours=1))

    assert [(step.minute, step.behind, step.behind_max) for step in steps] == [(TEN, 3, 11), (minutes(60), 5, 5)]
    assert in_steps(rows, timedelta(minutes=1)) == rows[::-1]


def test_minutes_that_nobody_looked_at_are_told() -> None:
    looked_at = [minutes(1), minutes(2), minutes(6)]

    assert gaps(looked_at, TEN, minutes(7)) == [(TEN, minutes(1)), (minutes(3), minutes(6))]
    assert gaps(looked_at, TEN + timedelta(seconds=5), minutes(9)) == [
        (minutes(3), minutes(6)),
        (minutes(7), minutes(9)),
    ]
    # Somebody may yet look in the minute that goes on.
    assert gaps([minutes(0)], TEN, minutes(1) + timedelta(seconds=30)) == []
    assert gaps([], TEN, TEN) == []


def test_the_pace_is_that_of_the_minutes_that_are_over() -> None:
    looked_at = [minutes(number) for number in range(6)]

    ends = pace_between(looked_at, minutes(5) + timedelta(seconds=10))

    assert ends == (minutes(0), minutes(4))
    changes = [BacklogChange(7, 1, -400, -40.0), BacklogChange(8, 1, 40, None), BacklogChange(9, 1, -7, 0.0)]
    assert paces(changes, *ends) == {(7, 1): (-100.0, -10.0), (8, 1): (10.0, None), (9, 1): (-1.75, 0.0)}


@pytest.mark.parametrize("looked_at", [[], [TEN], [TEN, minutes(1)]])
def test_without_two_minutes_there_is_no_pace(looked_at: list[datetime]) -> None:
    assert pace_between(looked_at, minutes(1) + timedelta(seconds=59)) is None


@pytest.mark.parametrize(
    "behind, per_minute, seconds",
    [(0, None, 0.0), (0, 5.0, 0.0), (10, None, None), (10, 0.0, None), (10, 3.0, None), (10, -20.0, 30.0)],
)
def test_a_backlog_is_gone_when_it_goes_on_like_that(
    behind: int, per_minute: float | None, seconds: float | None
) -> None:
    assert drain_seconds(behind, per_minute) == seconds


@pytest.mark.parametrize(
    "matching, matching_per_minute, seconds",
    [
        # Of one queue all matches and ten a minute are done; the rest lies on others, and is read past.
        (100, -10.0, 600.0),
        (100, 5.0, None),
        # Nobody knows, or what matches did not change.
        (None, -10.0, 60.0),
        (100, None, 60.0),
        (100, 0.0, 60.0),
        (0, -10.0, 60.0),
    ],
)
def test_what_matches_tells_better_when_a_backlog_is_gone(
    matching: int | None, matching_per_minute: float | None, seconds: float | None
) -> None:
    assert drain_seconds(10_000, -10_000.0, matching, matching_per_minute) == seconds


def test_times_of_which_nothing_is_kept_are_refused() -> None:
    now = datetime.now(UTC)
    check_times(now - timedelta(days=30), now)

    with pytest.raises(InvalidSettingError, match="kept for so long"):
        check_times(now - timedelta(days=32), now)
    with pytest.raises(InvalidSettingError, match="before the end"):
        check_times(now, now)
