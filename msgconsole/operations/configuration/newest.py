"""The newest messages of a type: what a change of the configuration is tried on before it is made."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Final, NamedTuple

from confdb.routes import Snapshot
from msgbroker.contract.names import ANY_EVENT_CODE
from msgconsole.operations.configuration.foretelling import (
    Foretold,
    GroupFates,
    foretell,
    subscription_id_of,
)
from msgconsole.operations.looking.in_log import merge_spans
from msgconsole.operations.stores import Stores
from msgdb.log.found import FoundMessage
from msgdb.log.queues import list_topic_queues
from msgdb.looking.spans import find_spans
from msgdb.looking.stretches import WantedMessages

NEWEST_MAX: Final = 5_000
"""So many of the newest messages of a type are looked at."""
EVALUATE_SECONDS_MAX: Final = 5.0
"""For so long expressions are evaluated on them: what was not reached by then is not looked at."""


class Newest(NamedTuple):
    """The newest messages of a type, the newest first."""

    messages: Sequence[FoundMessage]
    is_all: bool
    """Whether the log has no others of the type."""


class NamedType(NamedTuple):
    """A type of messages and the group that is asked about, by their names."""

    namespace: str
    group: str
    topic: str
    event_code: str


async def read_newest(stores: Stores, topic_id: int, event_code: str, newest_max: int = NEWEST_MAX) -> Newest:
    """Return the newest messages of a topic, or of one event code (`*`: of all). Raises LookTooLongError.

    Of a rare event code there may be fewer than there are: a bounded part of the log is looked through.
    """
    wanted = WantedMessages(event_code=None if event_code == ANY_EVENT_CODE else event_code)
    async with stores.messages.looking() as conn:
        queue_ids = [queue.queue_id for queue in await list_topic_queues(conn, topic_id)]
        spans = await find_spans(conn, queue_ids, newest_first=True)
        merge = await merge_spans(conn, spans, wanted, newest_max, newest_first=True)
    return Newest(merge.found, merge.is_end)


async def foretell_group(
    messages: Sequence[FoundMessage],
    before: Snapshot,
    after: Snapshot,
    asked: NamedType,
    *,
    seconds_max: float = EVALUATE_SECONDS_MAX,
) -> Foretold:
    """Return what the group of *asked* gets of *messages* by either snapshot.

    In bounded time, and beside the event loop.
    """
    ends_at = time.monotonic() + seconds_max

    def tell() -> Foretold:
        return foretell(
            messages,
            GroupFates(before, asked.namespace, asked.group, asked.topic),
            GroupFates(after, asked.namespace, asked.group, asked.topic),
            is_over=lambda: time.monotonic() >= ends_at,
            failing=(subscription_id_of(before, *asked), subscription_id_of(after, *asked)),
        )

    return await asyncio.to_thread(tell)
