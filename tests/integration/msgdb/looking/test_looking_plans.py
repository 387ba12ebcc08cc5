"""Plans of what people look up with: by their indexes, however much the store has; none reads a table to its end."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

import psycopg
import pytest
from psycopg.rows import TupleRow

from msgdb.log import copies
from msgdb.log.beginnings import FIRST_KEEPER
from msgdb.looking import bodies, by_key, deaths, failures, headers_seen, queues_of, spans, stretches, unsettled
from msgdb.looking.stretches import EVERY_MESSAGE, WantedMessages
from tests.conftest import database_named

DAYS, EACH = 4, 10_000
QUEUES = 4
MIDNIGHT = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)

_POPULATE = f"""
INSERT INTO queue (topic_id, generation, ordinal) SELECT 1, 1, q FROM generate_series(1, {QUEUES}) q;
INSERT INTO queue (topic_id, generation, ordinal) SELECT 1000 + t, 1, 0 FROM generate_series(1, 500) t;

INSERT INTO message (queue_id, queue_offset, stored_at, message_id, namespace, topic, event_code, key, headers, body,
                     born_at, stress)
SELECT q, d * {EACH} + o, date_trunc('day', now(), 'UTC') + (d - 1) * interval '24 hours' + o * interval '1 second',
       md5(q || '/' || d * {EACH} + o)::uuid, 'default', 'TP', 'EC', 'k' || d * {EACH} + o, '{{"region": "hz"}}', 'x',
       now(), false
FROM generate_series(1, {QUEUES}) q, generate_series(0, {DAYS - 1}) d, generate_series(0, {EACH - 1}) o;

INSERT INTO dead_letter (group_id, group_name, attempts, reason, last_error, queue_id, queue_offset, stored_at,
                         message_id, namespace, topic, event_code, body, born_at, stress)
SELECT n % 50, '', 16, 'REJECTED', 'timeout after ' || n, 1, n, now(), gen_random_uuid(), 'default', 'TP', 'EC', '',
       now(), false
FROM generate_series(1, 20000) n;

INSERT INTO redrive (dead_letter_id, job_id) SELECT id, 1 FROM dead_letter WHERE id % 2 = 0;

INSERT INTO redelivery (group_id, member, queue_id, queue_offset, stored_at, attempt, due_at, last_error)
SELECT n % 50, '', 1 + n % {QUEUES}, n, date_trunc('day', now(), 'UTC'), 2, now(), 'timeout after ' || n
FROM generate_series(1, 20000) n;

ANALYZE;
"""


class Look(NamedTuple):
    """A statement, and how many rows it may read."""

    statement: str
    values: Mapping[str, Any]
    rows_max: int


@pytest.fixture(scope="module")
def connection(postgres_url: str, template_database: str) -> Iterator[psycopg.Connection[TupleRow]]:
    """A populated database for the statements of this module; each process of the run has its own."""
    name = f"{template_database}_looking_plans_{os.getpid()}"
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        admin.execute(f'CREATE DATABASE "{name}" TEMPLATE "{template_database}"')
        try:
            with psycopg.connect(database_named(postgres_url, name), autocommit=True) as connection:
                connection.execute(_POPULATE)
                yield connection
        finally:
            admin.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


ID = {"message_id": UUID(int=5), "namespace": "default", "group_id": None, "limit": 101}
AT = {"queue_id": [1, 2], "queue_offset": [EACH, EACH], "stored_at": [MIDNIGHT, MIDNIGHT]}
STRETCH = {"queue_id": [1, 2], "first": [EACH, 0], "behind": [EACH + 500, 500], "limit": 50}
KEY = {
    **WantedMessages(key="k777").parameters(),
    "namespace": "default",
    "topics": ["TP", "TP_OTHER"],
    **dict.fromkeys(("from", "before", "stored_at", "queue_id", "queue_offset")),
    "limit": 50,
}
HEADER = WantedMessages(headers={"region": "nowhere"}, event_code="EC").parameters()
SEARCHES = {
    "number": [0, 1, 2],
    "queue_id": [1, 2, 3],
    "at": [(MIDNIGHT + timedelta(hours=1)).isoformat(), "infinity", "-infinity"],
}
FAILURES = {"group_id": 7, "topic": None, "queue_ids": None, "since": None, "scanned_max": 50_000}
LANES = {
    "group_id": 7,
    "queue_id": [1, 2],
    "initial_offset": [0, 0],
    "first_keeper": FIRST_KEEPER,
}
WAITING = {"group_id": 7, "queue_id": [1, 2, 3, 4], "limit": 11, "is_shelved": None}
# Some rows of each queue and day: PostgreSQL reads one ahead wherever it merges.
LOOKS = {
    "by id": Look(copies._FIND, ID, 2),
    "by id, for a group": Look(copies._FIND, {**ID, "group_id": 7}, 2),
    "by its place": Look(copies._FIND_AT, {"queue_id": 1, "queue_offset": EACH}, 2),
    "bodies": Look(bodies._READ, AT, 2),
    "by key, oldest first": Look(by_key._LIST_ON, KEY, 20),
    "by key, newest first": Look(by_key._LIST_BACK, KEY, 20),
    "the offsets of a time": Look(spans._SEARCH, SEARCHES, 100),
    "a stretch": Look(stretches._READ_ON, STRETCH | EVERY_MESSAGE.parameters(), 150),
    "a stretch, backwards": Look(stretches._READ_BACK, STRETCH | EVERY_MESSAGE.parameters(), 150),
    "a stretch by headers": Look(stretches._READ_ON, STRETCH | HEADER, 1_050),
    "a stretch by headers, backwards": Look(stretches._READ_BACK, STRETCH | HEADER, 1_050),
    "queues that were left": Look(queues_of._LIST_LEFT, {"topic_ids": [1]}, 10),
    "dead letters of a message": Look(deaths._LIST, AT, 160),
    "headers": Look(headers_seen._LIST, STRETCH, 1_050),
    "errors of dead letters": Look(failures._LIST_DEAD, FAILURES, 2_000),
    "where lanes stand": Look(unsettled._LANES, LANES, 1),
    "what waits of many lanes": Look(unsettled._WAITING, WAITING, 60),
    "what is shelved": Look(unsettled._WAITING, {**WAITING, "is_shelved": True}, 500),
    "what is known of unsettled messages": Look(unsettled._KNOWN, {**AT, "group_id": 7}, 4),
    "what comes next": Look(unsettled._NEXT, {"queue_id": [1, 2], "queue_offset": [EACH, 0]}, 20),
    "errors of messages that wait": Look(failures._LIST_WAITING, FAILURES, 500),
}


@pytest.mark.parametrize("name", LOOKS)
def test_a_look_reads_no_more_than_it_must(connection: psycopg.Connection[TupleRow], name: str) -> None:
    look = LOOKS[name]
    with connection.transaction(force_rollback=True):
        plan = [row[0] for row in connection.execute(f"EXPLAIN (ANALYZE, TIMING OFF) {look.statement}", look.values)]

    assert rows_read(plan) <= look.rows_max, "\n".join(plan)


def test_reading_all_would_be_noticed(connection: psycopg.Connection[TupleRow]) -> None:
    plan = [row[0] for row in connection.execute("EXPLAIN (ANALYZE, TIMING OFF) SELECT FROM message WHERE body = ''")]

    assert rows_read(plan) == DAYS * EACH * QUEUES


def rows_read(plan: list[str]) -> float:
    """Return how many rows of the large tables were looked at, those that were left out included."""
    read = 0.0
    loops = 1.0
    for line in plan:
        if found := re.search(r"actual rows=([\d.]+) loops=(\d+)", line):
            loops = float(found[2])
            # What a bitmap names is read by the scan above it.
            if re.search(r"Scan.* on (message|dead_letter|redelivery|redrive)", line) and "Bitmap Index" not in line:
                read += float(found[1]) * loops
        elif found := re.search(r"Rows Removed by (?:Index Recheck|Filter|Join Filter): (\d+)", line):
            read += float(found[1]) * loops
    return read
