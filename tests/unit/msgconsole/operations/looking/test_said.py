"""What answers say of themselves: where they end, what is gone, and what may be shown."""

from __future__ import annotations

from datetime import UTC, date, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from msgbroker.contract.errors import InvalidExpressionError, InvalidSettingError
from msgconsole.operations.looking.answers import Answer, PageToken
from msgconsole.operations.looking.by_id import known_said
from msgconsole.operations.looking.in_log import LogSearch, micros
from msgconsole.operations.looking.tailing import Allowance, predicate_of
from msgconsole.operations.looking.where import gone_said
from msgdb.log.found import Position
from msgdb.looking.days_known import DayFate, Horizon, KnownDay
from msgdb.postgres.binary_rows import datetime_of

TODAY = date(2026, 11, 20)


def at(day: int, hour: int = 0) -> datetime:
    return datetime(2026, 11, day, hour, tzinfo=UTC)


@given(st.integers(0, 2**57), st.integers(0, 2**62), st.integers(0, 2**62))
def test_a_token_is_read_back_as_it_was_given(stored_at_us: int, queue_id: int, offset: int) -> None:
    token = PageToken(Position(stored_at_us, queue_id, offset))

    assert PageToken.of_text(f" {token}\n") == token


@given(st.text() | st.from_regex(r"\A[0-9]{1,30}(-[0-9]{1,30}){0,3}\Z"))
def test_whatever_is_typed_as_a_token_is_one_or_refused(text: str) -> None:
    try:
        token = PageToken.of_text(text)
    except InvalidSettingError:
        return
    assert datetime_of(token.position.stored_at_us + 1).year < 9_999
    assert all(0 <= each < 2**63 for each in token.position)


def test_an_answer_is_complete_if_nothing_is_gone_and_there_is_no_more() -> None:
    assert Answer([]).is_complete
    assert Answer([], ("gone",), "more").why_not == ("more", "gone")
    assert not Answer([], ("gone",)).is_complete
    assert not Answer([], more="more").is_complete


@pytest.mark.parametrize(
    "archived, since, until, said",
    [
        ([], None, None, ", and no archive is known that has it"),
        ([], at(20), None, None),
        ([], at(19, 23), None, ", and no archive is known that has it"),
        ([19], None, None, "; the archive has 2026-11-19"),
        ([19, 18, 17], None, None, "; the archive has 3 of its days, from 2026-11-17 to 2026-11-19"),
        ([19, 18, 17], at(18, 12), None, "; the archive has 2 of its days, from 2026-11-18 to 2026-11-19"),
        ([19, 18, 17], None, at(17, 12), "; the archive has 2026-11-17"),
    ],
)
def test_what_is_gone_is_said_where_it_was_asked_for_with_what_the_archive_has_of_it(
    archived: list[int], since: datetime | None, until: datetime | None, said: str | None
) -> None:
    horizon = Horizon(TODAY, [date(2026, 11, day) for day in archived])

    whole = () if said is None else (f"what was stored before {TODAY} is not in the log any more{said}",)
    assert gone_said(horizon, since, until) == whole


def test_of_an_id_it_is_said_where_its_day_is() -> None:
    said = {fate: known_said(KnownDay(TODAY, fate, "s3://there")) for fate in DayFate}

    assert (said[DayFate.THERE], said[DayFate.NOT_YET]) == ((), ())
    assert "the archive has it: s3://there" in said[DayFate.ARCHIVED][0]
    assert "in no archive" in said[DayFate.GONE][0]


@given(st.integers(0, 2**57))
def test_times_are_exact_to_the_microsecond(time_us: int) -> None:
    assert micros(datetime_of(time_us)) == time_us


@pytest.mark.parametrize("limit", [0, 1_001])
def test_a_page_has_a_bound(limit: int) -> None:
    with pytest.raises(InvalidSettingError):
        LogSearch(namespace="default", topic="TP", limit=limit)


@given(st.floats(0.1, 1_000), st.lists(st.tuples(st.floats(0, 3), st.integers(0, 2_000)), max_size=30))
def test_no_more_is_shown_than_the_rate_allows(rate: float, rounds: list[tuple[float, int]]) -> None:
    allowance, now, shown = Allowance(rate, 0.0), 0.0, 0
    for seconds, came in rounds:
        now += seconds
        granted = allowance.grant(now)
        assert granted <= max(rate, 1.0)
        allowance.use(min(granted, came))
        shown += min(granted, came)

    assert shown <= 1 + rate * now + 0.001


def test_expressions_that_cost_too_much_or_are_none_are_refused() -> None:
    predicate = predicate_of('headers.region == "hz"')
    assert predicate is not None
    assert predicate({"region": "hz"})
    assert predicate_of(None) is None
    with pytest.raises(InvalidExpressionError):
        predicate_of("headers.a +")
    with pytest.raises(InvalidSettingError):
        predicate_of("headers.exists(a, headers.exists(b, a == b))")
