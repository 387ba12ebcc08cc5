"""What is traced of a lane: which hand-outs, and how they end.

Whether a message is traced is decided as it is handed out, from its draw and its topic's rate; until its hand-out ends
its offset stands here. What fails is traced in any case, and from then on all that happens to the message. So it is
with redriven and replayed messages: somebody has asked for them, and will ask what became of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from msgbroker.engine.lane.config import Handout
from msgbroker.engine.lane.flights import Flight
from msgbroker.engine.lane.redeliveries import Redelivery
from msgbroker.engine.lane.watching import Ending
from msgbroker.engine.offsets import runs
from msgbroker.engine.tracing import threshold_of
from msgbroker.server.log.message import LogMessage
from msgbroker.server.trace.buffer import Noted, OpenHandOut, TraceBuffer
from msgdb.lanes.records import DeadLetterMove, LaneKey
from msgdb.trace.records import RANGE_MAX, TraceKind

KIND_OF: Final = {ending: TraceKind(ending.value) for ending in Ending}
_ALWAYS: Final = frozenset(
    {Ending.RETRIED, Ending.REJECTED, Ending.UNREADABLE, Ending.TIMED_OUT, Ending.DENIED},
)
_NO_LANE: Final = LaneKey(0, "", 0)
_NOT_COUNTED: Final = {
    Ending.TIMED_OUT: "it was not begun: the attempt does not count",
    Ending.INSTANCE_GONE: "the attempt does not count",
}


class LaneTrace:
    """Notes what happens to messages of one lane that this broker owns."""

    __slots__ = ("_buffer", "_group_id", "_open", "_queue_id")

    def __init__(self, buffer: TraceBuffer | None = None, key: LaneKey = _NO_LANE) -> None:
        """Make the trace of a lane. Without a *buffer* it is written nowhere."""
        self._buffer = TraceBuffer() if buffer is None else buffer
        self._group_id = key.group_id
        self._queue_id = key.queue_id
        self._open: dict[int, OpenHandOut] = {}
        """The hand-outs of messages that are traced and with instances, by offset."""

    def handed_out(self, trace_rate: float, instance: str, handout: Handout[LogMessage], now: float) -> None:
        """Hear what was handed out. This is done for every batch: of most messages it looks at one number."""
        threshold = threshold_of(trace_rate)
        if threshold:
            traced = [message.queue_offset for message in handout.fresh if message.trace_draw < threshold]
            if traced:
                for first, end in short_runs(traced):
                    self._hand_out(self._handed(first, end, 1, instance, now))
        for message, attempt in handout.again:
            offset = message.queue_offset
            # At rate 0 nothing is chosen, what was redriven neither.
            if threshold and message.trace_draw < threshold:
                self._hand_out(self._handed(offset, offset + 1, attempt, instance, now))
            elif attempt > 1 and self._buffer.permits(
                noted := self._handed(offset, offset + 1, attempt, instance, now)
            ):
                self._hand_out(noted)

    def _handed(self, first: int, end: int, attempt: int, instance: str, now: float) -> Noted:
        return Noted(
            TraceKind.HANDED_OUT, self._queue_id, first, end - 1, now, 0, self._group_id, instance, attempt, now
        )

    def _hand_out(self, noted: Noted) -> None:
        hand_out = self._buffer.hand_out(noted)
        self._open.update(dict.fromkeys(range(noted.first, noted.last + 1), hand_out))

    # --- what the lane tells ----------------------------------------------------------------------------------------

    def acked(self, flight: Flight) -> None:
        """Hear that first hand-outs were acknowledged."""
        if not self._open:
            return
        offsets, opened = flight.offsets, self._open
        if isinstance(offsets, range) and len(opened) < len(offsets):
            first, end = flight.first, flight.end
            traced = [offset for offset in opened if first <= offset < end]
            traced.sort()
        else:
            traced = [offset for offset in offsets if offset in opened]
        if not traced:
            return
        now, instance = self._buffer.now(), _id_of(flight.instance_id)
        self._end(traced)
        for first, end in short_runs(traced):
            self._buffer.note(
                Noted(
                    TraceKind.ACKED,
                    self._queue_id,
                    first,
                    end - 1,
                    now,
                    0,
                    self._group_id,
                    instance,
                    1,
                    flight.handed_at,
                )
            )

    def ended(self, ending: Ending, record: Redelivery, attempt: int, error: str) -> None:
        """Hear how a hand-out ended."""
        offset = record.queue_offset
        is_traced = offset in self._open
        if is_traced:
            self._end((offset,))
        # An instance that leaves in good order fails nothing.
        has_failed = ending in _ALWAYS or (ending is Ending.INSTANCE_GONE and (bool(error) or record.is_suspect))
        if not (is_traced or has_failed):
            return
        now = self._buffer.now()
        noted = self._noted(KIND_OF[ending], offset, offset + 1, now, instance=_id_of(record.instance_id))
        noted.attempt = attempt
        noted.handed_at = record.handed_at
        noted.detail = error or _NOT_COUNTED.get(ending, "")
        if has_failed:
            self._buffer.note_failure(noted)
        else:
            self._buffer.note(noted)

    def denied(self, offsets: Sequence[int]) -> None:
        """Hear that messages were settled, because the group may not see them."""
        now = self._buffer.now()
        for first, end in short_runs(offsets):
            self._buffer.note_failure(self._noted(TraceKind.DENIED, first, end, now))

    # --- what else becomes of them ----------------------------------------------------------------------------------

    def dead_lettered(self, moves: Iterable[DeadLetterMove]) -> None:
        """Hear that messages became dead letters: that is committed."""
        now = self._buffer.now()
        for move in moves:
            noted = self._noted(TraceKind.DEAD_LETTERED, move.queue_offset, move.queue_offset + 1, now)
            noted.attempt = move.attempts
            noted.detail = move.reason
            self._buffer.note_failure(noted)

    def close(self) -> None:
        """Note that the lane is given up: nobody here hears any more how its hand-outs end."""
        now = self._buffer.now()
        for offset, hand_out in sorted(self._open.items()):
            handed = hand_out.noted
            noted = self._noted(TraceKind.LANE_GONE, offset, offset + 1, now, instance=handed.instance)
            noted.attempt = handed.attempt
            noted.handed_at = handed.handed_at
            self._buffer.note(noted)
        self._end(list(self._open))

    def _end(self, offsets: Iterable[int]) -> None:
        for offset in offsets:
            self._open.pop(offset).open_count -= 1

    def _noted(
        self,
        kind: TraceKind,
        first: int,
        end: int,
        now: float,
        *,
        instance: str | None = None,
        attempt: int | None = None,
    ) -> Noted:
        return Noted(
            kind, self._queue_id, first, end - 1, now, group_id=self._group_id, instance=instance, attempt=attempt
        )


def short_runs(offsets: Sequence[int]) -> list[tuple[int, int]]:
    """Return ranges of consecutive offsets, from the first to below the end, none longer than an event may be."""
    if len(offsets) == 1:
        # So it is mostly, at a low rate.
        return [(offsets[0], offsets[0] + 1)]
    return [
        (start, min(start + RANGE_MAX, end)) for first, end in runs(offsets) for start in range(first, end, RANGE_MAX)
    ]


def _id_of(name: str) -> str:
    """Return the instance's id: its name here has the number of its attachment behind it."""
    return name.rpartition("#")[0] or name
