"""What brokers have counted, and what they should have: by the log."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta

from msgdb.figures.usage import Usage, UsageOf, list_usage
from msgdb.store import MessageStore

_IN_THE_LOG = """
SELECT date_trunc('minute', stored_at), event_code, stress, count(*) FROM message WHERE target_group IS NULL
GROUP BY 1, 2, 3
"""
Published = Counter[tuple[datetime, str, bool]]


async def usages(store: MessageStore, *, group_id: int | None = None) -> list[Usage]:
    """Return what was counted in the last hour, of one group or of everybody."""
    now = datetime.now(UTC)
    group_ids = None if group_id is None else [group_id]
    async with store.connection() as conn:
        return await list_usage(
            conn, UsageOf(now - timedelta(hours=1), now + timedelta(hours=1), 60, group_ids=group_ids)
        )


async def published(store: MessageStore) -> Published:
    """Return how many messages of each type brokers have counted as published, in each minute."""
    found: Published = Counter()
    for usage in await usages(store, group_id=0):
        found[usage.begins_at, usage.event_code, usage.stress] += usage.published
    return found


async def published_by_the_log(store: MessageStore) -> Published:
    """Return how many messages of each type the log has of each minute."""
    async with store.connection() as conn:
        rows = await (await conn.execute(_IN_THE_LOG)).fetchall()
    return Counter({(minute, event_code, stress): count for minute, event_code, stress, count in rows})
