"""Plans of what is asked of days: each reads what it is about, and no table or day from end to end."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg import sql
from psycopg.rows import TupleRow

from msgdb import acts
from msgdb.archive import claims, closing, day_rows, listing, noting, open_writers, stored_days, supplements
from msgdb.log.partitions import day_bounds
from tests.conftest import database_named
from tests.support.archive_runs import days_ago
from tests.support.prepared_plans import PlanMode, explain_prepared

DAY = days_ago(1)
FIRST, END = day_bounds(DAY)
PARTITION = f"message_p{DAY:%Y%m%d}"
RUN = UUID(int=1_000)
QUEUES, ROWS_OF_QUEUE, ROWS_OF_DAY = 10, 3_000, 1_000

# Each day has had three runs; the day that is asked about is the last one.
_POPULATE = f"""
CREATE TABLE {PARTITION} PARTITION OF message FOR VALUES FROM ('{FIRST.isoformat()}') TO ('{END.isoformat()}');

INSERT INTO message (queue_id, queue_offset, stored_at, message_id, namespace, topic, event_code, body, born_at, stress)
SELECT q, o, '{FIRST.isoformat()}'::timestamptz + o * interval '1 second', gen_random_uuid(), 'default', 'TP', 'EC', '',
       now(), false
FROM generate_series(1, {QUEUES}) q, generate_series(0, {ROWS_OF_QUEUE} - 1) o;

INSERT INTO dead_letter (group_id, group_name, died_at, attempts, reason, queue_id, queue_offset, stored_at, message_id,
                         namespace, topic, event_code, body, born_at, stress)
SELECT 7, '', '{FIRST.isoformat()}'::timestamptz - (29 - d) * interval '24 hours' + o * interval '1 minute', 16,
       'REJECTED', d, o, now(), gen_random_uuid(), 'default', 'TP', 'EC', '', now(), false
FROM generate_series(0, 29) d, generate_series(0, {ROWS_OF_DAY} - 1) o;

INSERT INTO archive_run (run_id, table_name, day, state, holder, lease_until)
SELECT lpad(to_hex(n), 32, '0')::uuid, 'message', '{DAY}'::date - (n - 1000) / 3,
       CASE n % 3 WHEN 0 THEN 'VERIFIED' ELSE 'FAILED' END, 'spark-1', now()
FROM generate_series(1000, 6999) n;

INSERT INTO archive_day (table_name, day, state, run_id)
SELECT 'message', '{DAY}'::date - n, 'ARCHIVED', lpad(to_hex(1002 + n * 3), 32, '0')::uuid
FROM generate_series(0, 1999) n;

INSERT INTO archive_range (run_id, queue_id, first_offset, last_offset, last_message_id)
SELECT lpad(to_hex(n), 32, '0')::uuid, q, 0, {ROWS_OF_QUEUE} - 1, gen_random_uuid()
FROM generate_series(1000, 2999) n, generate_series(1, {QUEUES}) q;

INSERT INTO act (at, actor, action, thing, reason)
SELECT now() - (n - 1) * interval '2 hours', 'ada', 'test.do', n::text, 'why' FROM generate_series(1, 20000) n;

ANALYZE;
"""


@pytest.fixture(scope="module")
def connection(postgres_url: str, template_database: str) -> Iterator[psycopg.Connection[TupleRow]]:
    """A populated database for the statements of this module; each process of the run has its own."""
    name = f"{template_database}_archive_plans_{os.getpid()}"
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        admin.execute(f'CREATE DATABASE "{name}" TEMPLATE "{template_database}"')
        try:
            with psycopg.connect(database_named(postgres_url, name), autocommit=True) as connection:
                connection.execute(f"DROP TABLE IF EXISTS {PARTITION}")
                connection.execute(_POPULATE)
                yield connection
        finally:
            admin.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


@dataclass(frozen=True)
class Hot:
    """A statement, and how many rows it may read."""

    statement: str
    rows_max: int
    values: Mapping[str, Any] = field(default_factory=dict)
    parts: Mapping[str, sql.Composable] = field(default_factory=dict)


OF_MESSAGES = {"table": sql.Identifier(PARTITION), "partition": sql.Identifier(PARTITION)}
OF_LETTERS = {
    "table": sql.Identifier("dead_letter"),
    "partition": sql.Identifier("dead_letter"),
    "time": sql.Identifier("died_at"),
}
NAMED = {"table": "message", "day": DAY}
BOUNDS = {"run_id": RUN, "first": FIRST, "end": END}
LONG_GONE = {"run_id": UUID(int=1), "first": FIRST - timedelta(days=999), "end": END - timedelta(days=999)}
NOTED = {
    "run_id": RUN,
    "queue_id": list(range(1, QUEUES + 1)),
    "row_count": [ROWS_OF_QUEUE] * QUEUES,
    "digest": ["x"] * QUEUES,
}

ANY_ACT = {"action": "", "actor": None, "since": None, "until": None}
STATEMENTS = {
    "queues of a day": Hot(closing._LIST_QUEUES, 10 * QUEUES, {}, OF_MESSAGES),
    "ends of queues": Hot(closing._NOTE_QUEUES, 10 * QUEUES, {**BOUNDS, "run_id": UUID(int=7)}, OF_MESSAGES),
    # Once from the index, once of the day, and the last one's id.
    "ends of ids": Hot(
        closing._NOTE_ROWS, 2 * ROWS_OF_DAY + 10, {**BOUNDS, "run_id": UUID(int=7), "base_last": -1}, OF_LETTERS
    ),
    "rows of a run": Hot(supplements._ARE_ROWS_THERE, QUEUES * (ROWS_OF_DAY + 2), BOUNDS, OF_LETTERS),
    "ranges forgotten": Hot(closing._FORGET_RANGES, QUEUES, BOUNDS),
    "rows of a day": Hot(day_rows._HAS_ROWS, 1, BOUNDS, OF_LETTERS),
    "no rows of a day": Hot(day_rows._HAS_ROWS, 0, LONG_GONE, OF_LETTERS),
    "messages of a run": Hot(supplements._IS_MESSAGE_THERE, 2 * QUEUES, BOUNDS, OF_MESSAGES),
    "a run being claimed": Hot(claims._FIND_RUNNING, 3, NAMED),
    "a day being locked": Hot(noting._LOCK_DAY, 1, NAMED),
    "digests noted": Hot(claims._NOTE_RANGES, 10 * QUEUES, NOTED),
    "days listed": Hot(listing._LIST_NOTED, 500, {"table": "message", "before": DAY, "limit": 100}),
    "days found": Hot(listing._FIND_NOTED, 10, {"table": "message", "days": [DAY, DAY - timedelta(days=1)]}),
    # Of the index on the time.
    "days stored": Hot(stored_days._LIST_DAYS, 100, {"end": END}, OF_LETTERS),
    "runs listed": Hot(listing._LIST_RUNS, 3, {**NAMED, "limit": 100}),
    "runs found": Hot(listing._GET_RUNS, 2, {"run_ids": [RUN, UUID(int=1_001)]}),
    "acts listed": Hot(acts._LIST, 100, {**ANY_ACT, "before_id": 5_000, "limit": 100}),
    "acts forgotten": Hot(acts._FORGET, 5_000, {"kept_days": 366, "limit": 1_000}),
    "a queue described": Hot(open_writers._DESCRIBE, 10, {"queue_id": 3}),
}


@pytest.mark.parametrize("mode", ["force_custom_plan", "force_generic_plan"])
@pytest.mark.parametrize("name", STATEMENTS)
def test_a_statement_reads_what_it_is_about_and_no_more(
    connection: psycopg.Connection[TupleRow], name: str, mode: PlanMode
) -> None:
    hot = STATEMENTS[name]

    plan = explain(connection, hot, mode)

    assert rows_read(plan) <= hot.rows_max, plan


def test_ends_of_ids_are_read_from_the_day_alone_where_ids_of_earlier_days_are_many(
    connection: psycopg.Connection[TupleRow],
) -> None:
    plan = explain(connection, STATEMENTS["ends of ids"], "force_custom_plan")

    assert rows_read(plan) >= ROWS_OF_DAY, "or nothing was looked at"


def test_a_scan_from_end_to_end_would_be_noticed(connection: psycopg.Connection[TupleRow]) -> None:
    plan = explain(connection, Hot("SELECT * FROM act WHERE thing = 'x'", 0), "force_custom_plan")

    assert rows_read(plan) == 20_000


def explain(connection: psycopg.Connection[TupleRow], hot: Hot, mode: PlanMode) -> dict[str, Any]:
    """Carry the statement out under that plan_cache_mode, and return what was done; then take it back."""
    text = sql.SQL(hot.statement).format(**hot.parts).as_string(connection) if hot.parts else hot.statement
    explained = explain_prepared(connection, text, hot.values, mode, options="ANALYZE, TIMING OFF, FORMAT JSON")
    plan: dict[str, Any] = explained[0][0]["Plan"]
    return plan


def rows_read(plan: Mapping[str, Any]) -> float:
    """Return how many rows of tables were looked at, those that were thrown away included."""
    below = sum((rows_read(each) for each in plan.get("Plans", ())), 0.0)
    if "Relation Name" not in plan or "Scan" not in plan["Node Type"]:
        return below
    thrown_away = ("Rows Removed by Filter", "Rows Removed by Index Recheck")
    rows = float(plan["Actual Rows"]) + sum(float(plan.get(name, 0)) for name in thrown_away)
    return below + rows * float(plan["Actual Loops"])
