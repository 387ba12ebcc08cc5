"""What messages of a group failed of: errors that differ in nothing but numbers are one kind, and counted."""

from __future__ import annotations

from datetime import datetime
from typing import Final, NamedTuple

from msgdb.postgres.binary_rows import TO_1970, binary_cursor
from msgdb.postgres.connections import Connection

SCANNED_MAX: Final = 50_000
"""So many dead letters of a group, the newest, are looked at; and so many of its messages that wait."""
KINDS_MAX: Final = 1_000
_ERROR_CHARS_MAX: Final = 300

# Of an error its first line; ids and numbers are what makes one text into thousands.
_KIND: Final = f"""
regexp_replace(split_part(left({{error}}, {_ERROR_CHARS_MAX}), chr(10), 1),
               '[0-9a-fA-F]{{{{8}}}}-[0-9a-fA-F]{{{{4}}}}-[0-9a-fA-F-]{{{{22,}}}}|[0-9]+', '#', 'g')
"""

# By the index on (group_id, id), backwards; whether each was redriven by the primary key of redrive. Without any kind
# there is a row all the same, which says how many were looked at.
_LIST_DEAD: Final = f"""
WITH near AS MATERIALIZED (
    SELECT d.id, d.topic, d.died_at, d.reason, d.last_error, d.attempts FROM dead_letter d
    WHERE d.group_id = %(group_id)s ORDER BY d.id DESC LIMIT %(scanned_max)s
), meant AS (
    SELECT n.*, {_KIND.format(error="n.last_error")} AS kind FROM near n
    WHERE (%(topic)s::text IS NULL OR n.topic = %(topic)s)
      AND (%(since)s::timestamptz IS NULL OR n.died_at >= %(since)s)
      AND (SELECT done.job_id FROM redrive done WHERE done.dead_letter_id = n.id LIMIT 1) IS NULL
), kinds AS (
    SELECT reason, kind, count(*) AS messages, max(attempts), min(died_at) + {TO_1970}, max(died_at) + {TO_1970},
           max(id) AS newest_id
    FROM meant GROUP BY reason, kind ORDER BY messages DESC, newest_id DESC LIMIT {KINDS_MAX}
)
SELECT kinds.*, looked_at.number FROM (SELECT count(*) AS number FROM near) looked_at LEFT JOIN kinds ON true
ORDER BY kinds.messages DESC, kinds.newest_id DESC
"""

# By the beginning of the primary key; then one message for each kind, by its primary key.
_LIST_WAITING: Final = f"""
WITH near AS MATERIALIZED (
    SELECT r.queue_id, r.queue_offset, r.stored_at, r.attempt, r.last_error FROM redelivery r
    WHERE r.group_id = %(group_id)s AND (%(queue_ids)s::bigint[] IS NULL OR r.queue_id = ANY(%(queue_ids)s))
    LIMIT %(scanned_max)s
), kinds AS MATERIALIZED (
    SELECT kind, count(*) AS messages, max(attempt) - 1 AS attempts, min(stored_at) AS first_at,
           max(stored_at) AS last_at, (array_agg(queue_id ORDER BY stored_at DESC, queue_offset DESC))[1] AS queue_id,
           (array_agg(queue_offset ORDER BY stored_at DESC, queue_offset DESC))[1] AS queue_offset
    FROM (SELECT n.*, {_KIND.format(error="n.last_error")} AS kind FROM near n
          WHERE n.last_error IS NOT NULL AND (%(since)s::timestamptz IS NULL OR n.stored_at >= %(since)s)) meant
    GROUP BY kind ORDER BY count(*) DESC, max(stored_at) DESC LIMIT {KINDS_MAX}
)
SELECT k.kind, k.messages, k.attempts, k.first_at + {TO_1970}, k.last_at + {TO_1970}, (
           SELECT m.message_id FROM message m
           WHERE m.queue_id = k.queue_id AND m.queue_offset = k.queue_offset AND m.stored_at = k.last_at LIMIT 1
       ), looked_at.number
FROM (SELECT count(*) AS number FROM near) looked_at LEFT JOIN kinds k ON true
ORDER BY k.messages DESC, k.last_at DESC
"""


class DeathKind(NamedTuple):
    """Open dead letters of one reason and one kind of error."""

    reason: str
    error: str | None
    messages: int
    attempts_max: int
    first_died_at_us: int
    last_died_at_us: int
    newest_id: int


class RetryKind(NamedTuple):
    """Messages that wait for another attempt, after one kind of error."""

    error: str
    messages: int
    attempts_max: int
    """How many attempts were made of one of them, at most."""
    first_stored_at_us: int
    last_stored_at_us: int
    newest_message_id: bytes | None
    """None: it went with its day."""


class Kinds(NamedTuple):
    """What a group's messages failed of, the most frequent first."""

    dead: list[DeathKind]
    retrying: list[RetryKind]
    is_cut: bool
    """Whether there were more than are looked at."""


_MESSAGES_OF_DEAD: Final = DeathKind._fields.index("messages")
_MESSAGES_OF_WAITING: Final = RetryKind._fields.index("messages")


async def list_failure_kinds(
    conn: Connection,
    group_id: int,
    *,
    topic: str | None = None,
    queue_ids: list[int] | None = None,
    since: datetime | None = None,
) -> Kinds:
    """Return what messages of a group failed of; of one *topic*, whose queues are these, or of all.

    *since*: those that died since; of those that wait, those that were stored since.
    """
    parameters = {
        "group_id": group_id,
        "topic": topic,
        "queue_ids": queue_ids,
        "since": since,
        "scanned_max": SCANNED_MAX,
    }
    cursor = binary_cursor(conn)
    await cursor.execute(_LIST_DEAD, parameters, prepare=False)
    dead = await cursor.fetchall()
    await cursor.execute(_LIST_WAITING, parameters, prepare=False)
    waiting = await cursor.fetchall()
    is_cut = any(rows[0][-1] == SCANNED_MAX for rows in (dead, waiting))
    return Kinds(
        [DeathKind._make(row[:-1]) for row in dead if row[_MESSAGES_OF_DEAD] is not None],
        [RetryKind._make(row[:-1]) for row in waiting if row[_MESSAGES_OF_WAITING] is not None],
        is_cut or KINDS_MAX in {len(dead), len(waiting)},
    )
