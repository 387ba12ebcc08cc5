"""Frames that wait for their transaction, and how many of them make one."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from msgbroker.server.publish.byte_budget import Hold
from msgdb.append.plan import AppendFrame, FrameResult


@dataclass(slots=True, eq=False)
class PendingFrame:
    """A frame on its way through the committer."""

    frame: AppendFrame
    hold: Hold
    """Of the bytes that it costs in memory, until it is answered."""
    answer: asyncio.Future[FrameResult]
    held_since: float = 0.0
    is_alone: bool = False
    """Whether it is stored by itself, to show whether it was the cause: it was in a batch that failed for an unknown
    reason."""


@dataclass(frozen=True, slots=True)
class BatchBounds:
    """How much one transaction takes. A single larger frame is a batch of its own."""

    messages_max: int = 4_000
    bytes_max: int = 4 * 1024 * 1024
    """How many bytes on the wire one transaction takes."""
    publishers_max: int = 500
    """How many publishers one transaction takes: each takes a lock, and PostgreSQL's lock table is shared by all
    sessions."""
    queues_max: int = 500
    """Each takes a lock like a publisher. They are chosen once the batch is taken: what is too much is put back."""


class BatchQueues:
    """The queues of a batch that is put together: counted where there may be too many of them, which is seldom."""

    def __init__(self, queues_max: int) -> None:
        self._queues_max = queues_max
        self._queue_ids: set[int] = set()
        self._uncounted: list[AppendFrame] = []

    def have_room(self, frame: AppendFrame, at_most: int) -> bool:
        """Add the queues of *frame*, and return whether there is room for them: they may be *at_most* so many now."""
        self._uncounted.append(frame)
        if at_most <= self._queues_max:
            return True
        for uncounted in self._uncounted:
            self._queue_ids.update(message.queue_id for message in uncounted.messages)
        self._uncounted.clear()
        return len(self._queue_ids) <= self._queues_max


class WaitingFrames:
    """A queue of frames, in the order in which they are stored."""

    def __init__(self, bounds: BatchBounds) -> None:
        self._bounds = bounds
        self._frames: deque[PendingFrame] = deque()
        self._messages = 0
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._frames)

    @property
    def make_full_batch(self) -> bool:
        """Whether a batch taken now would not be larger if it were taken later."""
        return self._messages >= self._bounds.messages_max or self._bytes >= self._bounds.bytes_max

    def add(self, pending: PendingFrame) -> None:
        """Add a frame behind the others."""
        self._frames.append(pending)
        self._count(pending, 1)

    def put_back(self, frames: Sequence[PendingFrame]) -> None:
        """Put *frames*, which were taken, before the others again."""
        self._frames.extendleft(reversed(frames))
        for pending in frames:
            self._count(pending, 1)

    def take_batch(self) -> list[PendingFrame]:
        """Take the frames of the next transaction."""
        bounds = self._bounds
        batch: list[PendingFrame] = []
        messages = batch_bytes = 0
        publishers: set[bytes] = set()
        while self._frames:
            pending = self._frames[0]
            if batch and (pending.is_alone or batch[0].is_alone):
                break
            messages += len(pending.frame.messages)
            batch_bytes += pending.frame.size_bytes
            publishers.add(pending.frame.publisher_id)
            if batch and (
                messages > bounds.messages_max
                or batch_bytes > bounds.bytes_max
                or len(publishers) > bounds.publishers_max
            ):
                break
            batch.append(self._frames.popleft())
            self._count(pending, -1)
        return batch

    def _count(self, pending: PendingFrame, sign: int) -> None:
        self._messages += sign * len(pending.frame.messages)
        self._bytes += sign * pending.frame.size_bytes
