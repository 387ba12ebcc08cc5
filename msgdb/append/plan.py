"""Decide what one append transaction stores: which frames are next, and which offset each message gets.

Pure. The driver (`msgdb.append.transaction`) has taken the locks, read the tails *after* that, and carries out what the
plan says: one COPY, one row per publisher. Rules: a publisher's frames are stored without a gap and once; a queue's
offsets go up by one; time never goes back within a queue, nor for a publisher (tails are looked for from the last known
time on). A queue or publisher whose last time is ahead of the clock (which was wrong then) stays at it by itself: the
others of its batch do not go there with it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from msgdb import ids
from msgdb.append.copy_rows import row_head
from msgdb.append.outcome import FrameOutcome, Refused

Buffer: TypeAlias = bytes | memoryview


class Appendable(Protocol):
    """A message on its way into the store. The plan sets its offset."""

    queue_id: int
    queue_offset: int
    row_middle: bytes
    body: Buffer


@dataclass(slots=True, eq=False)
class AppendFrame:
    """Messages that are stored together, under one number of one publisher."""

    publisher_id: bytes
    """The 16 bytes of the publisher id; empty: anonymous, numbered by the appender under its own id."""
    sequence: int
    messages: Sequence[Appendable]
    """Those that were not refused, in order, with their queues chosen."""
    refusals: tuple[Refused, ...] = ()
    is_anonymous: bool = False
    """Whether it came without a publisher: its id and number are the appender's."""
    size_bytes: int = 0
    """About how many bytes are written for it, as far as whoever made it knows."""
    keeps_ids: bool = False
    """Whether its messages are stored once more, under the ids that they had: each has a `message_id`."""

    @property
    def count(self) -> int:
        """How many messages the publisher sent in it, refused ones included."""
        return len(self.messages) + len(self.refusals)

    def refuse(self, problems: Mapping[int, str]) -> None:
        """Take the messages at these places of `messages` out, and record why."""
        refused_indexes = {refusal.index for refusal in self.refusals}
        indexes = [index for index in range(self.count) if index not in refused_indexes]
        added = [
            Refused(indexes[place], "STORE_REFUSED", "INVALID_ARGUMENT", f"the message store refuses it: {problem}")
            for place, problem in problems.items()
        ]
        self.messages = [message for place, message in enumerate(self.messages) if place not in problems]
        self.refusals = tuple(sorted((*self.refusals, *added), key=lambda refusal: refusal.index))


@dataclass(frozen=True, slots=True)
class QueueTail:
    """Where a queue ends, read under its lock."""

    next_offset: int
    stored_at_us: int
    sealed: bool


@dataclass(frozen=True, slots=True)
class PublisherTail:
    """What a publisher stored last, read under its lock."""

    sequence: int
    stored_at_us: int


@dataclass(frozen=True, slots=True)
class Stored:
    """The frame is in this transaction, or was stored before (`duplicate`)."""

    outcome: FrameOutcome
    duplicate: bool = False


@dataclass(frozen=True, slots=True)
class StoredBefore:
    """The frame's number is taken: what became of it must be looked up."""

    last_sequence: int


@dataclass(frozen=True, slots=True)
class Gap:
    """A frame before this one, under the same publisher, is not stored: this one is not either."""

    expected: int


@dataclass(frozen=True, slots=True)
class Held:
    """Another broker holds its queue or its publisher: try again."""

    queue_id: int


FrameResult = Stored | StoredBefore | Gap | Held


@dataclass(slots=True)
class AppendPlan:
    """What to write, and what to answer once it is committed."""

    clock_us: int
    ahead_us: Mapping[int, int] = field(default_factory=dict)
    """The times of queues that are ahead of the clock, by queue."""
    rows: list[Buffer] = field(default_factory=list)
    """The pieces of COPY data, without signature and trailer."""
    results: list[FrameResult] = field(default_factory=list)
    """What each frame is answered, in order."""
    outcomes: dict[bytes, list[FrameOutcome]] = field(default_factory=dict)
    """What became of the frames of this transaction, by publisher."""
    publishers_us: dict[bytes, int] = field(default_factory=dict)
    """The time of each publisher's row."""

    @property
    def times_us(self) -> set[int]:
        """The times of all rows: each needs the partition of its day."""
        return {self.clock_us, *self.ahead_us.values(), *self.publishers_us.values()}

    @property
    def repeats(self) -> bool:
        """Whether a frame was stored by an earlier transaction."""
        return any(isinstance(result, StoredBefore) for result in self.results)


def plan_append(
    frames: Sequence[AppendFrame],
    queue_tails: Mapping[int, QueueTail],
    publisher_tails: Mapping[bytes, PublisherTail],
    clock_us: int,
) -> AppendPlan:
    """Number the messages of all frames that are next in their publisher's sequence."""
    ahead_us = {queue_id: tail.stored_at_us for queue_id, tail in queue_tails.items() if tail.stored_at_us > clock_us}
    next_offsets = {queue_id: tail.next_offset for queue_id, tail in queue_tails.items()}
    last_sequences = {publisher_id: tail.sequence for publisher_id, tail in publisher_tails.items()}
    plan = AppendPlan(clock_us, ahead_us)
    message_number = ids.mint_run(clock_us)
    for frame in frames:
        last = last_sequences.get(frame.publisher_id, 0)
        if frame.sequence <= last:
            plan.results.append(StoredBefore(last))
            continue
        if frame.sequence != last + 1:
            plan.results.append(Gap(last + 1))
            continue
        last_sequences[frame.publisher_id] = frame.sequence
        outcome = _number_frame(frame, plan, next_offsets, message_number)
        message_number += frame.count
        plan.results.append(Stored(outcome))
        plan.outcomes.setdefault(frame.publisher_id, []).append(outcome)
    for publisher_id in plan.outcomes:
        tail = publisher_tails.get(publisher_id)
        plan.publishers_us[publisher_id] = clock_us if tail is None else max(clock_us, tail.stored_at_us)
    return plan


def _number_frame(
    frame: AppendFrame, plan: AppendPlan, next_offsets: dict[int, int], first_number: int
) -> FrameOutcome:
    """Give each message of *frame* its offset and id, and add its row."""
    refused = {refusal.index for refusal in frame.refusals}
    clock_us, ahead_us = plan.clock_us, plan.ahead_us
    queue_ids: list[int] = []
    queue_offsets: list[int] = []
    # The hot loop of storing: one pass, no calls that could be hoisted.
    add_row = plan.rows.append
    keeps_ids = frame.keeps_ids
    number = first_number
    for message in frame.messages:
        while refused and len(queue_ids) in refused:
            queue_ids.append(0)
            queue_offsets.append(0)
            number += 1
        queue_id = message.queue_id
        queue_offset = next_offsets[queue_id]
        next_offsets[queue_id] = queue_offset + 1
        message.queue_offset = queue_offset
        queue_ids.append(queue_id)
        queue_offsets.append(queue_offset)
        stored_at_us = ahead_us.get(queue_id, clock_us) if ahead_us else clock_us
        message_id: bytes = number.to_bytes(16, "big") if not keeps_ids else message.message_id  # type: ignore[attr-defined]
        add_row(row_head(queue_id, queue_offset, stored_at_us, message_id))
        add_row(message.row_middle)
        add_row(message.body)
        number += 1
    trailing = frame.count - len(queue_ids)
    queue_ids.extend([0] * trailing)
    queue_offsets.extend([0] * trailing)
    ahead_here = (
        {queue_id: ahead_us[queue_id] for queue_id in set(queue_ids) if queue_id in ahead_us} if ahead_us else {}
    )
    return FrameOutcome(
        frame.sequence,
        first_message_id=ids.to_bytes(first_number),
        stored_at_us=clock_us,
        queue_ids=queue_ids,
        queue_offsets=queue_offsets,
        refusals=frame.refusals,
        ahead_us=ahead_here,
    )
