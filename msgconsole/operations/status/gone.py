"""What is left of a message that is gone with its day, named by its place: dead letters, which keep a copy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from confdb.deleted import GroupDeletion, read_group_deletions
from confdb.past import PastGroup
from confdb.snapshot import load_snapshot
from msgbroker.contract.errors import GroupNotFoundError, NamespaceNotFoundError
from msgconsole.operations.status.answers import Basis, Deleted, GroupStatus, MessageStatus, PlaceStatus, State
from msgconsole.operations.status.letters import dead_letter_of, said_of_letter, state_of_letter
from msgconsole.operations.status.wanted import WantedStatus
from msgconsole.operations.stores import Stores
from msgdb.lanes.standing import BuriedCopy, find_buried_at
from msgdb.log.queues import find_queue
from msgdb.postgres.binary_rows import datetime_of


async def find_gone(stores: Stores, wanted: WantedStatus) -> MessageStatus:
    """Return what is left of a message whose day is gone. Raises ThingNotFoundError where there never was one."""
    snapshot = await load_snapshot(stores.config)
    if wanted.namespace not in snapshot.namespaces:
        raise NamespaceNotFoundError(wanted.namespace)
    own = {topic.topic_id: topic for (namespace, _), topic in snapshot.topics.items() if namespace == wanted.namespace}
    there = [
        PastGroup(group.group_id, name, group.paused)
        for (namespace, name), group in snapshot.groups.items()
        if namespace == wanted.namespace
    ]
    if wanted.queue_id is None or wanted.queue_offset is None:
        raise _not_found(wanted, there)
    async with stores.messages.looking() as conn:
        queue = await find_queue(conn, wanted.queue_id)
        copies = await find_buried_at(conn, wanted.namespace, wanted.queue_id, wanted.queue_offset)
    if queue is None or not 0 <= wanted.queue_offset < queue.start_offset:
        raise _not_found(wanted, there)
    if queue.topic_id not in own and not copies:
        # Of a topic that is no more: whose it was only dead letters tell.
        raise _not_found(wanted, there)
    topic = own[queue.topic_id].name if queue.topic_id in own else copies[0].topic
    groups, deletions = await _with_deleted(stores, wanted, there, copies)
    return _told(wanted, topic, groups, copies, deletions)


def _not_found(wanted: WantedStatus, there: Iterable[PastGroup]) -> Exception:
    if wanted.group is not None and all(group.name != wanted.group for group in there):
        return GroupNotFoundError(wanted.namespace, wanted.group)
    return wanted.not_found()


async def _with_deleted(
    stores: Stores, wanted: WantedStatus, there: Sequence[PastGroup], copies: Iterable[BuriedCopy]
) -> tuple[list[PastGroup], Mapping[int, GroupDeletion]]:
    """Return the groups that are asked about, also those that have dead letters of it and are no more."""
    ids = {group.group_id for group in there}
    gone = {copy.group_id: copy.group for copy in copies if copy.group_id not in ids}
    deletions: Mapping[int, GroupDeletion] = {}
    if gone:
        # What expired after its group was deleted was given no name.
        names = set(gone.values()) if all(gone.values()) else None
        deletions = await read_group_deletions(stores.config, wanted.namespace, names)
    called = {group_id: deletions[group_id].name if group_id in deletions else name for group_id, name in gone.items()}
    asked = [*there, *(PastGroup(group_id, name, paused=False) for group_id, name in called.items())]
    found = [group for group in asked if wanted.group in {None, group.name}]
    if wanted.group is not None and not found:
        raise GroupNotFoundError(wanted.namespace, wanted.group)
    return sorted(found, key=lambda each: (each.name, each.group_id)), deletions


def _told(
    wanted: WantedStatus,
    topic: str,
    groups: Sequence[PastGroup],
    copies: Sequence[BuriedCopy],
    deletions: Mapping[int, GroupDeletion],
) -> MessageStatus:
    assert wanted.queue_id is not None, "it is named by its place"
    assert wanted.queue_offset is not None, "it is named by its place"
    # Where the log has lost its end, others lay there before the last one.
    copy = max(copies, key=lambda each: each.stored_at_us, default=None)
    by_group = {each.group_id: each for each in reversed(copies) if copy is not None and _is_of(each, copy)}
    lost = {each.group_id: each for each in reversed(copies) if each.group_id not in by_group}
    place = PlaceStatus(
        queue_id=wanted.queue_id,
        queue_offset=wanted.queue_offset,
        stored_at=None if copy is None else datetime_of(copy.stored_at_us),
        target_group=None,
        redrives=0 if copy is None else copy.redrives,
        groups=tuple(
            _status(group, by_group.get(group.group_id), deletions, lost.get(group.group_id)) for group in groups
        ),
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


def _is_of(each: BuriedCopy, copy: BuriedCopy) -> bool:
    return (each.message_id, each.stored_at_us) == (copy.message_id, copy.stored_at_us)


def _status(
    group: PastGroup, copy: BuriedCopy | None, deletions: Mapping[int, GroupDeletion], lost: BuriedCopy | None
) -> GroupStatus:
    name, group_id = group.name, group.group_id
    deletion = deletions.get(group_id)
    told_of = None if deletion is None else Deleted(*deletion[1:], subscriptions=())
    if copy is None:
        detail = "its day is gone: whether the group had settled it nothing tells"
        if lost is not None:
            letter_id, message_id = lost.dead_letter.dead_letter_id, lost.message_id
            detail += (
                f"; dead letter {letter_id} is of message {message_id}, which lay there, and which the log has lost"
            )
        return GroupStatus(
            group=name, group_id=group_id, state=State.GONE, basis=Basis.ROWS, detail=detail, deleted=told_of
        )
    letter = dead_letter_of(copy.dead_letter)
    return GroupStatus(
        group=name,
        group_id=group_id,
        state=state_of_letter(letter),
        basis=Basis.ROWS,
        detail=said_of_letter(letter),
        dead_letter=letter,
        deleted=told_of,
    )
