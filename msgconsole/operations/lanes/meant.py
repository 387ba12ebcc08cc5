"""Which message is to be steered: the row that people mean by an id or a place, of those that the log has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from confdb.routes import GroupRoute, Snapshot, TopicRoute
from msgbroker.contract.errors import InvalidSettingError, ThingNotFoundError
from msgconsole.operations.subscribed import get_group, get_subscribed_topic, start_of
from msgdb.lanes.steering import Standing, SteeredMessage, find_stand
from msgdb.log.copies import COPIES_MAX, find_copies, find_copy_at
from msgdb.log.found import FoundMessage
from msgdb.log.queues import list_topic_queues
from msgdb.postgres.connections import Connection


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedMessage:
    """Which message of which group is meant: by its id, or by its place."""

    namespace: str
    group: str
    message_id: UUID | None = None
    queue_id: int | None = None
    queue_offset: int | None = None
    whatever_it_asks_for: bool = False
    """Also one that the group's subscriptions do not ask for (any more): an instance may be at it all the same."""

    def not_found(self) -> ThingNotFoundError:
        """Return what says that there is no such message."""
        if self.message_id is not None:
            return ThingNotFoundError("message", str(self.message_id), namespace=self.namespace)
        return ThingNotFoundError(
            "message", f"at offset {self.queue_offset} of queue {self.queue_id}", namespace=self.namespace
        )


class MeantMessage(NamedTuple):
    """The message that is meant, with the configuration that it is looked at by."""

    message: SteeredMessage
    topic: TopicRoute
    group: GroupRoute


async def find_meant(conn: Connection, snapshot: Snapshot, wanted: WantedMessage) -> MeantMessage:
    """Return the row that is meant: of several with the id, the one that the group has not settled.

    Raises a NotFoundError; InvalidSettingError where it is not said which of several rows is meant.
    """
    group = get_group(snapshot, wanted.namespace, wanted.group)
    steered = [await _steered(conn, snapshot, group, copy) for copy in await _copies(conn, wanted, group)]
    found = [each for each in steered if each is not None]
    if not found:
        raise wanted.not_found()
    if len(found) == 1:
        return found[0]
    open_ones = [each for each in found if (await find_stand(conn, each.message)).standing is not Standing.SETTLED]
    if len(open_ones) > 1:
        places = ", ".join(f"{each.message.copy.queue_id} {each.message.copy.queue_offset}" for each in open_ones)
        raise InvalidSettingError(
            "id", f"is of several messages that {group.name} has: say which queue, offset: {places}"
        )
    return open_ones[0] if open_ones else found[0]


async def _copies(conn: Connection, wanted: WantedMessage, group: GroupRoute) -> list[FoundMessage]:
    """Return the rows that may be meant, of the namespace and the group, the newest first."""
    if wanted.message_id is not None and wanted.queue_id is None and wanted.queue_offset is None:
        found, is_cut = await find_copies(conn, wanted.message_id, wanted.namespace, group_id=group.group_id)
        if is_cut:
            # Which of them is not settled would only be known of some.
            said = f"is of more than {COPIES_MAX} that {group.name} has: say which, by its queue and offset"
            raise InvalidSettingError("id", said)
        return sorted(found, key=lambda each: each.position, reverse=True)
    if wanted.message_id is not None or wanted.queue_id is None or wanted.queue_offset is None:
        raise InvalidSettingError("message", "must be given by its id, or by its queue and offset, and not by both")
    copy = await find_copy_at(conn, wanted.queue_id, wanted.queue_offset)
    if copy is None or copy.namespace != wanted.namespace or copy.target_group not in {None, group.group_id}:
        return []
    return [copy]


async def _steered(conn: Connection, snapshot: Snapshot, group: GroupRoute, copy: FoundMessage) -> MeantMessage | None:
    """Return what it takes to steer a copy; None: it is of a topic that was deleted, and another one has its name."""
    topic = get_subscribed_topic(snapshot, group, copy.topic)
    if copy.queue_id not in {queue.queue_id for queue in await list_topic_queues(conn, topic.topic_id)}:
        return None
    message = SteeredMessage(group.group_id, group.name, copy, start_of(group, topic, copy.queue_id))
    return MeantMessage(message, topic, group)
