"""Plans of the hot statements, on tables of some size: none of them may read a table from end to end."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg.rows import TupleRow

from msgdb.archive import differences, stored_days
from msgdb.days import deleting
from msgdb.figures import backlog, pace, usage
from msgdb.jobs import trials
from msgdb.lanes import attempts, checkpoints, draining, lag, leases, lost_log, standing, steering
from msgdb.log import copies, queues, reads
from msgdb.log.beginnings import FIRST_KEEPER, keeper_of
from msgdb.postgres.binary_rows import datetime_of
from msgdb.trace import reading as trace
from tests.conftest import database_named
from tests.support.prepared_plans import explain_prepared

LANES = range(1, 501)
LARGE_TABLES = ("message", "cursor", "redelivery", "dead_letter", "trace_event", "usage_minute", "backlog_minute")
_POPULATE = """
INSERT INTO queue (topic_id, generation, ordinal) SELECT t, 1, 0 FROM generate_series(1, 1000) t;

INSERT INTO message (queue_id, queue_offset, stored_at, message_id, namespace, topic, event_code, body, born_at, stress)
SELECT q, d * 5000 + o, date_trunc('day', now(), 'UTC') + (d - 1) * interval '1 day' + o * interval '1 second',
       gen_random_uuid(), 'default', 'TP', 'EC', '', now(), false
FROM generate_series(1, 4) q, generate_series(0, 3) d, generate_series(0, 4999) o;

INSERT INTO cursor (group_id, member, queue_id, acked_offset, owner, epoch, lease_until)
SELECT g, '', q, 0, '00000000-0000-0000-0000-000000000001', 1, now() + interval '1 hour'
FROM generate_series(1, 20) g, generate_series(1, 500) q;

INSERT INTO redelivery (group_id, member, queue_id, queue_offset, stored_at, attempt, due_at)
SELECT g, '', q, o, now(), 2, now() FROM generate_series(1, 4) g, generate_series(1, 4) q, generate_series(0, 1999) o;

INSERT INTO dead_letter (group_id, group_name, died_at, attempts, reason, queue_id, queue_offset, stored_at, message_id,
                         namespace, topic, event_code, body, born_at, stress)
SELECT g, '', now() - o % 100 * interval '1 day', 16, 'REJECTED', 1, o, now(), gen_random_uuid(), 'default', 'TP', 'EC',
       '', now(), false
FROM generate_series(1, 20) g, generate_series(0, 999) o;

INSERT INTO trace_event (at, kind, broker, queue_id, first_offset, last_offset)
SELECT date_trunc('day', now(), 'UTC') + (d - 1) * interval '1 day' + o * interval '1 second',
       CASE WHEN o % 100 = 0 THEN 'LEFT_OUT' ELSE 'ACKED' END, 'host:1', q, d * 5000 + o, d * 5000 + o
FROM generate_series(1, 4) q, generate_series(0, 3) d, generate_series(0, 4999) o;
INSERT INTO usage_minute (minute, topic_id, group_id, event_code, stress, broker_id, published, redriven, replayed,
                          delivered, retried, dead_lettered, size_bytes, latency)
SELECT date_trunc('day', now(), 'UTC') + m * interval '1 minute', t, g, 'EC', false,
       '00000000-0000-0000-0000-000000000001', 1, 0, 0, 0, 0, 0, 0, '{}'
FROM generate_series(0, 399) m, generate_series(1, 20) t, generate_series(0, 4) g;

INSERT INTO backlog_minute (group_id, queue_id, minute, topic_id, behind, behind_max, redeliveries)
SELECT g, q, date_trunc('day', now(), 'UTC') + m * interval '1 minute', q, 1, 1, 0
FROM generate_series(0, 399) m, generate_series(1, 10) g, generate_series(1, 20) q;

ANALYZE;
"""


@pytest.fixture(scope="module")
def connection(postgres_url: str, template_database: str) -> Iterator[psycopg.Connection[TupleRow]]:
    """A populated database for the statements of this module; each process of the run has its own."""
    name = f"{template_database}_plans_{os.getpid()}"
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        admin.execute(f'CREATE DATABASE "{name}" TEMPLATE "{template_database}"')
        try:
            with psycopg.connect(database_named(postgres_url, name), autocommit=True) as connection:
                connection.execute(_POPULATE)
                yield connection
        finally:
            admin.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


def lanes(count: int) -> dict[str, Any]:
    return {
        "group_id": [7] * count,
        "member": [""] * count,
        "queue_id": list(LANES)[:count],
        "initial_offset": [0] * count,
        "epoch": [1] * count,
        "acked_offset": [10] * count,
        "acked_ranges": ["{[12,13)}"] * count,
        "matching_asked": [1] * count,
        "matching_share": [0.5] * count,
        "matching_read": [100.0] * count,
        "owner": UUID(int=1),
        "lease_seconds": 10.0,
        "limit": 10_000,
        "epoch_floor": 0,
        "first_keeper": FIRST_KEEPER,
        "last_keeper": keeper_of(1),
    }


def messages(count: int) -> dict[str, Any]:
    return {
        "group_id": [1] * count,
        "group_name": [""] * count,
        "member": [""] * count,
        "queue_id": [1] * count,
        "queue_offset": list(range(count)),
        "stored_at": [datetime_of(1_700_000_000_000_000)] * count,
        "stored_at_us": [1_700_000_000_000_000] * count,
        "attempt": [2] * count,
        "attempts": [2] * count,
        "due_in_seconds": [1.0] * count,
        "ordering_key": [None] * count,
        "reason": ["REJECTED"] * count,
        "last_error": [None] * count,
        "shelved_by": [None] * count,
    }


FIGURES_OF = {
    "since": datetime.now(UTC).replace(hour=1, minute=0, second=0, microsecond=0),
    "until": datetime.now(UTC).replace(hour=1, minute=10, second=0, microsecond=0),
    "step_seconds": 60,
    "topic_ids": None,
    "group_ids": None,
    "limit": 1_000,
}
COUNTED = usage.UsageRow(0, 1, 1, "EC", stress=False)
RANGE = {"queue_id": 1, "first_offset": 7_000, "limit": 500, "bytes_max": 1 << 20}
OF_PLACE = {
    "group_id": list(range(1, 21)),
    "queue_id": 1,
    "queue_offset": 500,
    "stored_at": datetime_of(0),
    "first_keeper": FIRST_KEEPER,
}
COPIES = {"message_id": UUID(int=5), "namespace": "default", "group_id": None, "limit": 101}
OLD_DAY = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=50)
TODAYS = f"message_p{datetime.now(UTC):%Y%m%d}"
ROWS = {"first": OLD_DAY, "end": OLD_DAY + timedelta(days=1), "message_id": UUID(int=5)}
IDS = {"first_id": 0, "last_id": 1 << 62}
OF_DEAD_LETTERS = {"table": "dead_letter", "time": "died_at"}
STEERED = {
    "group_id": 1,
    "group_name": "",
    "queue_id": 1,
    "queue_offset": 99,
    "stored_at": datetime_of(1_700_000_000_000_000),
    "ordering_key": None,
    "initial_offset": 0,
    "epoch_floor": 0,
    "attempts": 2,
    "last_error": None,
    "window_max": 1_000,
}

# Those that psycopg may prepare are planned once without their values, too.
PREPARED: dict[str, tuple[str, Mapping[str, Any]]] = {
    "read_range": (reads._READ_RANGE, RANGE),
    "next_offsets": (reads._NEXT_OFFSETS, {"queue_ids": [1, 2, 3]}),
    "stored_at": (reads._STORED_AT, {"queue_id": 1, "queue_offset": 99}),
    "list_topic_queues": (queues._LIST_OF_TOPIC, {"topic_id": 5}),
    "claim": (leases._CLAIM, lanes(100)),
    "renew": (leases._RENEW, lanes(100)),
    "release": (leases._RELEASE, lanes(100)),
    "have_redeliveries": (leases._HAVE_REDELIVERIES, lanes(100)),
    "load_redeliveries": (leases._LOAD_REDELIVERIES, lanes(20)),
    "move_cursors": (checkpoints.MOVE_CURSORS, lanes(100)),
    "upsert_redeliveries": (checkpoints.UPSERT_REDELIVERIES, messages(100)),
    "delete_redeliveries": (checkpoints.DELETE_REDELIVERIES, messages(100)),
    "lock_cursor": (steering._LOCK_CURSOR, STEERED),
    "lock_row": (steering._LOCK_ROW, STEERED),
    "forget_row": (steering._FORGET_ROW, STEERED),
    "make_due": (steering._MAKE_DUE, STEERED),
    "turn": (steering._TURN, STEERED),
    "delete_rows_of_day": (
        deleting.DELETE.format(**OF_DEAD_LETTERS),
        {**IDS, "since": OLD_DAY, "day_end": OLD_DAY + timedelta(days=1), "limit": 5_000},
    ),
    "count_rows_of_day": (differences._COUNT_ROWS.format(**OF_DEAD_LETTERS), {**IDS, **ROWS}),
    "list_days_of_rows": (stored_days._LIST_DAYS.format(**OF_DEAD_LETTERS), ROWS),
    "differing_queues": (
        differences._DIFFERING_QUEUES.format(partition=TODAYS),
        {"run_id": UUID(int=5), "limit": 4},
    ),
}
PLANNED_EACH_TIME: dict[str, tuple[str, Mapping[str, Any]]] = {
    "read_offsets": (reads._READ_OFFSETS, {**messages(500), "queue_id": 1, "bytes_max": 1 << 20}),
    "copy_dead_letters": (checkpoints.COPY_DEAD_LETTERS, messages(100)),
    "find_lost_ends": (lost_log._FIND_BEYOND, lanes(100)),
    "trace_of_key": (trace._OF_KEY, {"namespace": "default", "topic": "TP", "key": "order-1", "limit": 5}),
    "trace_events": (
        trace._EVENTS,
        {"queue_id": 1, "queue_offset": 7_000, "stored_at": datetime.now(UTC) - timedelta(days=2), "limit": 1_000},
    ),
    "trace_acked": (
        trace._ACKED,
        {"queue_id": 1, "queue_offset": 7_000, "stored_at": datetime.now(UTC) - timedelta(days=2)},
    ),
    "trace_left_out": (
        trace._LEFT_OUT,
        {"first": datetime.now(UTC) - timedelta(hours=1), "last": datetime.now(UTC)},
    ),
    "first_stored": (reads._FIRST_STORED, {"queue_id": [1, 2, 3], "queue_offset": [0, 7_000, 10**9]}),
    "list_wanted_trials": (trials._LIST_WANTED, {"limit": 100, "waited_seconds": 10.0}),
    "find_copies": (copies._FIND, COPIES),
    "find_copies_of_a_group": (copies._FIND, {**COPIES, "group_id": 3}),
    "find_copy_at": (copies._FIND_AT, {"queue_id": 1, "queue_offset": 99}),
    "find_stand": (steering._FIND, STEERED),
    "count_others": (steering._COUNT_OTHERS, STEERED),
    "bury": (steering._BURY, STEERED),
    "find_left": (
        draining._FIND_LEFT,
        {
            "group_id": 3,
            "queue_id": [1, 2],
            "end_offset": [9_000] * 2,
            "initial_offset": [0] * 2,
            "first_keeper": FIRST_KEEPER,
        },
    ),
    "count_by_attempt": (attempts._COUNT, {"group_id": 3}),
    "lane_rows": (standing._FIND, OF_PLACE),
    "buried_at": (standing._BURIED_AT, {**OF_PLACE, "namespace": "default"}),
    "lag": (lag._LAG, {"all": False, "group_ids": [3]}),
    "write_usage": (
        usage.WRITE,
        {**usage._parameters([COUNTED]), "broker_id": UUID(int=1), "broker": "", "counted_until": OLD_DAY}
        | {"has_ended": False},
    ),
    "usage_of_minutes": (usage.READ, FIGURES_OF),
    "usage_of_a_topic": (usage.READ, {**FIGURES_OF, "since": OLD_DAY, "until": FIGURES_OF["until"], "topic_ids": [5]}),
    "usage_of_a_group": (usage.READ, {**FIGURES_OF, "since": OLD_DAY, "until": FIGURES_OF["until"], "group_ids": [2]}),
    "backlog_of_minutes": (backlog.READ, FIGURES_OF),
    "backlog_of_a_group": (backlog.READ, {**FIGURES_OF, "since": OLD_DAY, "group_ids": [3]}),
    "look_at_backlog": (
        backlog.LOOK,
        {**backlog.readings_parameters([backlog.Reading(3, n, {}) for n in range(1, 4)]), "apart_seconds": 9.0},
    ),
    "late": (backlog._READ_LATE, {}),
    "changes_of_backlog": (
        pace.CHANGES,
        {"first": FIGURES_OF["since"], "last": FIGURES_OF["until"], "limit": 10_000},
    ),
}
"""A plan that depends on its values is judged with values only."""


@pytest.mark.parametrize("name", [*PREPARED, *PLANNED_EACH_TIME])
def test_a_hot_statement_uses_an_index(connection: psycopg.Connection[TupleRow], name: str) -> None:
    statement, values = {**PREPARED, **PLANNED_EACH_TIME}[name]

    assert scanned_tables(explain_prepared(connection, statement, values, "force_custom_plan")) == set()


@pytest.mark.parametrize("name", PREPARED)
def test_a_prepared_statement_uses_an_index(connection: psycopg.Connection[TupleRow], name: str) -> None:
    statement, values = PREPARED[name]

    assert scanned_tables(explain_prepared(connection, statement, values, "force_generic_plan")) == set()


@pytest.mark.parametrize("name", ["read_offsets", "copy_dead_letters"])
def test_single_messages_are_looked_for_in_their_own_day_only(
    connection: psycopg.Connection[TupleRow], name: str
) -> None:
    statement, values = PLANNED_EACH_TIME[name]
    with connection.transaction(force_rollback=True):
        rows = connection.execute(f"EXPLAIN (ANALYZE, TIMING OFF) {statement}", values).fetchall()

    probes = [row[0] for row in rows if re.search(r"Scan.* on message_p", row[0])]
    assert probes
    # The values name a day without a partition.
    assert all("never executed" in probe for probe in probes)


def test_dead_letters_of_a_day_are_deleted_by_the_time_they_died(connection: psycopg.Connection[TupleRow]) -> None:
    plan = explain_prepared(connection, *PREPARED["delete_rows_of_day"], "force_generic_plan")

    assert any("dead_letter_died_at_idx" in line for line in plan)
    assert any("Tid Scan on dead_letter" in line for line in plan)


def test_a_renewal_does_not_compare_each_lane_with_each(connection: psycopg.Connection[TupleRow]) -> None:
    with connection.transaction(force_rollback=True):
        rows = connection.execute(f"EXPLAIN (ANALYZE, TIMING OFF) {leases._RENEW}", lanes(len(LANES))).fetchall()

    seen = [match for row in rows if (match := re.search(r"actual rows=([\d.]+) loops=(\d+)", row[0]))]
    assert max(float(match[1]) * int(match[2]) for match in seen) == len(LANES)


def test_a_sequential_scan_would_be_noticed(connection: psycopg.Connection[TupleRow]) -> None:
    plan = explain_prepared(connection, "SELECT * FROM message WHERE topic = %(topic)s", {"topic": "x"}, "auto")

    assert scanned_tables(plan) == {"message"}


def scanned_tables(plan: list[str]) -> set[str]:
    """Return the large tables that the plan reads from end to end; days that are empty do not count."""
    scans = [match for line in plan if (match := re.search(r"Seq Scan on (\w+?)(_p\d{8})?\b.*\.\.(\d+)\.", line))]
    return {match[1] for match in scans if match[1] in LARGE_TABLES and int(match[3]) > 0}
