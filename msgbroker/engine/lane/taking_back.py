"""Taking back: what becomes of messages whose instance did not answer, or went away."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from msgbroker.engine.lane.flights import Flight
from msgbroker.engine.lane.redeliveries import Redelivery
from msgbroker.engine.lane.state import LaneState
from msgbroker.engine.messages import MessageT
from msgbroker.engine.verdicts import Verdict


def take_back(
    state: LaneState[MessageT],
    flights: list[Flight],
    records: list[Redelivery],
    now: float,
    has_failed: Callable[[Redelivery], bool],
    fail: Callable[[Redelivery, float], None],
    *,
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
    records.sort(key=lambda record: record.queue_offset)
    failed_count = sum(has_failed(record) for record in records)
    failed_before = 0
    for record in records:
        record.is_suspect = record.is_suspect or makes_suspect
        if has_failed(record):
            fail(record, failed_before / failed_count)
            failed_before += 1
        else:
            state.decide(record, Verdict.RELEASE, now, None, "")
    for instance_id, count in lost.items():
        state.let_go(instance_id, count)
    return lost
