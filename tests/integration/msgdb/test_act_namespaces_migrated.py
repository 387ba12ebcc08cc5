"""Of which namespace the acts of before are: filled in by the migration where a row says it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import psycopg
from psycopg.types.json import Jsonb

from msgdb import schema

_PUT = "INSERT INTO act (actor, action, thing, reason, detail) VALUES ('ada', %s, %s, 'why', %s)"
_ROWS = """
INSERT INTO queue (topic_id, generation, ordinal) VALUES (1, 1, 0), (1, 1, 1), (2, 1, 0);
INSERT INTO message (queue_id, queue_offset, stored_at, message_id, namespace, topic, event_code, body, born_at, stress)
VALUES (2, 5, now(), gen_random_uuid(), 'shop', 'TP', 'EC', '', now(), false),
       (2, 6, now(), gen_random_uuid(), 'shop', 'TP', 'EC', '', now(), false),
       (3, 0, now(), gen_random_uuid(), 'other', 'TP', 'EC', '', now(), false);
INSERT INTO job (kind, state, namespace, thing, spec, total, rate, actor, reason)
VALUES ('REPLAY', 'DONE', 'of job', '', '{}', 1, 1, 'ada', 'why');
INSERT INTO trial (state, group_id, instance_id, places) VALUES ('DONE', 7, 'a', '[[3, 0, 1]]');
INSERT INTO dead_letter (group_id, group_name, attempts, reason, queue_id, queue_offset, stored_at, message_id,
                         namespace, topic, event_code, body, born_at, stress)
VALUES (7, 'SG', 1, 'SKIPPED', 99, 0, now(), gen_random_uuid(), 'of letter', 'TP', 'EC', '', now(), false);
"""
# What each is about, what was noted of it, and of which namespace it is found to be.
_ACTS: Mapping[str, tuple[str, dict[str, Any] | None, str | None]] = {
    "a job that is there": ("job.pause", {"job_id": 1}, "of job"),
    "a redrive whose job is gone": ("job.redrive", {"job_id": 9, "wanted": {"namespace": "named"}}, "named"),
    "a purge of any": ("job.purge", {"job_id": 9, "wanted": {"namespace": None}}, None),
    "a replay whose job is gone": ("job.replay", {"job_id": 9, "ranges": [[1, 0, 9], [2, 0, 9]]}, "shop"),
    "a reset": ("group.reset", {"group_id": 7, "queues": [[1, 0, 0], [2, 6, 5]]}, "shop"),
    "a reset of empty queues": ("group.reset", {"group_id": 7, "queues": [[1, 0, 0]]}, None),
    "a skip": ("message.skip", {"group_id": 7, "queue_id": 3, "queue_offset": 0, "dead_letter_id": None}, "other"),
    "a skip of what is gone": ("message.skip", {"queue_id": 98, "queue_offset": 0, "dead_letter_id": 1}, "of letter"),
    "a hint": ("message.retry-now", {"group_id": 7, "queue_id": 98, "queue_offset": 0}, None),
    "a trial": ("message.try", {"trial_id": 1, "message_ids": []}, "other"),
    "a trial that is gone": ("message.try", {"trial_id": 9}, None),
    "an instance": ("instance.disconnect", {"request_id": 1, "attachment": "a#1"}, None),
    "a day": ("archive.waive", None, None),
    "lanes": ("lanes.put_back", {"queue_ids": [2], "lanes": [[7, 2, 5]]}, None),
}


def test_the_namespaces_of_acts_of_before_are_filled_in_where_a_row_says_them(empty_database_url: str) -> None:
    schema.upgrade(empty_database_url, "0024")
    with psycopg.connect(empty_database_url, autocommit=True) as connection:
        connection.execute(_ROWS)
        for thing, (action, detail, _) in _ACTS.items():
            connection.execute(_PUT, (action, thing, None if detail is None else Jsonb(detail)))

    schema.upgrade(empty_database_url, "0025")

    with psycopg.connect(empty_database_url) as connection:
        found = connection.execute("SELECT thing, namespace FROM act").fetchall()
    assert dict(found) == {thing: namespace for thing, (_, _, namespace) in _ACTS.items()}


def test_what_was_interrupted_in_the_middle_is_done_again(empty_database_url: str) -> None:
    schema.upgrade(empty_database_url, "0024")
    with psycopg.connect(empty_database_url, autocommit=True) as connection:
        connection.execute("ALTER TABLE act ADD COLUMN namespace text")
        connection.execute("CREATE INDEX act_of_namespace_idx ON act (namespace, act_id)")

    schema.upgrade(empty_database_url, "0025")

    assert schema.find_revision(empty_database_url) == "0025"
