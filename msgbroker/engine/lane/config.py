"""How a lane is set up, and what it hands out and counts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Generic, NamedTuple

from confdb.routes import GroupOrder
from msgbroker.contract import limits
from msgbroker.contract.errors import KindNotSupportedError
from msgbroker.engine.messages import MessageT
from msgbroker.engine.retry import RetryPolicy


@dataclass(frozen=True, slots=True)
class LaneConfig:
    """What a lane takes from its group. It may be replaced while the lane works."""

    ack_timeout_seconds: float = limits.ACK_TIMEOUT_SECONDS_DEFAULT
    """How long an instance may take to answer; changes apply to what is handed out afterwards."""
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    window_max: int = limits.LANE_WINDOW_MAX
    """How far reading may be ahead of the cursor."""
    redeliveries_max: int = limits.REDELIVERIES_PER_LANE_MAX
    """How many messages may wait for another attempt, before reading stops."""
    order: GroupOrder = GroupOrder.NONE
    """KEY and GLOBAL will let a message wait behind an unsettled one of its key; the lane itself goes on."""
    handle_seconds_max: float = limits.HANDLE_SECONDS_DEFAULT
    """How long an instance may keep what it has begun, by extending its time to answer; 0: it cannot."""

    def __post_init__(self) -> None:
        if self.order is not GroupOrder.NONE:
            raise KindNotSupportedError("group order", self.order.value, GroupOrder.NONE.value)


class Again(NamedTuple, Generic[MessageT]):
    """A message that was handed out before, or was given back."""

    message: MessageT
    attempt: int
    """Which attempt this is. It is 1 again where the one before did not count."""


class Handed(NamedTuple):
    """Which messages a hand-out was of: what is kept of it where the messages themselves need not be."""

    fresh: Sequence[int]
    """The offsets of first hand-outs, ascending."""
    again: Sequence[tuple[int, int]]
    """The offset and the attempt of each message that came again."""


@dataclass(slots=True)
class Handout(Generic[MessageT]):
    """The messages of one lane that an instance gets at once."""

    again: list[Again[MessageT]] = field(default_factory=list)
    """Messages that come again, in the order of the queue. All of them lie before all of `fresh`."""
    fresh: list[MessageT] = field(default_factory=list)
    """Messages that are handed out for the first time, in the order of the queue."""
    deadline: float = math.inf
    """The time at which the lane takes back what was not answered."""
    is_suspect: bool = False
    """Whether all of it was with instances that went away without a word: one of it may have ended them."""

    @property
    def count(self) -> int:
        """How many messages are handed out."""
        return len(self.again) + len(self.fresh)

    @property
    def handed(self) -> Handed:
        """The offsets and attempts that are handed out, without the messages."""
        fresh, again = self.fresh, [(each.message.queue_offset, each.attempt) for each in self.again]
        if fresh and fresh[-1].queue_offset - fresh[0].queue_offset + 1 == len(fresh):
            # Most hand-outs have no holes: then a range says it all.
            return Handed(range(fresh[0].queue_offset, fresh[-1].queue_offset + 1), again)
        return Handed([message.queue_offset for message in fresh], again)


@dataclass(slots=True)
class LaneCounters:
    """What happened in a lane since its owner built it."""

    handed_out: int = 0
    """Messages handed to instances. Those that were taken back or denied before they were written do not count."""
    redelivered: int = 0
    """Messages among those that had been handed out before."""
    settled: int = 0
    """Messages that a verdict of their instance decided, whichever verdict."""
    stale: int = 0
    """Messages that a verdict named and that were not in flight with its instance, attempt and epoch."""
    timed_out: int = 0
    """Hand-outs that nobody answered in time."""
    extended: int = 0
    """How often the time to answer a message was extended."""
    expired: int = 0
    """Messages settled because their day was dropped."""
    denied: int = 0
    """Messages settled because the group may not see them (any more)."""
    withdrawn: int = 0
    """Messages taken back from an instance before they were written to it."""
    dead_lettered: int = 0
    """Messages that became dead letters."""
