"""Deleting a group, a subscription or a topic: whether it is in use, by whom, and what would be lost with it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from confdb.brokers import BrokerRegistry
from confdb.routes import GroupRoute, Snapshot
from confdb.services import Changed
from confdb.services.subscriptions import describe_subscription
from confdb.services.views import SubscriberGroupView, SubscriptionView, TopicView
from confdb.snapshot import load_snapshot
from msgbroker.contract.errors import InvalidSettingError, SubscriptionNotFoundError, ThingInUseError
from msgconsole.operations.dead_letters.meant import COUNT_SECONDS_MAX
from msgconsole.operations.figures.lag import read_lag
from msgconsole.operations.figures.wanted import WantedFigures
from msgconsole.operations.stores import Stores
from msgconsole.operations.subscribed import get_group, get_topic
from msgdb.dead_letters.choosing import count_wanted
from msgdb.dead_letters.wanted import WantedDeadLetters

_SHOWN_GROUPS_MAX = 3


@dataclass(frozen=True, slots=True)
class Use:
    """Who uses a thing, and what its groups have still to do with it."""

    groups: tuple[str, ...]
    """The subscriber groups that would lose it."""
    instances: int
    """How many of their instances are connected."""
    unsettled: int
    """How many messages they have not settled: nobody would be given them any more."""
    dead_letters: int = 0
    """How many open dead letters of those groups stay, and could not be redriven any more."""

    @property
    def is_in_use(self) -> bool:
        """Whether anybody would notice."""
        return bool(self.instances or self.unsettled)

    @property
    def text(self) -> str:
        """Say it to people."""
        parts = [f"{self.instances:,} connected instance{'s' if self.instances != 1 else ''}"]
        parts.append(f"{self.unsettled:,} unsettled message{'s' if self.unsettled != 1 else ''}")
        if len(self.groups) > 1:
            more = f" and {len(self.groups) - _SHOWN_GROUPS_MAX} more" if self.groups[_SHOWN_GROUPS_MAX:] else ""
            parts.insert(0, f"groups {', '.join(self.groups[:_SHOWN_GROUPS_MAX])}{more}")
        return ", ".join(parts)


@dataclass(frozen=True, slots=True)
class DeletedBy:
    """Who deletes something, and why; by *force* though it is in use."""

    actor: str
    reason: str = ""
    force: bool = False

    def __post_init__(self) -> None:
        if self.force and not self.reason.strip():
            raise InvalidSettingError("reason", "is empty: what is deleted though it is in use needs one")


async def find_group_use(stores: Stores, namespace: str, group: str) -> Use:
    """Return who uses a group, and what it leaves. Raises GroupNotFoundError."""
    meant = _of_group(await load_snapshot(stores.config), namespace, group)
    return replace(await _use_of(stores, meant), dead_letters=await _count_letters(stores, meant))


async def find_subscription_use(stores: Stores, namespace: str, group: str, topic: str, event_code: str) -> Use:
    """Return who uses a subscription: what its group has of the topic, and leaves. Raises a NotFoundError."""
    meant = _of_subscription(await load_snapshot(stores.config), namespace, group, topic, event_code)
    return replace(await _use_of(stores, meant), dead_letters=await _count_letters(stores, meant))


async def find_topic_use(stores: Stores, namespace: str, topic: str) -> Use:
    """Return who uses a topic: the groups that subscribe to it, and what they leave. Raises TopicNotFoundError."""
    meant = _of_topic(await load_snapshot(stores.config), namespace, topic)
    return replace(await _use_of(stores, meant), dead_letters=await _count_letters(stores, meant))


async def delete_group(stores: Stores, namespace: str, group: str, *, by: DeletedBy) -> Changed[SubscriberGroupView]:
    """Delete a group with its subscriptions. Raises ThingInUseError while it is in use, unless by force."""
    if not by.force:
        meant = _of_group(await load_snapshot(stores.config), namespace, group)
        _refuse_used("group", group, await _use_of(stores, meant))
    return await stores.service(by.actor, by.reason).subscriber_groups.delete(namespace, group)


async def delete_subscription(
    stores: Stores,
    namespace: str,
    group: str,
    topic: str,
    event_code: str,
    *,
    by: DeletedBy,
) -> Changed[SubscriptionView]:
    """Unsubscribe a group. Raises ThingInUseError while the group is at work on the topic, unless by force."""
    if not by.force:
        name = describe_subscription(group, topic, event_code)
        meant = _of_subscription(await load_snapshot(stores.config), namespace, group, topic, event_code)
        _refuse_used("subscription", name, await _use_of(stores, meant))
    return await stores.service(by.actor, by.reason).subscriptions.delete(namespace, group, topic, event_code)


async def delete_topic(stores: Stores, namespace: str, topic: str, *, by: DeletedBy) -> Changed[TopicView]:
    """Delete a topic. Raises ThingInUseError while a group subscribes to it; by force that goes with it."""
    if not by.force:
        use = await _use_of(stores, _of_topic(await load_snapshot(stores.config), namespace, topic))
        if use.groups:
            raise ThingInUseError("topic", topic, _used_by(use))
    return await stores.service(by.actor, by.reason).topics.delete(namespace, topic, with_subscriptions=by.force)


def _refuse_used(kind: str, name: str, use: Use) -> None:
    if use.is_in_use:
        raise ThingInUseError(kind, name, _used_by(use, is_group=kind == "group"))


def _used_by(use: Use, *, is_group: bool = False) -> str:
    # A group is not in use by itself.
    groups = "" if is_group else f"group {use.groups[0]}: " if len(use.groups) == 1 else ""
    return f"{groups}{use.text} (by force it is deleted all the same)"


class _Meant(NamedTuple):
    """The groups that would lose something, and what of them is looked at."""

    groups: list[GroupRoute]
    topic: str | None = None
    """None: all that they read."""
    are_letters_left: bool = True
    """Whether their dead letters could not be redriven any more."""


def _of_group(snapshot: Snapshot, namespace: str, group: str) -> _Meant:
    return _Meant([get_group(snapshot, namespace, group)])


def _of_subscription(snapshot: Snapshot, namespace: str, group: str, topic: str, event_code: str) -> _Meant:
    route = get_group(snapshot, namespace, group)
    topic_id = get_topic(snapshot, namespace, topic).topic_id
    asking = [each for each in route.subscriptions if each.topic_id == topic_id]
    if all(each.event_code != event_code for each in asking):
        raise SubscriptionNotFoundError(group, topic, event_code)
    # By another subscription to the topic they could still be redriven.
    return _Meant([route], topic, are_letters_left=len(asking) == 1)


def _of_topic(snapshot: Snapshot, namespace: str, topic: str) -> _Meant:
    topic_id = get_topic(snapshot, namespace, topic).topic_id
    groups = [
        group
        for _, group in sorted(snapshot.groups.items())
        if any(subscription.topic_id == topic_id for subscription in group.subscriptions)
    ]
    return _Meant(groups, topic)


async def _count_letters(stores: Stores, meant: _Meant) -> int:
    """Return how many open dead letters stay: of very many that takes a while, so only who asks for it waits."""
    if not meant.are_letters_left:
        return 0
    letters = 0
    async with stores.messages.looking(COUNT_SECONDS_MAX) as conn:
        for group in meant.groups:
            wanted = WantedDeadLetters(
                namespace=group.namespace, group_id=group.group_id, topic=meant.topic, is_open=True
            )
            letters += sum(each.letters for each in await count_wanted(conn, wanted))
    return letters


async def _use_of(stores: Stores, meant: _Meant) -> Use:
    live = await BrokerRegistry(stores.config).list_live()
    unsettled = 0
    for group in meant.groups:
        queues = (await read_lag(stores, WantedFigures(group.namespace, group.name, meant.topic))).queues
        unsettled += sum(lag.behind + lag.redeliveries for lag in queues)
    return Use(
        groups=tuple(group.name for group in meant.groups),
        instances=sum(broker.groups.get(group.group_id, 0) for broker in live for group in meant.groups),
        unsettled=unsettled,
    )
