"""Messages by their key: all of a topic's, or of several topics'."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from msgdb.log.found import COLUMNS, FoundMessage, Position
from msgdb.looking.stretches import CONDITIONS, WantedMessages
from msgdb.postgres.binary_rows import binary_cursor, datetime_of
from msgdb.postgres.connections import Connection

COMPARED_MAX: Final = 10_000
"""So many messages of a key are put in order for a page: of a key that has more, the log is looked through instead."""

_AFTER: Final = "(m.stored_at, m.queue_id, m.queue_offset) {than} (%(stored_at)s, %(queue_id)s, %(queue_offset)s)"


def _list(than: str, direction: str) -> str:
    # By the index on (topic, key): it has no order, and no namespace, so another tenant's messages are read, too. The
    # bound is for all that are read: who has more than that, or shares the name with somebody who has, is told.
    return f"""
WITH near AS MATERIALIZED (
    SELECT m.stored_at, m.queue_id, m.queue_offset, m.namespace, m.event_code, m.key, m.headers FROM message m
    WHERE m.topic = ANY(%(topics)s) AND m.key = %(key)s
      AND (%(from)s::timestamptz IS NULL OR m.stored_at >= %(from)s)
      AND (%(before)s::timestamptz IS NULL OR m.stored_at < %(before)s)
      AND (%(stored_at)s::timestamptz IS NULL OR {_AFTER.format(than=than)})
    LIMIT {COMPARED_MAX + 1}
), page AS MATERIALIZED (
    SELECT m.stored_at, m.queue_id, m.queue_offset FROM near m WHERE m.namespace = %(namespace)s AND {CONDITIONS}
    ORDER BY m.stored_at {direction}, m.queue_id {direction}, m.queue_offset {direction} LIMIT %(limit)s
)
SELECT (SELECT count(*) FROM near), {COLUMNS}
FROM (SELECT 1) AS always LEFT JOIN (
    page p JOIN message m ON m.queue_id = p.queue_id AND m.queue_offset = p.queue_offset AND m.stored_at = p.stored_at
) ON true
ORDER BY m.stored_at {direction}, m.queue_id {direction}, m.queue_offset {direction}
"""


_LIST_ON: Final = _list(">", "")
_LIST_BACK: Final = _list("<", "DESC")


class KeyPage(NamedTuple):
    """Messages of a key."""

    found: list[FoundMessage]
    is_too_many: bool
    """Whether there are more than could be put in order: then these are some of them, and no page."""


async def list_by_key(
    conn: Connection,
    namespace: str,
    topics: Sequence[str],
    wanted: WantedMessages,
    *,
    from_us: int | None = None,
    before_us: int | None = None,
    after: Position | None = None,
    newest_first: bool = False,
    limit: int = 100,
) -> KeyPage:
    """Return a page of what is *wanted* of these topics, by its key, in the order of the messages' places."""
    assert wanted.key is not None, "it is by a key"
    parameters = {
        **wanted.parameters(),
        "namespace": namespace,
        "topics": list(topics),
        "from": None if from_us is None else datetime_of(from_us),
        "before": None if before_us is None else datetime_of(before_us),
        "stored_at": None if after is None else datetime_of(after.stored_at_us),
        "queue_id": None if after is None else after.queue_id,
        "queue_offset": None if after is None else after.queue_offset,
        "limit": limit,
    }
    cursor = binary_cursor(conn)
    await cursor.execute(_LIST_BACK if newest_first else _LIST_ON, parameters, prepare=False)
    rows = await cursor.fetchall()
    found = [FoundMessage._make(row[1:]) for row in rows if row[1] is not None]
    return KeyPage(found, is_too_many=rows[0][0] > COMPARED_MAX)
