"""Taking back: what becomes of messages whose instance did not answer, went away, or was never sent them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from typing import Final

from msgbroker.engine.lane.begun import Begun
from msgbroker.engine.lane.config import Handed, LaneConfig
from msgbroker.engine.lane.flights import Flight
from msgbroker.engine.lane.redeliveries import Redelivery
from msgbroker.engine.lane.state import LaneState
from msgbroker.engine.lane.watching import Ending
from msgbroker.engine.messages import MessageT

_STREAM_ENDED: Final = "the instance's stream ended before it answered"


def expire(state: LaneState[MessageT], now: float) -> Counter[str]:
    """Take back what was not answered in time; return how many messages each instance lost by it."""

    def has_failed(record: Redelivery) -> bool:
        # What a stopped lane did not extend would have been kept: its instance is not to blame.
        is_cut_off = state.is_stopped and record.keep_until < math.inf
        # An instance that says what it begins, and has not said so of this one, has merely left it lying.
        return record.begun is not Begun.NO and not is_cut_off

    lost = _take_back(
        state,
        state.flights.cut_expired(now),
        state.again.cut_expired(now),
        has_failed,
        lambda record, _: state.fail(record, now, None, _why_late(state.config, record)),
        now=now,
        ending=Ending.TIMED_OUT,
    )
    state.counters.timed_out += sum(lost.values())
    _after_taking_back(state)
    state.again.promote(now)
    return lost


def _why_late(config: LaneConfig, record: Redelivery) -> str:
    if record.keep_until < math.inf:
        return f"handle timeout: no answer within its extended time ({config.handle_seconds_max:g} s at most)"
    return f"ack timeout: no answer within {config.ack_timeout_seconds:g} s"


def return_instance(
    state: LaneState[MessageT], instance_id: str, now: float, *, counts: bool, has_crashed: bool
) -> int:
    """Take back all that *instance_id* has: its stream ended. Return how many messages that is."""
    lost = _take_back(
        state,
        state.flights.cut_instance(instance_id),
        state.again.cut_instance(instance_id),
        lambda record: counts and record.begun is Begun.YES,
        lambda record, spread: state.come_back(record, now, _STREAM_ENDED, spread),
        now=now,
        ending=Ending.INSTANCE_GONE,
        makes_suspect=has_crashed,
    )
    _after_taking_back(state)
    return lost[instance_id]


def withdraw(state: LaneState[MessageT], instance_id: str, handed: Handed, now: float) -> int:
    """Take back what was handed out and never written to *instance_id*: that was no attempt. Return how many."""
    records = _cut_unwritten(state, instance_id, handed)
    for record in records:
        state.release(record, now)
        state.watcher.ended(Ending.WITHDRAWN, record, record.attempt, "")
    state.counters.withdrawn += len(records)
    if state.is_stopped:
        state.keep_attempts(records)
    state.park_stragglers()
    return len(records)


def deny(state: LaneState[MessageT], instance_id: str, handed: Handed) -> int:
    """Settle what was handed out, and may not be written to *instance_id* any more; return how many it was."""
    records = _cut_unwritten(state, instance_id, handed)
    for record in records:
        state.settle_record(record)
        state.watcher.ended(Ending.DENIED, record, record.attempt, "")
    state.counters.denied += len(records)
    state.park_stragglers()
    return len(records)


def _cut_unwritten(state: LaneState[MessageT], instance_id: str, handed: Handed) -> list[Redelivery]:
    """Take out of flight what *instance_id* still has of a hand-out, and count it as never handed out."""
    records = state.cut(instance_id, handed)
    if records:
        state.let_go(instance_id, len(records))
        state.counters.handed_out -= len(records)
        again = set(handed.again)
        state.counters.redelivered -= sum((r.queue_offset, r.attempt) in again for r in records)
    return records


def _take_back(
    state: LaneState[MessageT],
    flights: list[Flight],
    records: list[Redelivery],
    has_failed: Callable[[Redelivery], bool],
    fail: Callable[[Redelivery, float], None],
    *,
    now: float,
    ending: Ending,
    makes_suspect: bool = False,
) -> Counter[str]:
    """Take back what was cut out of flight; return how many messages each instance lost by it.

    What *has_failed* goes to *fail*, with its place among these, from 0 to below 1; the rest comes again at once, and
    does not count. With *makes_suspect* one of it may have ended its instance.
    """
    lost: Counter[str] = Counter()
    for record in records:
        lost[record.instance_id] += 1
    for flight in flights:
        lost[flight.instance_id] += len(flight.offsets)
        records += state.records_of(flight)
    # In the order of the queue they come again, and pay.
    records.sort(key=lambda record: record.queue_offset)
    failed_count = sum(has_failed(record) for record in records)
    failed_before = 0
    for record in records:
        record.is_suspect = record.is_suspect or makes_suspect
        attempt, error = record.attempt, ""
        if has_failed(record):
            fail(record, failed_before / failed_count)
            failed_before += 1
            error = record.last_error
        else:
            state.release(record, now)
        state.watcher.ended(ending, record, attempt, error)
    for instance_id, count in lost.items():
        state.let_go(instance_id, count)
    return lost


def _after_taking_back(state: LaneState[MessageT]) -> None:
    if state.is_stopped:
        # The next owner claims soon, and is to count on from here: what came again at once has no row otherwise.
        state.keep_attempts(state.again.by_offset.values())
    state.park_stragglers()
