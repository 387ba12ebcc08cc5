"""The publisher's window: what waits to be sent, what is sent and unanswered, and what to send next.

Pure: no I/O, no clock, no tasks. The driver (`stream`) offers encoded messages, asks `next_frame` what to
write, reports every answer, and calls `rewind` when it has a new stream. What is decided here:

- frames are numbered from 1 under one publisher id; a frame keeps its number and its bytes until it is answered, so
  that whoever stores it can tell a repeat;
- the broker stores only the next number, so one failed frame fails those behind it: nothing more is sent until all
  that is under way has been answered, then sending starts again from the oldest unanswered frame;
- a frame that can never be stored (every broker refuses it alike) leaves a hole that no broker would pass: once all
  before it are answered, the rest goes on under a new publisher id, from 1. Copies of it still under way under the old
  id meet the hole and cannot be stored. Frames given up for any other reason are given up all together, for the same
  reason.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final, Generic

from msgbroker.client.publish.frames import Frame, GivenUp, Mark, Reaction, W
from msgbroker.contract import limits
from msgbroker.contract.errors import FrameForgottenError, SequenceGapError

SMALL_FRAMES_UNANSWERED_MAX: Final = 4
"""How many frames may be unanswered before only a frame worth its cost is sent: the next answer comes soon enough."""
WORTHWHILE_MESSAGES: Final = 100
WORTHWHILE_BYTES: Final = 64 * 1024


@dataclass(slots=True)
class OutboxConfig:
    """How much may be unanswered, and how large frames are."""

    messages_max: int
    bytes_max: int
    frame_bytes: int
    frame_messages: int = limits.FRAME_MESSAGES_MAX
    frames_unanswered_max: int = limits.FRAMES_UNANSWERED_MAX


class Outbox(Generic[W]):
    """All messages of one publisher that are not answered yet, and the frames they are sent in."""

    def __init__(self, config: OutboxConfig, publisher_id: bytes) -> None:
        self.publisher_id = publisher_id
        self.count = 0
        """How many messages are unanswered, sent or not."""
        self.size_bytes = 0
        self._config = config
        self._pending: deque[tuple[bytes, W | None, float]] = deque()
        """The messages that are in no frame yet: encoded, who waits for each, and until when."""
        self._pending_bytes = 0
        self._pending_first = 0
        """The number of the first of these. The others have the next ones, by their places: none is kept for itself."""
        self._marks: set[Mark] = set()
        self._frames: list[Frame[W]] = []
        self._sent = 0  # the first so many frames were sent in this stream
        self._in_flight = 0  # sent in this stream and not answered in any way
        self._is_stalled = False
        self._is_held = False
        self._next_sequence = 1

    @property
    def is_full(self) -> bool:
        """Whether there is no room for another message."""
        return self.count >= self._config.messages_max or self.size_bytes >= self._config.bytes_max

    @property
    def is_quiet(self) -> bool:
        """Whether a frame failed and all others of the stream have been answered: time to rewind."""
        return self._is_stalled and self._in_flight == 0

    @property
    def in_flight(self) -> int:
        """How many frames of this stream wait for an answer."""
        return self._in_flight

    @property
    def oldest_bytes(self) -> int:
        """The size of the oldest unanswered frame; 0 if there is none."""
        return self._frames[0].size_bytes if self._frames else 0

    def offer(self, encoded: bytes, waiter: W | None, expires_at: float) -> bool:
        """Take one encoded message; return whether the sender should look for work."""
        self._pending.append((encoded, waiter, expires_at))
        size = len(encoded)
        self._pending_bytes += size
        self.size_bytes += size
        self.count += 1
        return len(self._pending) in {1, WORTHWHILE_MESSAGES}

    def next_frame(self) -> Frame[W] | None:
        """Return the frame to write now, if any: first what has to be sent again, then what waits."""
        if self._is_stalled or self._is_held:
            return None
        if self._sent == len(self._frames) and not self._seal():
            return None
        frame = self._frames[self._sent]
        self._sent += 1
        self._in_flight += 1
        return frame

    def mark(self) -> Mark:
        """Set a mark behind all messages; `unmark` takes it away."""
        mark = Mark(self._pending_first + len(self._pending))
        self._marks.add(mark)
        return mark

    def has_passed(self, mark: Mark) -> bool:
        """Return whether all messages before *mark* have been answered, or given up."""
        oldest = self._frames[0].first_number if self._frames else self._pending_first
        return oldest >= mark.number

    def unmark(self, mark: Mark) -> None:
        """Forget a mark that nobody waits for any more."""
        self._marks.discard(mark)

    def is_sent(self, waiter: W) -> bool:
        """Return whether the message that *waiter* waits for is in a frame: it may be stored then."""
        return any(frame.holds(waiter) for frame in self._frames)

    def stored(self, sequence: int) -> Frame[W] | None:
        """Take note that a frame is stored and return it; None if it is not ours or was answered before."""
        index = self._find(sequence)
        if index is None:
            return None
        self._in_flight = max(0, self._in_flight - 1)
        return self._remove(index)

    def failed(
        self, sequence: int, reason: str, *, retryable: bool, expected: int | None = None
    ) -> tuple[Reaction, Frame[W] | None]:
        """Take note that a frame was not stored; return what to do, and the frame if it is given up."""
        index = self._find(sequence)
        if index is None:
            return Reaction.IGNORE, None
        self._in_flight = max(0, self._in_flight - 1)
        if reason == FrameForgottenError.reason:
            return Reaction.IGNORE, self._remove(index)
        if reason == SequenceGapError.reason:
            # The broker wants a number that was answered already: it has lost what it told us (a failover that lost the
            # log's end, or the publisher's rows have passed their days). Go on under a new id.
            lost = expected is not None and expected < self._frames[0].sequence
            self._is_stalled = True
            return (Reaction.RESTART if lost else Reaction.WAIT), None
        self._is_stalled = True
        if retryable or index > 0:
            # While a frame before it may still be stored by a copy under way, what is left keeps its id. This one is
            # refused again when its turn comes.
            return Reaction.WAIT, None
        return Reaction.RESTART, self._remove(index)

    def rewind(self) -> None:
        """Send all unanswered frames again, from the oldest, with the same numbers."""
        if self._in_flight:
            for frame in self._frames[: self._sent]:
                frame.is_repeat = True
        self._sent = 0
        self._in_flight = 0
        self._is_stalled = False
        self._is_held = False

    def hold(self) -> None:
        """Send nothing more until the next `rewind`: the broker wants to stop."""
        self._is_held = True

    def restart(self, publisher_id: bytes) -> None:
        """Number what is unanswered from 1 under a new id. The old id must never be used again."""
        self.publisher_id = publisher_id
        for sequence, frame in enumerate(self._frames, start=1):
            frame.sequence = sequence
        self._next_sequence = len(self._frames) + 1
        self.rewind()
        for frame in self._frames:
            frame.is_repeat = False
        # The stream that is still open speaks for the old id: nothing goes out before the next one calls `rewind`.
        self._is_held = True

    def expire(self, now: float) -> GivenUp[W]:
        """Give up waiting for what has expired; what was sent may yet be stored."""
        expired: GivenUp[W] = GivenUp()
        if any(expires_at < now for _, _, expires_at in self._pending):
            self._expire_pending(now, expired)
        for frame in self._frames:
            if frame.first_expiry >= now:
                continue
            late = [expires_at < now for expires_at in frame.expiries]
            frame.is_expired = all(late)
            waiters = zip(frame.waiters, late, strict=True)
            expired.maybe_stored.extend(w for w, is_late in waiters if is_late and w is not None and not w.done())
        return expired

    def _expire_pending(self, now: float, expired: GivenUp[W]) -> None:
        late = [expires_at < now for _, _, expires_at in self._pending]
        for mark in self._marks:
            # Those behind an expired one move up.
            mark.number -= sum(late[: max(0, mark.number - self._pending_first)])
        kept: deque[tuple[bytes, W | None, float]] = deque()
        for encoded, waiter, expires_at in self._pending:
            if expires_at >= now:
                kept.append((encoded, waiter, expires_at))
                continue
            self._pending_bytes -= len(encoded)
            self._forget(1, len(encoded))
            if waiter is not None and not waiter.done():
                expired.never_sent.append(waiter)
        self._pending = kept

    @property
    def is_given_up(self) -> bool:
        """Whether nobody waits for any frame any more: the driver drops them all and restarts."""
        return bool(self._frames) and all(frame.is_expired for frame in self._frames)

    def drop_frames(self) -> None:
        """Drop all frames, answered or not, where nobody waits for them; the driver must then restart."""
        for frame in self._frames:
            self._forget(len(frame.waiters), frame.size_bytes)
        self._frames.clear()
        self.rewind()

    def drop_all(self, *, is_refused: bool = False, before: Mark | None = None) -> GivenUp[W]:
        """Drop everything and return who waited for it; the driver must then restart.

        *is_refused*: the broker has refused the stream, and so what was sent in this one and in no other. *before*: of
        what was never sent only what had been offered when that mark was set.
        """
        dropped: GivenUp[W] = GivenUp()
        for frame in self._frames:
            waiters = dropped.never_sent if is_refused and not frame.is_repeat else dropped.maybe_stored
            waiters.extend(w for w in frame.waiters if w is not None and not w.done())
        self.drop_frames()
        count = len(self._pending) if before is None else max(0, before.number - self._pending_first)
        for _ in range(count):
            encoded, waiter, _ = self._pending.popleft()
            self._pending_bytes -= len(encoded)
            self._forget(1, len(encoded))
            if waiter is not None and not waiter.done():
                dropped.never_sent.append(waiter)
        self._pending_first += count
        return dropped

    def _seal(self) -> bool:
        if not self._pending or not self._worth_sending():
            return False
        pending, config = self._pending, self._config
        first_number, waiting = self._pending_first, len(pending)
        messages: list[bytes] = []
        waiters: list[W | None] = []
        expiries: list[float] = []
        size_bytes = 0
        while pending and len(messages) < config.frame_messages:
            encoded, waiter, expires_at = pending[0]
            if size_bytes + len(encoded) > config.frame_bytes and messages:
                break
            pending.popleft()
            if waiter is not None and waiter.done():  # cancelled while it waited
                first_number += not messages
                self._pending_bytes -= len(encoded)
                self._forget(1, len(encoded))
                continue
            messages.append(encoded)
            waiters.append(waiter)
            expiries.append(expires_at)
            size_bytes += len(encoded)
        self._pending_bytes -= size_bytes
        self._pending_first += waiting - len(pending)
        if not messages:
            return False
        frame = Frame(
            sequence=self._next_sequence,
            messages=messages,
            waiters=waiters,
            size_bytes=size_bytes,
            expiries=expiries,
            first_expiry=min(expiries),
            first_number=first_number,
        )
        self._next_sequence += 1
        self._frames.append(frame)
        return True

    def _worth_sending(self) -> bool:
        unanswered = len(self._frames)
        if unanswered < SMALL_FRAMES_UNANSWERED_MAX:
            return True
        if unanswered >= self._config.frames_unanswered_max:
            return False
        return len(self._pending) >= WORTHWHILE_MESSAGES or self._pending_bytes >= WORTHWHILE_BYTES

    def _find(self, sequence: int) -> int | None:
        for index in range(self._sent):
            if self._frames[index].sequence == sequence:
                return index
        return None

    def _remove(self, index: int) -> Frame[W]:
        frame = self._frames.pop(index)
        self._sent -= 1
        self._forget(len(frame.waiters), frame.size_bytes)
        return frame

    def _forget(self, count: int, size_bytes: int) -> None:
        self.count -= count
        self.size_bytes -= size_bytes
