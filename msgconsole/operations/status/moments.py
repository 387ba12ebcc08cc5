"""What groups were at each moment, as far as it decides whether they get a message. Pure."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from confdb.past import UNCERTAIN_SECONDS, ConfigChange, ConfigMoment, PastGroup, PastSubscription
from msgbroker.contract.names import ANY_EVENT_CODE

UNCERTAIN_US: Final = UNCERTAIN_SECONDS * 1_000_000


@dataclass(frozen=True, slots=True)
class GroupMoment:
    """What a group was from one change that concerns it to the next."""

    made_by: ConfigChange | None
    is_registered: bool
    subscriptions: tuple[PastSubscription, ...]
    """To the message's topic. Without any the group has no lane there, and reads nothing."""
    may_see_stress: bool
    """Whether it may be handed stress messages of the message's type."""

    @property
    def has_lane(self) -> bool:
        """Whether anybody could read the topic for the group."""
        return bool(self.subscriptions)

    @property
    def begins_us(self) -> float:
        """When some broker may have begun to go by it."""
        return -math.inf if self.made_by is None else self.made_by.at.timestamp() * 1_000_000

    def is_like(self, other: GroupMoment) -> bool:
        """Return whether nothing between the two decides anything."""
        mine = (self.is_registered, self.subscriptions, self.may_see_stress)
        return mine == (other.is_registered, other.subscriptions, other.may_see_stress)


_FEW: Final = 3
MOMENTS_MAX: Final = 100
"""So many changes that concern one group and topic are looked at, the newest: what may have come of each is asked of
each one after it."""


def moments_of_groups(
    moments: Sequence[ConfigMoment], groups: Iterable[PastGroup], topic_id: int, event_code: str
) -> dict[int, tuple[GroupMoment, ...]]:
    """Return what each of these groups was, by its id. A change costs as much as it concerns groups."""
    by_name: dict[str, list[PastGroup]] = {}
    for group in groups:
        by_name.setdefault(group.name, []).append(group)
    found: dict[int, list[GroupMoment]] = {}
    before: ConfigMoment | None = None
    for moment in moments:
        names = _concerned(moment, before, by_name)
        own = _OfTopic(moment, topic_id, event_code, are_many=len(names) > _FEW)
        for group in (each for name in names for each in by_name[name]):
            told = found.setdefault(group.group_id, [])
            was = own.of_group(group)
            if not told or not told[-1].is_like(was):
                told.append(was)
        before = moment
    return {group_id: tuple(told) for group_id, told in found.items()}


def _concerned(moment: ConfigMoment, before: ConfigMoment | None, names: Mapping[str, Any]) -> Collection[str]:
    """Return the names of the groups that something was changed of, and all where the topic is another."""
    if before is None or moment.made_by is None or moment.topic != before.topic or moment.made_by.groups is None:
        return names
    return [name for name in moment.made_by.groups if name in names]


class _OfTopic:
    """What one moment says of the topic, by group: put in order once where many groups ask."""

    def __init__(self, moment: ConfigMoment, topic_id: int, event_code: str, *, are_many: bool) -> None:
        self._moment, self._are_many = moment, are_many
        # By its id: of the same name there may have been another topic before.
        self._is_there = moment.topic is not None and moment.topic.topic_id == topic_id
        self._is_refused = moment.topic is not None and moment.topic.stress_refused
        self._event_code = event_code

    def _subscriptions_of(self, name: str) -> Sequence[PastSubscription]:
        if self._are_many:
            return self._by_group.get(name, ())
        found = [each for each in self._moment.subscriptions.values() if each.group == name]
        return sorted(found, key=lambda each: each.subscription_id)

    @cached_property
    def _by_group(self) -> Mapping[str, Sequence[PastSubscription]]:
        found: dict[str, list[PastSubscription]] = {}
        for _, each in sorted(self._moment.subscriptions.items()):
            found.setdefault(each.group, []).append(each)
        return found

    @cached_property
    def _allowed(self) -> frozenset[tuple[str, str]]:
        return frozenset(self._moment.allowed.values())

    def of_group(self, group: PastGroup) -> GroupMoment:
        """Return what the group was."""
        moment, name = self._moment, group.name
        # By its id, too.
        registered = moment.groups.get(name)
        is_registered = registered is not None and registered.group_id == group.group_id
        if not is_registered or not self._is_there:
            return GroupMoment(moment.made_by, is_registered, (), may_see_stress=False)
        is_allowed = not self._allowed.isdisjoint({(name, self._event_code), (name, ANY_EVENT_CODE)})
        return GroupMoment(
            moment.made_by,
            is_registered=True,
            subscriptions=tuple(self._subscriptions_of(name)),
            may_see_stress=is_allowed and not self._is_refused,
        )
