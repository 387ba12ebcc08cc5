"""What one group was at each moment, as far as it decides whether the group gets a message. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

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


MOMENTS_MAX: Final = 100
"""So many changes that concern one group and topic are looked at, the newest: what may have come of each is asked of
each one after it."""


def moments_of_group(
    moments: Sequence[ConfigMoment], group: PastGroup, topic_id: int, event_code: str
) -> tuple[GroupMoment, ...]:
    """Return what a group was with a topic and an event code; changes that do not concern it are left out."""
    found: list[GroupMoment] = []
    before: ConfigMoment | None = None
    for moment in moments:
        if before is None or not _is_alike(moment, before, group.name):
            own = _moment_of(moment, group, topic_id, event_code)
            if not found or not found[-1].is_like(own):
                found.append(own)
        before = moment
    return tuple(found)


def _is_alike(moment: ConfigMoment, before: ConfigMoment, name: str) -> bool:
    """Return whether nothing of this group and the topic was changed: what was not is the same thing, and no copy."""
    return (
        moment.subscriptions is before.subscriptions
        and moment.allowed is before.allowed
        and moment.topic is before.topic
        and moment.groups.get(name) is before.groups.get(name)
    )


def _moment_of(moment: ConfigMoment, group: PastGroup, topic_id: int, event_code: str) -> GroupMoment:
    # By its id: of the same name there may have been another group before, and so with the topic.
    name = group.name
    registered = moment.groups.get(name)
    is_registered = registered is not None and registered.group_id == group.group_id
    if not is_registered or moment.topic is None or moment.topic.topic_id != topic_id:
        return GroupMoment(moment.made_by, is_registered, (), may_see_stress=False)
    subscriptions = [each for _, each in sorted(moment.subscriptions.items()) if each.group == name]
    is_allowed = any(allowed in {(name, event_code), (name, ANY_EVENT_CODE)} for allowed in moment.allowed.values())
    return GroupMoment(
        moment.made_by,
        is_registered=True,
        subscriptions=tuple(subscriptions),
        may_see_stress=is_allowed and not moment.topic.stress_refused,
    )
