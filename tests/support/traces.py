"""What was traced, for tests: every event, and of one message."""

from __future__ import annotations

from typing import Any

from msgbroker.server.app import Broker
from msgconsole.operations.looking.trace import TraceStory, trace_message
from msgconsole.operations.stores import Stores
from msgdb.postgres.binary_rows import TO_1970, binary_cursor
from msgdb.store import MessageStore
from msgdb.trace.records import TraceEvent

_ALL = f"""
SELECT at + {TO_1970}, kind, broker, queue_id, first_offset, last_offset, group_id, instance, attempt,
       handed_at + {TO_1970}, detail, left_out
FROM trace_event ORDER BY at, kind
"""


async def all_events(store: MessageStore) -> list[TraceEvent]:
    """Return all that is written."""
    async with store.connection() as conn:
        cursor = binary_cursor(conn)
        await cursor.execute(_ALL)
        return [TraceEvent._make(row) for row in await cursor.fetchall()]


async def flushed(broker: Broker, store: MessageStore) -> list[TraceEvent]:
    """Have the broker write what it noted, and return all that is written."""
    await broker.trace.write_once()
    return await all_events(store)


def of_kinds(events: list[TraceEvent], *kinds: str) -> list[TraceEvent]:
    """Return those of some kinds."""
    return [event for event in events if event.kind in kinds]


async def story_of(stores: Stores, message_id: Any) -> TraceStory:
    """Return the story of a message."""
    return await trace_message(stores, "default", message_id)
