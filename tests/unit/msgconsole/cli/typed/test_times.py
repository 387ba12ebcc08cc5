"""Times as people type them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from msgconsole.cli.typed.times import read_time

NOW = datetime(2026, 11, 20, 15, 30, 12, 345, tzinfo=UTC)


@pytest.mark.parametrize(
    "text, expected",
    [
        ("now", NOW),
        ("today", datetime(2026, 11, 20, tzinfo=UTC)),
        ("yesterday", datetime(2026, 11, 19, tzinfo=UTC)),
        ("90s", NOW - timedelta(seconds=90)),
        ("10m", NOW - timedelta(minutes=10)),
        ("-2h", NOW - timedelta(hours=2)),
        ("3d", NOW - timedelta(days=3)),
        ("10:00", datetime(2026, 11, 20, 10, tzinfo=UTC)),
        ("9:05", datetime(2026, 11, 20, 9, 5, tzinfo=UTC)),
        ("9:05:07", datetime(2026, 11, 20, 9, 5, 7, tzinfo=UTC)),
        ("23:59:59.5", datetime(2026, 11, 20, 23, 59, 59, 500_000, tzinfo=UTC)),
        ("2026-11-17", datetime(2026, 11, 17, tzinfo=UTC)),
        (" 2026-11-17 10:00 ", datetime(2026, 11, 17, 10, tzinfo=UTC)),
        ("2026-11-17T10:00:00Z", datetime(2026, 11, 17, 10, tzinfo=UTC)),
        ("2026-11-17T10:00+08:00", datetime(2026, 11, 17, 2, tzinfo=UTC)),
    ],
)
def test_a_time_is_read_in_utc(text: str, expected: datetime) -> None:
    assert read_time(text, NOW) == expected


@pytest.mark.parametrize(
    "text",
    [
        *("", "noon", "10", "25:00", "10:61", "2026-13-01", "-", "1w", "999999999d", "10:0"),
        # Their zones put them outside of all years.
        *("9999-12-31T23:59:59-14:00", "0001-01-01T00:00+14:00"),
    ],
)
def test_what_is_no_time_is_refused_with_the_forms(text: str) -> None:
    with pytest.raises(ValueError, match="is no time: 10m"):
        read_time(text, NOW)


@given(st.floats(0, 4_000_000_000), st.timezones())
def test_what_json_says_of_a_time_is_read_as_that_time(seconds: float, zone: tzinfo) -> None:
    moment = datetime.fromtimestamp(seconds, zone)
    assert read_time(moment.isoformat(), NOW) == moment
