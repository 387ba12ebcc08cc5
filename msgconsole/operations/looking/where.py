"""Where messages are looked for: the queues of a topic, or of all topics of a namespace, and what is gone of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from confdb.routes import Snapshot
from confdb.snapshot import load_snapshot
from msgbroker.contract.errors import NamespaceNotFoundError, TopicNotFoundError
from msgconsole.operations.stores import Stores
from msgdb.log.partitions import day_bounds
from msgdb.log.queues import list_queues, list_topic_queues
from msgdb.log.reads import first_offsets
from msgdb.looking.days_known import Horizon, find_horizon
from msgdb.looking.queues_of import list_left_queues
from msgdb.postgres.connections import Connection


@dataclass(frozen=True, slots=True)
class Searched:
    """What is looked through: also what topics left behind that were deleted."""

    namespace: str
    topics: tuple[str, ...]
    queue_ids: tuple[int, ...]


async def load_checked(stores: Stores, namespace: str) -> Snapshot:
    """Return the configuration. Raises NamespaceNotFoundError."""
    snapshot = await load_snapshot(stores.config)
    if namespace not in snapshot.namespaces:
        raise NamespaceNotFoundError(namespace)
    return snapshot


def names_of_groups(snapshot: Snapshot) -> dict[int, str]:
    """Return the names of all groups, by their ids: a message that was stored once more has that of its group."""
    return {group.group_id: group.name for group in snapshot.groups.values()}


async def find_searched(conn: Connection, snapshot: Snapshot, namespace: str, topic: str | None) -> Searched:
    """Return the queues of a topic, or of all topics. Raises TopicNotFoundError where nothing is known of the topic."""
    left = await list_left_queues(conn, [route.topic_id for route in snapshot.topics.values()])
    meant = [each for each in left if each.namespace == namespace and topic in {None, each.topic}]
    names = {each.topic for each in meant}
    if topic is None:
        routes = [route for route in snapshot.topics.values() if route.namespace == namespace]
        topic_ids = {route.topic_id for route in routes}
        queues = [queue for queue in await list_queues(conn) if queue.topic_id in topic_ids] if routes else []
        names |= {route.name for route in routes}
    else:
        route = snapshot.topics.get((namespace, topic))
        if route is None and not meant:
            raise TopicNotFoundError(namespace, topic)
        queues = [] if route is None else await list_topic_queues(conn, route.topic_id)
        names.add(topic)
    queue_ids = {queue.queue_id for queue in queues} | {each.queue_id for each in meant}
    return Searched(namespace, tuple(sorted(names)), tuple(sorted(queue_ids)))


async def say_what_is_gone(
    conn: Connection, searched: Searched, stored_from: datetime | None, stored_before: datetime | None
) -> tuple[str, ...]:
    """Return why an answer may lack something: days of these queues were dropped that are asked for.

    To be asked after the search: what went meanwhile is missing, too.
    """
    starts = await first_offsets(conn, searched.queue_ids)
    if not any(starts.values()):
        return ()
    return gone_said(await find_horizon(conn), stored_from, stored_before)


def gone_said(horizon: Horizon, stored_from: datetime | None, stored_before: datetime | None) -> tuple[str, ...]:
    """Return what is to be said of days that are not there any more; nothing: none of them is asked for."""
    first_moment = day_bounds(horizon.first_day)[0]
    if stored_from is not None and stored_from >= first_moment:
        return ()
    asked = [
        day
        for day in horizon.archived
        if (stored_from is None or day >= stored_from.astimezone(UTC).date())
        and (stored_before is None or day <= stored_before.astimezone(UTC).date())
    ]
    return (f"what was stored before {horizon.first_day} is not in the log any more{_archived_said(asked)}",)


def _archived_said(days: Sequence[object]) -> str:
    if not days:
        return ", and no archive is known that has it"
    if len(days) == 1:
        return f"; the archive has {days[0]}"
    return f"; the archive has {len(days)} of its days, from {days[-1]} to {days[0]}"
