"""Taking in a stretch of the log: what is kept for handing out, what is settled at once."""

from __future__ import annotations

import math
from collections.abc import Sequence

from msgbroker.engine.lane.redeliveries import Redelivery
from msgbroker.engine.lane.state import LaneState
from msgbroker.engine.messages import MessageT


def read(
    state: LaneState[MessageT],
    first: int,
    end: int,
    matched: Sequence[MessageT],
    shelved: Sequence[tuple[MessageT, str]] = (),
) -> None:
    """Make *matched* ready, shelve *shelved*, and settle the rest of *first* to below *end*.

    Both may hold more than that: messages below *first*, or settled by an earlier owner.
    """
    shelved_count = 0
    for message, by in shelved:
        offset = message.queue_offset
        if offset >= first and offset not in state.settled:
            record = Redelivery(offset, message.stored_at_us, message.ordering_key, 1, math.inf)
            state.again.add(record)
            state.shelve(record, by)
            shelved_count += 1
    if matched and matched[0].queue_offset < first:
        matched = [message for message in matched if message.queue_offset >= first]
    if state.settled.end > first:
        matched = [message for message in matched if message.queue_offset not in state.settled]
    if first >= state.learns_from:
        state.meter.read += end - first
        state.meter.matched += len(matched) + shelved_count
    if len(matched) < end - first:
        settle_between(state, first, end, matched)
    state.ready.add(matched)


def read_gap(state: LaneState[MessageT], first: int, end: int) -> None:
    """Settle *first* to below *end* as expired: the log does not hold them any more."""
    state.counters.expired += state.settled.count_missing(first, end)
    state.settle(first, end)


def settle_between(state: LaneState[MessageT], first: int, end: int, unsettled: Sequence[MessageT]) -> None:
    """Settle what lies from *first* to below *end*, except the messages of *unsettled*."""
    for message in unsettled:
        offset = message.queue_offset
        if offset > first:
            state.settle(first, offset)
        first = offset + 1
    state.settle(first, end)
