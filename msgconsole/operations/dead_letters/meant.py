"""Which dead letters people mean, by their names, and what would become of them; a job on them, in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from confdb.deleted import read_earlier_groups, was_topic
from confdb.routes import GroupRoute, Snapshot
from confdb.snapshot import load_snapshot
from msgbroker.contract.errors import (
    GroupNotFoundError,
    InvalidSettingError,
    NamespaceNotFoundError,
    TopicNotFoundError,
)
from msgbroker.engine.stress import StressGate
from msgconsole.operations.stores import Stores
from msgconsole.operations.times import check_order
from msgdb.dead_letters.choosing import DeadLetterSum, count_wanted
from msgdb.dead_letters.reading import count_of_groups, list_dead_letters
from msgdb.dead_letters.wanted import EVERY_ONE, WantedDeadLetters

COUNT_SECONDS_MAX: Final = 60.0
"""Counting may read all dead letters: of millions that takes a while."""


@dataclass(frozen=True, slots=True)
class LetterSum:
    """Dead letters of one group and type, and what would become of them if they were redriven."""

    group: str
    topic: str
    event_code: str
    stress: bool
    letters: int
    redriven: int
    """How many of them were redriven already."""
    problem: str | None
    """Why none of them can be delivered; None: they can."""
    note: str | None
    """What whoever redrives them should know."""


@dataclass(frozen=True, slots=True)
class EarlierLetters:
    """Dead letters of groups that had the name of one that is registered, and were deleted."""

    letters: int
    is_all: bool
    """Whether there are no more of them."""


@dataclass(frozen=True, slots=True)
class Begun:
    """A job that was begun."""

    job_id: int
    total: int


async def resolve_group(
    stores: Stores, wanted: WantedDeadLetters, namespace: str, group: str | None, *, is_earlier: bool = False
) -> WantedDeadLetters:
    """Return *wanted* with the namespace and the group that is meant: registered, or gone and known by its name.

    *is_earlier*: those that had the name and were deleted, whether or not one is registered by it. Raises a
    NotFoundError for a name that is not registered and has left nothing: it is misspelt, and "none" would be believed;
    InvalidSettingError for times between which nothing can lie.
    """
    check_order(wanted.died_from, wanted.died_before)
    snapshot = await load_snapshot(stores.config)
    if namespace not in snapshot.namespaces:
        raise NamespaceNotFoundError(namespace)
    if wanted.topic is not None and (namespace, wanted.topic) not in snapshot.topics:
        await _check_left_by_topic(stores, namespace, wanted.topic)
    if group is None:
        return replace(wanted, namespace=namespace)
    route = snapshot.groups.get((namespace, group))
    if route is not None and not is_earlier:
        return replace(wanted, namespace=namespace, group_id=route.group_id)
    earlier, _ = await read_earlier_groups(stores.config, namespace, group)
    if route is None:
        await _check_left_by_group(stores, namespace, group, earlier)
    named = replace(wanted, namespace=namespace, group_name=group, nameless_ids=tuple(earlier))
    return named if route is None else replace(named, not_group_id=route.group_id)


async def _check_left_by_group(stores: Stores, namespace: str, group: str, earlier: Sequence[int]) -> None:
    """Raise GroupNotFoundError unless *earlier* groups that had this name have left dead letters."""
    async with stores.messages.looking() as conn:
        if earlier and (await count_of_groups(conn, EVERY_ONE, earlier))[0]:
            return
        # The audit trail may begin later than the dead letters do.
        by_name = WantedDeadLetters(namespace=namespace, group_name=group)
        if not (await list_dead_letters(conn, by_name, limit=1)).items:
            raise GroupNotFoundError(namespace, group)


async def _check_left_by_topic(stores: Stores, namespace: str, topic: str) -> None:
    """Raise TopicNotFoundError unless one of this name was deleted, or has left dead letters."""
    if await was_topic(stores.config, namespace, topic):
        return
    async with stores.messages.looking() as conn:
        by_name = WantedDeadLetters(namespace=namespace, topic=topic)
        if not (await list_dead_letters(conn, by_name, limit=1)).items:
            raise TopicNotFoundError(namespace, topic)


async def count_earlier(stores: Stores, resolved: WantedDeadLetters, group: str | None) -> EarlierLetters:
    """Return how many more there would be, were deleted groups of that name meant as well as the registered one."""
    if group is None or resolved.group_id is None or resolved.namespace is None:
        return EarlierLetters(0, is_all=True)
    earlier, are_all = await read_earlier_groups(stores.config, resolved.namespace, group)
    if not earlier:
        return EarlierLetters(0, is_all=True)
    async with stores.messages.looking() as conn:
        letters, is_all = await count_of_groups(conn, replace(resolved, group_id=None), earlier)
    return EarlierLetters(letters, is_all and are_all)


async def registered_groups(stores: Stores) -> frozenset[int]:
    """Return the ids of all groups that are registered."""
    return frozenset(group.group_id for group in (await load_snapshot(stores.config)).groups.values())


async def sum_letters(stores: Stores, wanted: WantedDeadLetters) -> tuple[list[LetterSum], int]:
    """Return what is *wanted*, summed up, and the newest id of it; 0 where there is none. Raises as `namespace_of`."""
    namespace_of(wanted)
    snapshot = await load_snapshot(stores.config)
    async with stores.messages.looking(COUNT_SECONDS_MAX) as conn:
        sums = await count_wanted(conn, wanted)
    groups = {group.group_id: group for group in snapshot.groups.values()}
    return [_judged(each, groups.get(each.group_id), snapshot) for each in sums], max(_last_ids(sums), default=0)


def namespace_of(wanted: WantedDeadLetters) -> str:
    """Return of which namespace a job on them is, and its act: whoever may see that one sees both.

    Raises InvalidSettingError where *wanted* may be of several.
    """
    if wanted.namespace is None:
        raise InvalidSettingError("namespace", "must be given: a job on dead letters is of one")
    return wanted.namespace


def thing_of(sums: Sequence[LetterSum], total: int) -> str:
    """Return what a job on dead letters is about, for people."""
    groups = sorted({each.group for each in sums})
    shown = ", ".join(groups[:3]) + (f" and {len(groups) - 3} more groups" if groups[3:] else "")
    return f"{total:,} dead letter{'s' if total != 1 else ''} of {shown}"


def _last_ids(sums: Sequence[DeadLetterSum]) -> Sequence[int]:
    return [each.last_id for each in sums]


def _judged(found: DeadLetterSum, group: GroupRoute | None, snapshot: Snapshot) -> LetterSum:
    problem, note = None, None
    topic = snapshot.topics.get((found.namespace, found.topic))
    if group is None:
        problem = "the group is not registered any more"
    elif topic is None:
        problem = "the topic is not registered any more"
    elif all(subscription.topic_id != topic.topic_id for subscription in group.subscriptions):
        problem = "the group does not subscribe to the topic any more"
    elif found.stress and not StressGate(snapshot).allows(group.group_id, topic.topic_id, found.event_code):
        note = "stress messages, and the group is not on the whitelist: they would be settled without being delivered"
    return LetterSum(
        group=found.group_name if group is None else group.name,
        topic=found.topic,
        event_code=found.event_code,
        stress=found.stress,
        letters=found.letters,
        redriven=found.redriven,
        problem=problem,
        note=note,
    )
