"""Plans of what is asked of jobs and dead letters: by their indexes, however many there are."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import psycopg
import pytest
from psycopg.rows import TupleRow
from psycopg.types.json import Jsonb

from msgdb import acts
from msgdb.dead_letters import choosing, reading
from msgdb.dead_letters.wanted import WantedDeadLetters
from msgdb.jobs import listing, purge_jobs, steering, steps
from msgdb.lanes import reset_acts, skip_acts
from tests.conftest import database_named
from tests.support.prepared_plans import explain_prepared
from tests.support.rows import OWNER

JOBS, LETTERS, GROUPS, ACTS = 20_000, 20_000, 200, 100_000

_POPULATE = f"""
INSERT INTO job (kind, state, namespace, thing, spec, total, done, rate, actor, reason, created_at, ended_at)
SELECT CASE WHEN n % 4 = 0 THEN 'PURGE' ELSE 'REDRIVE' END, CASE WHEN n % 1000 = 0 THEN 'RUNNING' ELSE 'DONE' END,
       CASE WHEN n % 2000 = 0 THEN 'shop' ELSE 'default' END, '', '{{}}', 1, 1, 1, 'ada', 'why',
       now() - ({JOBS} - n) * interval '6 minutes', CASE WHEN n % 1000 = 0 THEN NULL ELSE now() END
FROM generate_series(1, {JOBS}) n;

INSERT INTO act (at, actor, namespace, action, thing, reason, detail)
SELECT now() - ({ACTS} - n) * interval '5 minutes', 'ada', CASE WHEN n % 1000 = 0 THEN 'shop' ELSE 'default' END,
       CASE n % 50 WHEN 0 THEN 'message.skip' WHEN 1 THEN 'group.reset' ELSE 'job.redrive' END, 'something', 'why',
       CASE n % 50 WHEN 0 THEN jsonb_build_object('group_id', 1, 'queue_id', 1, 'queue_offset', n)
            WHEN 1 THEN jsonb_build_object('group_id', 1, 'queues', '[[1, 0, 9]]'::jsonb) ELSE '{{"job_id": 1}}' END
FROM generate_series(1, {ACTS}) n;

INSERT INTO dead_letter (group_id, group_name, attempts, reason, last_error, queue_id, queue_offset, stored_at,
                         message_id, namespace, topic, event_code, key, body, born_at, stress)
SELECT n % {GROUPS}, '', 16, 'REJECTED', 'timeout', 1, n, now(), gen_random_uuid(), 'default', 'TP', 'EC', 'k' || n, '',
       now(), false
FROM generate_series(1, {LETTERS}) n;

INSERT INTO redrive (dead_letter_id, job_id) SELECT id, 1 FROM dead_letter WHERE id % 2 = 0;
INSERT INTO job_failure (job_id, item, error) SELECT n % 100 + 1, '', '' FROM generate_series(1, 10000) n;

ANALYZE;
"""


class Hot(NamedTuple):
    """A statement, and how many rows it may read."""

    statement: str
    rows_max: int
    values: Mapping[str, Any] = {}


@pytest.fixture(scope="module")
def connection(postgres_url: str, template_database: str) -> Iterator[psycopg.Connection[TupleRow]]:
    """A populated database for the statements of this module; each process of the run has its own."""
    name = f"{template_database}_job_plans_{os.getpid()}"
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        admin.execute(f'CREATE DATABASE "{name}" TEMPLATE "{template_database}"')
        try:
            with psycopg.connect(database_named(postgres_url, name), autocommit=True) as connection:
                connection.execute(_POPULATE)
                yield connection
        finally:
            admin.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


OPEN_JOBS = JOBS // 1_000
OF_GROUP = WantedDeadLetters(group_id=3, is_open=True).parameters()
OPEN = WantedDeadLetters(is_open=True).parameters()
ONE_LETTER = WantedDeadLetters(ids=(50,)).parameters()
LISTED = {"before_id": LETTERS, "scanned_max": reading.SCANNED_MAX}
CHOSEN = {"after_id": 5_000, "last_id": LETTERS, "bytes_max": 1 << 20, "scanned_max": choosing.SCANNED_MAX}
PAGE = listing.PAGE_MAX
JOBS_OF = {"before_id": 2**63 - 1, "limit": PAGE}
ACTS_OF = {"before_id": 2**63 - 1, "limit": acts.PAGE_MAX, "actor": None, "since": None, "until": None}
MONTH_AGO = datetime.now(UTC) - timedelta(days=30)
SINCE = {"since": MONTH_AGO, "limit": 1_001}
ACTS_OF_A_MONTH = 30 * 24 * 12 + 10
A_PLACE = {"queue_id": 1, "queue_offset": 99_950}
RESETS = ACTS // 50
RESETS_OF = {
    "of_queue": Jsonb({"queues": [[1]]}),
    "queue_id": 1,
    "queue_offset": 5,
    "since": datetime.now(UTC) - timedelta(days=366),
}
OF_SHOP = {"namespace": "shop", "only_open": False}
JOBS_OF_SHOP, ACTS_OF_SHOP = JOBS // 2_000, ACTS // 1_000
MINE = {"job_id": 1_000, "epoch": 0, "lease_seconds": 30.0}

STATEMENTS = {
    "jobs claimed": Hot(steps._CLAIM, 3 * OPEN_JOBS, {"owner": OWNER, "limit": 4, "lease_seconds": 30.0}),
    "a step begun": Hot(steps._LOCK, 1, MINE),
    "a job locked": Hot(steering._LOCK, 1, {"job_id": 7, "namespace": "default"}),
    "jobs listed": Hot(listing._LIST, 50, {"before_id": JOBS, "only_open": False, "limit": 50}),
    "a page of jobs": Hot(listing._LIST, PAGE, {**JOBS_OF, "only_open": False}),
    "a page of a namespace's jobs": Hot(listing._LIST_OF_NAMESPACE, JOBS_OF_SHOP, {**JOBS_OF, **OF_SHOP}),
    # What people begin and what they do is little: 90 days of the one are read in a millisecond, a year of the other in
    # ten. So these may read all of it, once; an index would only be for them.
    "open jobs": Hot(listing._LIST, JOBS, {**JOBS_OF, "only_open": True}),
    "a page of purges": Hot(purge_jobs._LIST, JOBS, {**JOBS_OF, "since": MONTH_AGO}),
    "a page of acts": Hot(acts._LIST, PAGE, {**ACTS_OF, "action": ""}),
    "a page of acts of a kind": Hot(acts._LIST, 50 * PAGE, {**ACTS_OF, "action": "message."}),
    "acts that there are none of": Hot(acts._LIST, ACTS, {**ACTS_OF, "action": "archive."}),
    # All acts once, and those that concern the message once more: of 2,000 resets since the last one that went back.
    "resets": Hot(reset_acts._LIST, ACTS + 5 * RESETS, {**RESETS_OF, "limit": 10_001}),
    "lanes put back": Hot(reset_acts._LIST_PUT_BACK, ACTS, {"of_queue": Jsonb({"queue_ids": [1]}), "limit": 1_000}),
    "a page of a namespace's acts": Hot(
        acts._LIST_OF_NAMESPACE, ACTS_OF_SHOP, {**ACTS_OF, "namespace": "shop", "action": ""}
    ),
    "a page of many acts of a namespace": Hot(
        acts._LIST_OF_NAMESPACE, PAGE + ACTS_OF_SHOP, {**ACTS_OF, "namespace": "default", "action": ""}
    ),
    "a namespace's acts of somebody": Hot(
        acts._LIST_OF_NAMESPACE, ACTS_OF_SHOP, {**ACTS_OF, "namespace": "shop", "action": "", "actor": "bob"}
    ),
    "a namespace's acts of a time": Hot(
        acts._LIST_OF_NAMESPACE,
        ACTS_OF_SHOP,
        {**ACTS_OF, "namespace": "shop", "action": "", "since": MONTH_AGO, "until": datetime.now(UTC)},
    ),
    "an act shown": Hot(acts._GET, 1, {"act_id": 7, "namespace": "default"}),
    "acts forgotten": Hot(acts._FORGET, 2 * 1_000, {"kept_days": 200, "limit": 1_000}),
    # Those since the message was stored, of a month at most.
    "skips of a message": Hot(skip_acts._LIST, ACTS_OF_A_MONTH, {**SINCE, "place": Jsonb(A_PLACE)}),
    "failures listed": Hot(listing._FAILURES, 100, {"job_id": 7, "limit": 1_000}),
    # Each twice: found by the index, then looked at; and whether it was redriven. Every second one was.
    "letters listed": Hot(reading._LIST, 7 * 20, {**OF_GROUP, **LISTED, "limit": 20}),
    "letters of any group listed": Hot(reading._LIST, 7 * 20, {**OPEN, **LISTED, "limit": 20}),
    "a letter listed": Hot(reading._LIST, 10, {**ONE_LETTER, **LISTED, "limit": 20}),
    "a letter shown": Hot(reading._GET, 1, {"id": 7}),
    "letters of some groups counted": Hot(
        reading._COUNT_OF_GROUPS, 6 * 100, {**OPEN, "group_ids": [3, 4], "scanned_max": reading.COUNTED_MAX}
    ),
    "letters chosen": Hot(choosing._CHOOSE, 7 * 50, {**OF_GROUP, **CHOSEN, "limit": 50}),
    "letters of any group chosen": Hot(choosing._CHOOSE, 7 * 50, {**OPEN, **CHOSEN, "limit": 50}),
    "letters read": Hot(choosing._READ, 3, {}),
    "letters purged": Hot(choosing._DELETE, 6, {}),
    "redrives noted": Hot(
        choosing._NOTE, 3, {"dead_letter_id": [1, 3], "queue_id": [1, 1], "queue_offset": [5, 6], "job_id": 9}
    ),
    "redrives listed": Hot(reading._REDRIVES, 1, {}),
}
BY_PLACE = {"letters read": [1, 2, 3], "letters purged": [11, 12, 13], "redrives listed": 2}


@pytest.mark.parametrize("name", STATEMENTS)
def test_a_statement_reads_what_it_is_about_and_no_more(connection: psycopg.Connection[TupleRow], name: str) -> None:
    hot = STATEMENTS[name]
    statement, values = hot.statement, dict(hot.values)
    if name in BY_PLACE:
        statement, values = statement.replace("%s", "%(given)s"), {"given": BY_PLACE[name]}

    (plans,) = explain_prepared(
        connection, statement, values, "force_custom_plan", options="ANALYZE, TIMING OFF, FORMAT JSON"
    )

    assert rows_read(plans[0]["Plan"]) <= hot.rows_max, plans[0]["Plan"]


def test_a_scan_from_end_to_end_would_be_noticed(connection: psycopg.Connection[TupleRow]) -> None:
    (plans,) = explain_prepared(
        connection, "SELECT * FROM job WHERE thing = 'x'", {}, "force_custom_plan", options="ANALYZE, FORMAT JSON"
    )

    assert rows_read(plans[0]["Plan"]) == JOBS


def rows_read(plan: Mapping[str, Any]) -> float:
    """Return how many rows of tables were looked at, those that were thrown away included."""
    below = sum((rows_read(each) for each in plan.get("Plans", ())), 0.0)
    if "Relation Name" not in plan or "Scan" not in plan["Node Type"]:
        return below
    thrown_away = ("Rows Removed by Filter", "Rows Removed by Index Recheck")
    rows = float(plan["Actual Rows"]) + sum(float(plan.get(name, 0)) for name in thrown_away)
    return below + rows * float(plan["Actual Loops"])
