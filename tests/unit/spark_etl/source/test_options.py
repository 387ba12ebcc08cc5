"""The options of the data source: what they mean, and what is refused."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from msgbroker.contract.errors import InvalidSettingError, NoDatabaseError
from spark_etl.source.filters import Bounds
from spark_etl.source.options import batch_options, days_of, stream_options
from spark_etl.source.pinned import PinnedBounds, pinned_bounds_of

URL = {"url": "postgresql:///?service=msgdb"}


@pytest.mark.parametrize(
    "given, said",
    [
        ({"tabel": "message"}, "tabel is no option"),
        ({"table": "config_mark"}, "table cannot be 'config_mark'; it is one of message, dead_letter"),
        ({"day": "2026-02-30"}, "day cannot be '2026-02-30'"),
        ({"day": "2026-11-17..2026-11-10"}, "its last day is before its first"),
        ({"day": "2026-11-17", "table": "cursor"}, "day has no meaning for cursor"),
        ({"bounds": "{}"}, "bounds is not what pin_bounds"),
        ({"bounds": "{}", "table": "dead_letter"}, "bounds has no meaning for dead_letter"),
        ({"partition_bytes": "12"}, "partition_bytes cannot be '12'"),
        ({"partition_bytes": "128m"}, "it is a whole number"),
        ({"partition_bytes": "²048"}, "it is a whole number"),
        ({"start": "latest"}, "start has a meaning for a stream alone"),
    ],
)
def test_what_a_batch_cannot_do_is_refused_by_name(given: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidSettingError) as raised:
        batch_options({**URL, **given})

    assert said in str(raised.value)


@pytest.mark.parametrize(
    "given, said",
    [
        ({"table": "cursor"}, "only messages are a log"),
        ({"day": "2026-11-17"}, "day has a meaning for a batch alone"),
        ({"start": "2026-11-17T08:00:00"}, "a time with its zone"),
        ({"start": "newest"}, "it is earliest, latest, or a time"),
        ({"max_messages_per_batch": "0"}, "max_messages_per_batch cannot be '0'"),
    ],
)
def test_what_a_stream_cannot_do_is_refused_by_name(given: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidSettingError) as raised:
        stream_options({**URL, **given})

    assert said in str(raised.value)


def test_a_day_is_one_in_utc_and_several_include_both_ends() -> None:
    assert days_of("2026-11-17") == Bounds(datetime(2026, 11, 17, tzinfo=UTC), datetime(2026, 11, 18, tzinfo=UTC))
    assert days_of("2026-10-31..2026-11-02") == Bounds(
        datetime(2026, 10, 31, tzinfo=UTC), datetime(2026, 11, 3, tzinfo=UTC)
    )


def test_a_start_is_the_moment_that_its_zone_makes_of_it() -> None:
    assert stream_options({**URL, "start": "2026-11-17T08:00:00+02:00"}).start == datetime(2026, 11, 17, 6, tzinfo=UTC)


def test_the_url_comes_from_the_environment_where_none_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MSGCENTER_MSGDB_URL", "postgresql:///store")

    assert batch_options({}).store.url == "postgresql:///store"


def test_without_any_url_it_is_said_where_one_is_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MSGCENTER_MSGDB_URL", raising=False)

    with pytest.raises(NoDatabaseError, match="give the option `url`, or set MSGCENTER_MSGDB_URL"):
        batch_options({})


def test_pinned_bounds_survive_as_text() -> None:
    bounds = PinnedBounds("bcfd57a2-fb7b-4ac8-b0fa-e4f48edf0083", {7: (0, 3), 12: (5, 5)})

    assert pinned_bounds_of(bounds.text) == bounds
