"""When a lane can have read a message, and whether it was skipped: what resets made of it. Pure.

A lane reads a message once on its way, at some time after it was stored. A reset that goes back behind the message has
it read once more, and what became of it before is history; one that goes forward over it ends its way.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from msgconsole.operations.status.moments import UNCERTAIN_US, GroupMoment
from msgdb.lanes.records import LaneReset
from msgdb.lanes.reset_acts import LaneResetAct


@dataclass(frozen=True, slots=True)
class Passage:
    """A time in which a lane can have read the message, and where the lane had been put by hand before."""

    begins_us: float
    ends_us: float | None = None
    """None: it goes on."""
    reset: LaneReset | None = None

    def overlaps(self, begins_us: float, ends_us: float) -> bool:
        """Return whether somebody can have gone by a configuration of that time as it was read."""
        return begins_us <= self.last_us and ends_us >= self.begins_us

    @property
    def last_us(self) -> float:
        """Until when it lasts; by the clock of the configuration it may be somewhat later."""
        return float("inf") if self.ends_us is None else self.ends_us + UNCERTAIN_US


@dataclass(frozen=True, slots=True)
class Way:
    """The way of a lane over one message."""

    passages: tuple[Passage, ...]
    """Since the lane was put back behind the message the last time, if it ever was."""
    put_back_by: LaneResetAct | None = None
    skipped_by: LaneResetAct | None = None
    perhaps_skipped_by: LaneResetAct | None = None
    """Resets that skipped more ranges than were written down."""
    is_over: bool = field(default=False)
    """Whether the cursor had passed it when the lane was reset: it was read by then, or never is."""

    @property
    def begins_us(self) -> float:
        """When the message could first be read."""
        return self.passages[0].begins_us


def way_over(
    queue_offset: int, stored_at_us: int, resets: Iterable[LaneResetAct], before: LaneReset | None = None
) -> Way:
    """Return when a lane that was reset like that, the oldest reset first, can have read the message at that offset.

    *before*: where it had been put by hand when the message was stored.
    """
    way = Way((Passage(stored_at_us, reset=before),))
    for act in resets:
        at_us = act.at.timestamp() * 1_000_000
        kept = way.passages[-1].reset
        lane_reset = kept if act.subscription_id is None else LaneReset(act.to_offset, act.subscription_id)
        if act.goes_back and queue_offset >= act.to_offset:
            way = Way((Passage(at_us, reset=lane_reset),), put_back_by=act)
            continue
        if act.skips:
            way = replace(way, skipped_by=act)
        elif act.skips is None:
            way = replace(way, perhaps_skipped_by=act)
        if way.is_over:
            continue
        *earlier, last = way.passages
        passages = (*earlier, replace(last, ends_us=at_us))
        is_over = queue_offset < max(act.from_offset, act.to_offset)
        if not is_over:
            passages = (*passages, Passage(at_us, reset=lane_reset))
        way = replace(way, passages=passages, is_over=is_over)
    return way


def readings_of(way: Way, moments: tuple[GroupMoment, ...]) -> list[tuple[int, Passage]]:
    """Return by which of these moments the message can have been read, and in which passage, in their order.

    Only where the group has a lane: else nobody reads.
    """
    ends = [moment.begins_us + UNCERTAIN_US for moment in moments[1:]] + [float("inf")]
    return [
        (index, passage)
        for passage in way.passages
        for index, (moment, ends_us) in enumerate(zip(moments, ends, strict=True))
        if moment.has_lane and passage.overlaps(moment.begins_us, ends_us)
    ]


def moment_at(moments: tuple[GroupMoment, ...], at_us: float) -> int:
    """Return which of the moments it was at a time, by when their changes were noted."""
    return max((index for index, moment in enumerate(moments) if moment.begins_us <= at_us), default=0)
