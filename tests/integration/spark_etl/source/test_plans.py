"""What the driver and the readers ask PostgreSQL is answered by an index, however large the days are."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from unittest.mock import patch

import psycopg
import pytest

from spark_etl.source import pages, survey
from spark_etl.source.contract import SOURCES
from spark_etl.source.filters import Bounds, Pushed
from spark_etl.source.pages import Connection, fetch_rows, read_range
from tests.support.message_rows import NOON, put_rows, run_of

MESSAGE, LETTERS = SOURCES["message"], SOURCES["dead_letter"]
COUNT = 20_000


@pytest.fixture
def full(database_url: str) -> str:
    """Return the URL of a store whose day has many messages in eight queues."""
    put_rows(database_url, [one for queue_id in range(1, 9) for one in run_of(queue_id, 1)])
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(
            "INSERT INTO message (queue_id, queue_offset, stored_at, message_id, namespace, topic, event_code, body,"
            " born_at, stress) SELECT q, o, %s + o * interval '1 ms', gen_random_uuid(), 'default', 'TP_TRADE',"
            " 'EC_PAID', convert_to(repeat('x', 300), 'UTF8'), now(), false"
            " FROM generate_series(1, %s) o, generate_series(1, 8) q",
            (NOON, COUNT - 1),
        )
        connection.execute("ANALYZE message")
    return database_url


@pytest.fixture
def letters(database_url: str) -> str:
    """Return the URL of a store with many dead letters, the same number on each of ten days."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(
            "INSERT INTO dead_letter (group_id, group_name, died_at, attempts, reason, queue_id, queue_offset,"
            " stored_at, message_id, namespace, topic, event_code, body, born_at, stress)"
            " SELECT 1, 'SG', %s - (9 - n / 5000) * interval '1 day', 3, 'REJECTED', 1, n,"
            " now(), gen_random_uuid(), 'default', 'TP', 'EC', 'x', now(), false FROM generate_series(0, 49999) n",
            (NOON,),
        )
        connection.execute("ANALYZE dead_letter")
    return database_url


def rows_passed(url: str, statement: str) -> int:
    """Return how many rows the nodes of a statement's plan have read and thrown away."""
    with psycopg.connect(url) as connection:
        lines = connection.execute(b"EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF) " + statement.encode()).fetchall()
    return sum(int(count) for count in re.findall(r"Rows Removed by Filter: (\d+)", "\n".join(row[0] for row in lines)))


def test_the_ids_of_a_day_are_found_without_those_of_the_days_before(
    letters: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    day = datetime(NOON.year, NOON.month, NOON.day, tzinfo=UTC)

    def fetch(connection: Connection, statement: str) -> list[dict[str, object]]:
        asked.append(statement)
        return fetch_rows(connection, statement)

    monkeypatch.setattr(survey, "fetch_rows", fetch)
    with pages.connect(letters) as reading:
        (found,) = survey.range_of_ids(reading, LETTERS, Pushed(), Bounds(day, day + timedelta(days=1)))
        (whole,) = survey.range_of_ids(reading, LETTERS, Pushed(), Bounds())

    assert (found.end - found.first, whole.end - whole.first) == (5_000, 50_000)
    assert found.row_bytes == whole.row_bytes
    assert [rows_passed(letters, statement) for statement in asked] == [0, 0]


def scanned_in(url: str, statement: str) -> set[str]:
    """Return what the plan of *statement* reads from end to end."""
    with psycopg.connect(url) as connection:
        plan = "\n".join(row[0] for row in connection.execute(b"EXPLAIN " + statement.encode()).fetchall())
    return set(re.findall(r"Seq Scan on (message\w*)", plan))


def test_what_is_asked_before_a_read_scans_no_day(full: str, reading: Connection) -> None:
    asked: list[str] = []

    def fetch(connection: Connection, statement: str) -> list[dict[str, object]]:
        asked.append(statement)
        return fetch_rows(connection, statement)

    ranges = dict.fromkeys(range(1, 9), (0, COUNT))
    with patch.object(survey, "fetch_rows", fetch):
        survey.ranges_of_log(reading, Pushed(), Bounds(NOON + timedelta(seconds=5), None))
        survey.queue_ends(reading)
        survey.row_sizes(reading, ranges)
        survey.offsets_at(reading, ranges, datetime.now(UTC))

    assert len(asked) > 10
    # Days without a message are read whichever way.
    day = f"message_p{NOON:%Y%m%d}"
    assert [statement for statement in asked if day in scanned_in(full, statement)] == []


def test_a_page_of_a_range_scans_no_day(full: str, reading: Connection) -> None:
    asked: list[str] = []

    def read_page(connection: Connection, statement: str, page_bytes: int) -> tuple[list[object], bool]:
        asked.append(statement)
        return [], True

    with patch.object(pages, "_read_page", read_page):
        list(
            read_range(reading, MESSAGE, "message", 3, 100, COUNT, page_rows=1_000, conditions=["t.topic = 'TP_TRADE'"])
        )

    assert len(asked) == 20
    assert [statement for statement in asked if f"message_p{NOON:%Y%m%d}" in scanned_in(full, statement)] == []
