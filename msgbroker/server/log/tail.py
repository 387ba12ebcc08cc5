"""The newest messages of this broker's own commits, in a bounded number of bytes: of each queue one run without gaps.

Others may write to the same queues in between. A commit that does not continue its queue's run begins a new one, and
the former is forgotten then, at the same price however many commits are remembered: with two brokers that take turns on
a queue it happens at every commit.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

from msgbroker.server.log.message import LogMessage

_FORGOTTEN_SEGMENTS_MIN: Final = 1_000


class _Run:
    """Consecutive messages of one queue, from commits that followed each other."""

    __slots__ = ("first", "is_forgotten", "messages", "segments", "size_bytes")

    def __init__(self, first: int) -> None:
        self.first = first
        self.messages: list[LogMessage] = []
        self.size_bytes = 0
        self.segments = 0
        """How many commits the run consists of."""
        self.is_forgotten = False

    @property
    def end(self) -> int:
        return self.first + len(self.messages)


class LogTail:
    """The runs of all queues, and the order in which their commits came: the oldest commit goes first."""

    def __init__(self, bytes_max: int) -> None:
        self.size_bytes = 0
        self._bytes_max = bytes_max
        self._runs: dict[int, _Run] = {}
        self._segments: deque[tuple[_Run, int, int]] = deque()
        """Each commit's run, end and bytes, the oldest first; those of forgotten runs are left in place for a while."""
        self._forgotten_segments = 0

    def end_of(self, queue_id: int) -> int:
        """Return the offset behind the newest message of the queue that is here; 0 where none is."""
        run = self._runs.get(queue_id)
        return run.end if run is not None else 0

    def add(self, queue_id: int, messages: list[LogMessage]) -> None:
        """Add what was just committed, in the order of the offsets; the oldest goes where it is too much."""
        first = messages[0].queue_offset
        run = self._runs.get(queue_id)
        if run is not None and run.end == first and run.messages:
            run.messages += messages
        else:
            self.forget_queue(queue_id)
            run = self._runs[queue_id] = _Run(first)
            # A list of its own: the run is cut, and the committer's is not the tail's to cut.
            run.messages = messages[:]
        size_bytes = sum([message.held_bytes for message in messages])
        run.size_bytes += size_bytes
        run.segments += 1
        self.size_bytes += size_bytes
        self._segments.append((run, run.end, size_bytes))
        while self.size_bytes > self._bytes_max:
            self._drop_oldest()

    def find(self, queue_id: int, offset: int, limit: int) -> Sequence[LogMessage] | None:
        """Return messages from *offset* on, *limit* at most; None where the first of them is not here."""
        run = self._runs.get(queue_id)
        if run is None:
            return None
        index = offset - run.first
        return run.messages[index : index + limit] if 0 <= index < len(run.messages) else None

    def forget_queue(self, queue_id: int) -> None:
        """Let go of a queue's messages."""
        run = self._runs.pop(queue_id, None)
        if run is None:
            return
        self.size_bytes -= run.size_bytes
        run.is_forgotten = True
        run.messages = []
        self._forgotten_segments += run.segments
        if self._forgotten_segments > max(_FORGOTTEN_SEGMENTS_MIN, len(self._segments) // 2):
            # Seldom enough that each commit pays for its own removal.
            self._segments = deque(segment for segment in self._segments if not segment[0].is_forgotten)
            self._forgotten_segments = 0

    def forget(self) -> None:
        """Let go of the messages of all queues."""
        self._runs.clear()
        self._segments.clear()
        self.size_bytes = self._forgotten_segments = 0

    def _drop_oldest(self) -> None:
        run, end, size_bytes = self._segments.popleft()
        if run.is_forgotten:
            self._forgotten_segments -= 1
            return
        run.segments -= 1
        run.size_bytes -= size_bytes
        self.size_bytes -= size_bytes
        del run.messages[: end - run.first]
        run.first = end
