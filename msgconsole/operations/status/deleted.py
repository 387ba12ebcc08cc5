"""What is no more: groups that were deleted since a message was stored, and its topic. Pure.

Of a deleted group the rows of its lanes stay, and nobody moves them any more; ids are never used again. So what was
settled is told as of any group, and what was not is not delivered, however the same names were used since.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from confdb.past import ConfigChange, ConfigMoment, PastGroup
from msgbroker.contract.errors import GroupNotFoundError
from msgbroker.contract.names import ANY_EVENT_CODE
from msgconsole.operations.status.answers import Deleted, Why
from msgconsole.operations.status.moments import GroupMoment
from msgconsole.operations.status.wanted import WantedStatus

DELETED_MAX: Final = 1_000
"""So many deleted groups are told of, those that were deleted last."""


class Ended(NamedTuple):
    """That nobody can read the message for the group any more, whatever is registered from now on."""

    why: Why
    """The group was deleted, or the topic."""
    change: ConfigChange | None
    """What ended it; None: it is not in the audit trail, as far as that is read."""

    @property
    def text(self) -> str:
        """Say it to people."""
        thing = "group" if self.why is Why.GROUP_DELETED else "topic"
        if self.change is None:
            return f"the {thing} was deleted"
        return f"the {thing} was deleted at {self.change.at:%Y-%m-%d %H:%M:%S} by {self.change.by}"


class DeletedGroup(NamedTuple):
    """A group that is no more, and the change that deleted it."""

    group: PastGroup
    change: ConfigChange


class AskedGroups(NamedTuple):
    """The groups that are asked about, by name and id."""

    groups: list[PastGroup]
    has_more: bool
    """Whether more of them were deleted than are told of."""


def deleted_groups(moments: Sequence[ConfigMoment]) -> dict[int, DeletedGroup]:
    """Return the groups that were there at one of these moments and are no more, in the order in which they went."""
    found: dict[int, DeletedGroup] = {}
    for before, moment in pairwise(moments):
        change = moment.made_by
        if change is None or moment.groups is before.groups:
            continue
        for name in before.groups if change.groups is None else change.groups:
            was, is_now = before.groups.get(name), moment.groups.get(name)
            if was is not None and (is_now is None or is_now.group_id != was.group_id):
                found[was.group_id] = DeletedGroup(was, change)
    return found


def asked_groups(moments: Sequence[ConfigMoment], wanted: WantedStatus) -> AskedGroups:
    """Return the groups that are asked about, also those that are no more. Raises GroupNotFoundError."""
    there = [group for name, group in moments[-1].groups.items() if wanted.group in {None, name}]
    gone = [each.group for each in deleted_groups(moments).values() if wanted.group in {None, each.group.name}]
    if wanted.group is not None and not there and not gone:
        raise GroupNotFoundError(wanted.namespace, wanted.group)
    groups = sorted([*there, *gone[-DELETED_MAX:]], key=lambda each: (each.name, each.group_id))
    return AskedGroups(groups, len(gone) > DELETED_MAX)


def topic_ended(moments: Sequence[ConfigMoment], topic_id: int) -> Ended | None:
    """Return that the topic was deleted, which may have been made again since; None: it is there."""
    if _has_topic(moments[-1], topic_id):
        return None
    change = None
    for before, moment in pairwise(moments):
        if _has_topic(before, topic_id) and not _has_topic(moment, topic_id):
            change = moment.made_by
    return Ended(Why.TOPIC_DELETED, change)


def ended_first(of_topic: Ended | None, group: DeletedGroup | None) -> Ended | None:
    """Return what ended the lane of a group: its own end, or that of the topic before it."""
    if group is None:
        return of_topic
    if of_topic is not None and of_topic.change is not None and of_topic.change.version < group.change.version:
        return of_topic
    return Ended(Why.GROUP_DELETED, group.change)


def told_of(deleted: DeletedGroup, then: GroupMoment) -> Deleted:
    """Return what is told of a group that is no more; *then*: what it was when the message was stored."""
    group, change = deleted
    codes = tuple(_described(each.event_code, each.expression) for each in then.subscriptions)
    return Deleted(change.at, change.actor, change.reason, group.created_at, codes)


def _described(event_code: str, expression: str | None) -> str:
    code = "all event codes" if event_code == ANY_EVENT_CODE else event_code
    return code if expression is None else f"{code} where {expression}"


def _has_topic(moment: ConfigMoment, topic_id: int) -> bool:
    return moment.topic is not None and moment.topic.topic_id == topic_id
