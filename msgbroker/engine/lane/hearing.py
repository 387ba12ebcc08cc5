"""Hearing instances: what they have begun, what they keep for longer, and what they have settled.

An instance names messages by epoch, attempt and ranges of offsets. What of that it does not hold is not its business
(any more): nothing changes for it, and where it was a verdict it is counted as stale.
"""

from __future__ import annotations

import math

from msgbroker.engine.lane.extension import Extension
from msgbroker.engine.lane.state import LaneState
from msgbroker.engine.lane.watching import OF_VERDICT
from msgbroker.engine.messages import MessageT
from msgbroker.engine.verdicts import Held, Settled, Settlement, Verdict
from msgdb.lanes.records import OffsetRange


def begin(state: LaneState[MessageT], instance_id: str, held: Held) -> None:
    """Note that *instance_id* has begun what it has of *held*."""
    if held.epoch != state.epoch:
        return
    for first, end in held.ranges:
        if held.attempt == 1:
            state.flights.begin(instance_id, first, end)
        # First attempts are here as well: those that were parked, or came again without counting.
        if state.again.in_flight:
            state.again.begin(instance_id, held.attempt, first, end)


def extend(state: LaneState[MessageT], instance_id: str, held: Held, seconds: float, now: float) -> int:
    """Give *instance_id* so many seconds from now on to answer what it has of *held*; return for how many messages."""
    if held.epoch != state.epoch:
        return 0
    handle_seconds_max = state.config.handle_seconds_max
    if handle_seconds_max <= 0:
        begin(state, instance_id, held)
        return 0
    # Time is never shortened: so a stopped lane gives none, and still knows later what would have been kept.
    extension = Extension(now, -math.inf if state.is_stopped else seconds, handle_seconds_max)
    count = 0
    for first, end in held.ranges:
        if held.attempt == 1:
            count += state.flights.extend(instance_id, first, end, extension)
        if state.again.in_flight:
            count += state.again.extend(instance_id, held.attempt, first, end, extension)
    if state.is_stopped:
        return 0
    state.counters.extended += count
    return count


def settle(state: LaneState[MessageT], instance_id: str, settlement: Settlement, now: float) -> Settled:
    """Apply a verdict to what *instance_id* has in flight of what it names."""
    held = settlement.held
    is_ours = held.epoch == state.epoch
    count = stale = 0
    for first, end in held.ranges:
        of_range = _settle_range(state, instance_id, settlement, (first, end), now) if is_ours else 0
        # What was never read was never handed out: a range that ends far beyond does not count for more.
        stale += max(min(end, state.next_offset) - first - of_range, 0 if of_range else 1)
        count += of_range
    if count:
        state.let_go(instance_id, count)
        state.park_stragglers()
    state.counters.settled += count
    state.counters.stale += stale
    return Settled(count, stale)


def _settle_range(
    state: LaneState[MessageT], instance_id: str, settlement: Settlement, offsets: OffsetRange, now: float
) -> int:
    verdict, attempt = settlement.verdict, settlement.held.attempt
    flights = state.flights.cut(instance_id, *offsets) if attempt == 1 else []
    # First attempts are here as well: those that were parked, or came again without counting.
    records = state.again.cut(instance_id, attempt, *offsets) if state.again.in_flight else []
    count = len(records)
    for flight in flights:
        count += len(flight.offsets)
        if verdict is Verdict.ACK:
            state.tally.delivered(flight.counted, flight.stored_at_us)
            # With what lies between its messages: all of that is settled, or has a record and thereby a row.
            state.settle(flight.first, flight.end)
            state.watcher.acked(flight)
        else:
            records += state.records_of(flight)
    for record in records:
        if verdict is not Verdict.RELEASE:
            # It was handled, and its instance lives to tell.
            record.is_suspect = False
        state.decide(record, settlement, now)
        state.watcher.ended(OF_VERDICT[verdict], record, attempt, settlement.error)
    if state.is_stopped:
        state.keep_attempts(records)
    return count
