"""What a change of the whitelist would let a group have of stress traffic: its dry run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from confdb.routes import GroupRoute, TopicRoute
from confdb.services.changes import Rehearsed
from msgbroker.engine.matching import Matcher
from msgbroker.engine.stress import StressGate
from msgconsole.operations.configuration.foretelling import Foretold
from msgconsole.operations.configuration.newest import NamedType, foretell_group, read_newest
from msgconsole.operations.configuration.rehearsing import FieldChange, changed_fields, rehearse
from msgconsole.operations.counting import IsDenied, OffsetsOfQueue, are_cheap, count_selected
from msgconsole.operations.figures.lag import QueueLag, read_lag
from msgconsole.operations.figures.wanted import WantedFigures
from msgconsole.operations.matched import Matched
from msgconsole.operations.stores import Stores
from msgconsole.operations.subscribed import get_group, get_topic
from msgdb.lanes.resets import LanePlace, find_places, skipped_by
from msgdb.log.heads import MessageHead

RANGES_MAX: Final = 1_000
"""Where what is not settled lies in more stretches, all from the cursor on is looked at, and it is said to be about."""


@dataclass(frozen=True, slots=True)
class UnsettledStress:
    """What is stored and a group has not settled, and how much of it the change is about."""

    looked_at: int
    """How many messages it has not settled."""
    concerned: int
    """How many of them it would be handed after the change and not before, or the other way round: that is asked as
    they are handed out."""
    is_exact: bool
    """Whether each was looked at; else it is about so many."""


@dataclass(frozen=True, slots=True)
class WhitelistPreview:
    """What would be different."""

    changes: tuple[FieldChange, ...]
    foretold: Foretold
    """By the newest messages of the type."""
    is_all: bool
    """Whether these are all messages of the type that the log has."""
    unsettled: UnsettledStress | None
    """None: an expression of the group costs too much to be tried on all of it."""


async def preview_whitelist(stores: Stores, asked: NamedType, *, allowed: bool, reason: str = "") -> WhitelistPreview:
    """Return what allowing a group stress messages of a type would mean, or taking that back. Changes nothing.

    Raises as `Stress.allow` and `Stress.disallow` do, and LookTooLongError.
    """
    _, rehearsed = await rehearse(
        stores,
        lambda service: (service.stress.allow if allowed else service.stress.disallow)(
            asked.namespace, asked.group, asked.topic, asked.event_code
        ),
        reason=reason,
    )
    topic = get_topic(rehearsed.before, asked.namespace, asked.topic)
    newest = await read_newest(stores, topic.topic_id, asked.event_code)
    foretold = await foretell_group(newest.messages, rehearsed.before, rehearsed.after, asked)
    return WhitelistPreview(
        changes=changed_fields(rehearsed),
        foretold=foretold,
        is_all=newest.is_all and not foretold.is_cut,
        unsettled=await _count_unsettled(stores, rehearsed, asked),
    )


async def _count_unsettled(stores: Stores, rehearsed: Rehearsed, asked: NamedType) -> UnsettledStress | None:
    group = get_group(rehearsed.before, asked.namespace, asked.group)
    topic = get_topic(rehearsed.before, asked.namespace, asked.topic)
    if not are_cheap(group, topic):
        return None
    lags = (await read_lag(stores, WantedFigures(asked.namespace, asked.group, asked.topic))).queues
    is_told_apart = _told_apart(rehearsed, group.group_id, topic.topic_id)
    async with stores.messages.looking() as conn:
        places = await find_places(conn, group.group_id, [lag.queue_id for lag in lags])
        selection = _OfLanes(group, topic, places)
        ranges = unsettled_ranges(lags, places)
        is_each = len(ranges) <= RANGES_MAX
        if not is_each:
            ranges = unsettled_ranges(lags, {})
        counted = await count_selected(conn, ranges, selection, is_told_apart)
    return UnsettledStress(counted.looked_at, counted.denied, is_exact=is_each and counted.is_exact)


class _OfLanes:
    """Selects as the group's lanes do: no subscription asks for what lies before its start, or where it was put."""

    def __init__(self, group: GroupRoute, topic: TopicRoute, places: Mapping[int, LanePlace]) -> None:
        self._unmoved = Matcher(group, topic)
        self._moved = {
            queue_id: Matcher(group, topic, place.reset)
            for queue_id, place in places.items()
            if place.reset is not None
        }

    def takes(self, message: MessageHead) -> bool:
        """Return whether the group gets the message, now or once a paused subscription goes on."""
        matcher = self._moved.get(message.queue_id, self._unmoved)
        asked = Matched.of(message)
        is_wanted = matcher.select((asked,), message.queue_id) or matcher.paused_wanting(asked, message.queue_id)
        return bool(is_wanted)


def unsettled_ranges(lags: Sequence[QueueLag], places: Mapping[int, LanePlace]) -> list[OffsetsOfQueue]:
    """Return what a group has not settled, what waits for another attempt included. Pure.

    Of a queue that has no place, all from its cursor on, or from where the group begins.
    """
    return [
        (lag.queue_id, first, end)
        for lag in lags
        # A lane that is put at its end would skip just that.
        for first, end in skipped_by(places.get(lag.queue_id, LanePlace(lag.acked_offset)), lag.next_offset)
    ]


def _told_apart(rehearsed: Rehearsed, group_id: int, topic_id: int) -> IsDenied:
    """Return what tells of a message whether the group is handed it either before or after, and not both."""
    gates = StressGate(rehearsed.before), StressGate(rehearsed.after)

    def is_told_apart(head: MessageHead) -> bool:
        return head.stress and len({gate.allows(group_id, topic_id, head.event_code) for gate in gates}) > 1

    return is_told_apart
