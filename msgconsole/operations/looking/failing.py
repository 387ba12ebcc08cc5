"""What a group's messages fail of, counted by kinds of errors: open dead letters, and what waits to be tried again."""

from __future__ import annotations

from datetime import datetime

from msgconsole.operations.looking.where import find_searched, load_checked
from msgconsole.operations.stores import Stores
from msgconsole.operations.subscribed import get_group
from msgdb.looking.failures import Kinds, list_failure_kinds


async def find_failures(
    stores: Stores, namespace: str, group: str, *, topic: str | None = None, since: datetime | None = None
) -> Kinds:
    """Return what messages of a group fail of, of one topic or of all. Raises a NotFoundError for what is not there."""
    snapshot = await load_checked(stores, namespace)
    route = get_group(snapshot, namespace, group)
    async with stores.messages.looking() as conn:
        queue_ids = None
        if topic is not None:
            queue_ids = list((await find_searched(conn, snapshot, namespace, topic)).queue_ids)
        return await list_failure_kinds(conn, route.group_id, topic=topic, queue_ids=queue_ids, since=since)
