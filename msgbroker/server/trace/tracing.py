"""The trace as the rest of the broker sees it: who stores and who delivers says here what happens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from confdb.routes import Snapshot
from msgbroker.engine.tracing import threshold_of
from msgbroker.server.log.message import LogMessage
from msgbroker.server.trace.buffer import Noted, TraceBuffer
from msgbroker.server.trace.lane_trace import LaneTrace, short_runs
from msgdb.lanes.records import LaneKey
from msgdb.trace.records import TraceKind


class Tracing:
    """Notes what happens to messages at this broker, as far as it is traced."""

    def __init__(self, buffer: TraceBuffer | None = None) -> None:
        self.buffer = TraceBuffer() if buffer is None else buffer
        self.threshold_max = 0
        """Below which draw a message may be traced, whatever its topic."""

    def follow(self, snapshot: Snapshot) -> None:
        """Go by another configuration."""
        rates = (topic.trace_rate for topic in snapshot.topics.values() if topic.not_understood is None)
        self.threshold_max = threshold_of(max(rates, default=0.0))

    def of_lane(self, key: LaneKey) -> LaneTrace:
        """Return what notes what happens to the messages of a lane."""
        return LaneTrace(self.buffer, key)

    def stored(self, by_queue: Mapping[int, Sequence[LogMessage]]) -> None:
        """Note what was committed: of each queue, which is of one topic, messages in their order."""
        now = self.buffer.now()
        for queue_id, messages in by_queue.items():
            route = messages[0].route
            threshold = threshold_of(route.trace_rate) if route is not None else 0
            if not threshold:
                continue
            # A transaction gives all that it stores in a queue the same time.
            stored_at_us = messages[0].stored_at_us
            traced = [message.queue_offset for message in messages if message.trace_draw < threshold]
            for first, end in short_runs(traced):
                self.buffer.note(Noted(TraceKind.STORED, queue_id, first, end - 1, now, stored_at_us=stored_at_us))
