"""What is left of a message that is gone with its day, named by its place: dead letters, which keep a copy."""

from __future__ import annotations

from collections.abc import Sequence

from confdb.past import PastGroup
from confdb.snapshot import load_snapshot
from msgbroker.contract.errors import NamespaceNotFoundError
from msgconsole.operations.status.answers import Basis, GroupStatus, MessageStatus, PlaceStatus, State
from msgconsole.operations.status.letters import dead_letter_of, said_of_letter, state_of_letter
from msgconsole.operations.status.wanted import WantedStatus, groups_of
from msgconsole.operations.stores import Stores
from msgdb.lanes.standing import BuriedCopy, find_buried_at
from msgdb.log.queues import QueueRow, find_queue
from msgdb.postgres.binary_rows import datetime_of


async def find_gone(stores: Stores, wanted: WantedStatus) -> MessageStatus:
    """Return what is left of a message whose day is gone. Raises ThingNotFoundError where there never was one."""
    snapshot = await load_snapshot(stores.config)
    if wanted.namespace not in snapshot.namespaces:
        raise NamespaceNotFoundError(wanted.namespace)
    own = {topic.topic_id: topic for (namespace, _), topic in snapshot.topics.items() if namespace == wanted.namespace}
    groups = groups_of(
        {
            name: PastGroup(group.group_id, name, group.paused)
            for (namespace, name), group in snapshot.groups.items()
            if namespace == wanted.namespace
        },
        wanted,
    )
    if wanted.queue_id is None or wanted.queue_offset is None:
        raise wanted.not_found()
    async with stores.messages.looking() as conn:
        queue = await find_queue(conn, wanted.queue_id)
        group_ids = [group.group_id for group in groups]
        copies = await find_buried_at(conn, group_ids, wanted.queue_id, wanted.queue_offset)
    if queue is None or queue.topic_id not in own or not 0 <= wanted.queue_offset < queue.start_offset:
        raise wanted.not_found()
    return _told(wanted, queue, own[queue.topic_id].name, groups, copies)


def _told(
    wanted: WantedStatus, queue: QueueRow, topic: str, groups: Sequence[PastGroup], copies: Sequence[BuriedCopy]
) -> MessageStatus:
    assert wanted.queue_offset is not None, "it is named by its place"
    copy = copies[0] if copies else None
    by_group = {each.group_id: each for each in reversed(copies)}
    place = PlaceStatus(
        queue_id=queue.queue_id,
        queue_offset=wanted.queue_offset,
        stored_at=None if copy is None else datetime_of(copy.stored_at_us),
        target_group=None,
        redrives=0 if copy is None else copy.redrives,
        groups=tuple(_status(group, by_group.get(group.group_id)) for group in groups),
    )
    return MessageStatus(
        message_id=None if copy is None else copy.message_id,
        namespace=wanted.namespace,
        topic=topic,
        event_code=None if copy is None else copy.event_code,
        key=None if copy is None else copy.key,
        stress=None if copy is None else copy.stress,
        places=(place,),
        has_more_places=False,
        unanswered=(),
    )


def _status(group: PastGroup, copy: BuriedCopy | None) -> GroupStatus:
    name, group_id = group.name, group.group_id
    if copy is None:
        detail = "its day is gone: whether the group had settled it nothing tells"
        return GroupStatus(group=name, group_id=group_id, state=State.GONE, basis=Basis.ROWS, detail=detail)
    letter = dead_letter_of(copy.dead_letter)
    return GroupStatus(
        group=name,
        group_id=group_id,
        state=state_of_letter(letter),
        basis=Basis.ROWS,
        detail=said_of_letter(letter),
        dead_letter=letter,
    )
