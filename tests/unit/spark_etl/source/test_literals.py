"""Values as they are written into statements."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone

import pytest

from spark_etl.source.literals import Value, identifier, literal


@pytest.mark.parametrize(
    "value, written",
    [
        (-7, "-7"),
        (True, "true"),
        ("a'b\\", "convert_from('\\x6127625c'::bytea, 'UTF8')"),
        (date(2026, 11, 17), "'2026-11-17'::date"),
        (datetime(2026, 11, 17, 8, 0, 0, 1, UTC), "'2026-11-17 08:00:00.000001+00:00'::timestamptz"),
        (datetime(2026, 11, 17, 1, tzinfo=timezone(timedelta(hours=2))), "'2026-11-16 23:00:00+00:00'::timestamptz"),
    ],
)
def test_a_value_is_written_as_sql_has_it(value: Value, written: str) -> None:
    assert literal(value) == written


@pytest.mark.parametrize("value", ["a\0b", datetime(2026, 11, 17)])  # noqa: DTZ001 - without a zone
def test_what_postgresql_has_no_value_of_is_refused(value: Value) -> None:
    with pytest.raises(ValueError, match=r"NUL|zone"):
        literal(value)


def test_a_quote_in_a_name_ends_no_name() -> None:
    assert identifier('a"; DROP TABLE message; --') == '"a""; DROP TABLE message; --"'
