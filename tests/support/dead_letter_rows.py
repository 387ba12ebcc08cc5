"""Dead letters put straight into the store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgdb.dead_letters.reading import DeadLetterSummary, list_dead_letters
from msgdb.dead_letters.wanted import WantedDeadLetters
from msgdb.postgres.connections import Connection
from tests.support.rows import GROUP, GROUP_NAMES

_BURY = """
INSERT INTO dead_letter (group_id, group_name, died_at, attempts, reason, last_error, queue_id, queue_offset, stored_at,
                         message_id, namespace, topic, event_code, key, headers, body, born_at, born_host,
                         publisher_group, stress, redrives)
SELECT %(group_id)s, %(group_name)s, clock_timestamp() - %(age)s::interval, 3, %(reason)s, %(last_error)s,
       %(queue_id)s, o, clock_timestamp(), gen_random_uuid(), %(namespace)s, %(topic)s,
       %(event_code)s, 'key-' || o, '{"region": "hz"}',
       convert_to(repeat('x', %(body_bytes)s), 'UTF8'), clock_timestamp(), 'host', 'PG_SHOP', %(stress)s, %(redrives)s
FROM generate_series(1, %(count)s) AS o
RETURNING id
"""


async def bury(conn: Connection, count: int, **said: Any) -> list[int]:
    """Put *count* dead letters there, and return their ids, ascending."""
    parameters = {
        "group_id": GROUP,
        "group_name": GROUP_NAMES[GROUP],
        "age": "0",
        "reason": "ATTEMPTS_EXHAUSTED",
        "last_error": "the bank does not answer",
        "queue_id": 10**6 + len(await all_dead_letters(conn)),
        "namespace": "default",
        "topic": "TP_TRADE",
        "event_code": "EC_PAID",
        "body_bytes": 10,
        "stress": False,
        "redrives": 0,
        **said,
        "count": count,
    }
    return [row[0] for row in await (await conn.execute(_BURY, parameters)).fetchall()]


async def all_dead_letters(conn: Connection, group_id: int | None = None) -> Sequence[DeadLetterSummary]:
    """Return all dead letters that there are, or a group's: the newest first."""
    found: list[DeadLetterSummary] = []
    before_id: int | None = None
    while True:
        wanted = WantedDeadLetters(group_id=group_id)
        page = await list_dead_letters(conn, wanted, before_id=before_id, limit=1_000)
        found += page.items
        if page.next_before_id is None:
            return found
        before_id = page.next_before_id
