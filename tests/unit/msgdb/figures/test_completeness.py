"""Which minutes lack something: those that a broker was in the middle of when it was heard of for the last time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

from msgdb.figures.completeness import incomplete_minutes, open_from
from msgdb.figures.usage import UsageBroker

TEN = datetime(2026, 11, 20, 10, tzinfo=UTC)
HOUR_AGO = TEN - timedelta(hours=1)


def broker(seconds: float, *, has_ended: bool = False) -> UsageBroker:
    """Return a broker that has counted until so many seconds after ten."""
    return UsageBroker(UUID(int=1), "here", TEN + timedelta(seconds=seconds), has_ended)


def incomplete(*brokers: UsageBroker, now: float = 600.0, lacking: tuple[datetime, ...] = ()) -> list[datetime]:
    at = TEN + timedelta(seconds=now)
    return incomplete_minutes(brokers, lacking, HOUR_AGO, at, at)


def test_a_broker_that_goes_on_lacks_nothing() -> None:
    assert incomplete(broker(590.0)) == []


def test_a_broker_that_ended_in_good_order_lacks_nothing() -> None:
    assert incomplete(broker(30.0, has_ended=True)) == []


def test_the_minute_in_which_a_broker_was_killed_is_incomplete() -> None:
    assert incomplete(broker(30.0), broker(595.0)) == [TEN]


def test_what_it_had_counted_since_may_be_of_the_next_minute() -> None:
    assert incomplete(broker(50.0)) == [TEN, TEN + timedelta(minutes=1)]
    assert incomplete(broker(60.0)) == [TEN + timedelta(minutes=1)]


def test_a_minute_of_which_a_broker_says_so_is_incomplete() -> None:
    assert incomplete(broker(30.0), lacking=(TEN, TEN - timedelta(minutes=2))) == [TEN - timedelta(minutes=2), TEN]


def test_only_minutes_that_are_asked_for_are_told() -> None:
    assert incomplete_minutes([broker(30.0)], [TEN], HOUR_AGO, TEN, TEN + timedelta(hours=1)) == []


def test_what_brokers_that_are_alive_have_not_written_yet_is_open() -> None:
    now = TEN + timedelta(seconds=600)

    assert open_from(
        [broker(595.0), broker(588.0), broker(30.0), broker(590.0, has_ended=True)], now
    ) == TEN + timedelta(seconds=588)
    assert open_from([], now) == now
