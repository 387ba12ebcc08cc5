"""Which headers the newest messages of a topic have, by event code: what people can filter by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from msgconsole.operations.looking.where import find_searched, load_checked
from msgconsole.operations.stores import Stores
from msgdb.log.reads import first_offsets, next_offsets
from msgdb.looking import headers_seen
from msgdb.looking.headers_seen import HeaderSeen
from msgdb.looking.spans import Span

SAMPLED_MAX: Final = 10_000
"""So many of a topic's newest messages are looked at."""


@dataclass(frozen=True, slots=True)
class HeadersSeen:
    """What was seen."""

    headers: list[HeaderSeen]
    looked_at: int
    """How many messages were looked at: each counts once, however often it was redriven or replayed."""
    is_cut: bool
    """Whether there are names that are not told: the rarest."""


async def find_headers(stores: Stores, namespace: str, topic: str) -> HeadersSeen:
    """Return which headers a topic's newest messages have. Raises NamespaceNotFoundError, TopicNotFoundError."""
    snapshot = await load_checked(stores, namespace)
    async with stores.messages.looking() as conn:
        queue_ids = (await find_searched(conn, snapshot, namespace, topic)).queue_ids
        firsts, ends = await first_offsets(conn, queue_ids), await next_offsets(conn, queue_ids)
        each = max(1, SAMPLED_MAX // (len(queue_ids) or 1))
        spans = [Span(queue_id, max(firsts[queue_id], ends[queue_id] - each), ends[queue_id]) for queue_id in queue_ids]
        seen, looked_at = await headers_seen.list_headers_seen(conn, spans)
    return HeadersSeen(seen[: headers_seen.NAMES_MAX], looked_at, len(seen) > headers_seen.NAMES_MAX)
