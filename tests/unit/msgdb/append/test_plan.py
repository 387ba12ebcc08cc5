"""Committer order: whatever publishers, networks and brokers do, frames are stored once, in order, without a gap.

Random histories against a plain model of the store: publishers that send frames through several brokers, frames and
answers that are lost, commits that fail, brokers that crash, queues that are sealed, clocks that jump.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from msgdb.append.copy_rows import POSTGRES_EPOCH_US
from msgdb.append.outcome import FrameOutcome, Refused, decode, encode
from msgdb.append.plan import (
    Appendable,
    AppendFrame,
    Buffer,
    FrameResult,
    Gap,
    PublisherTail,
    QueueTail,
    Stored,
    StoredBefore,
    plan_append,
)

pytestmark = pytest.mark.slow

_HEAD = struct.Struct(">hiqiqiqi16s")
_UNANSWERED_MAX = 16
_PUBLISHERS = 2
_BROKERS = 2


@dataclass(slots=True)
class Said:
    """A message of a publisher."""

    body: Buffer
    """Its name: that is all the plan has to do with a row."""
    row_middle: bytes = b""
    queue_id: int = 0
    queue_offset: int = -1


@dataclass(slots=True)
class Publisher:
    """Numbers its frames, and keeps them until they are answered."""

    publisher_id: bytes
    sequence: int = 0
    unanswered: dict[int, AppendFrame] = field(default_factory=dict)
    answers: dict[int, FrameOutcome] = field(default_factory=dict)


@dataclass(slots=True)
class Row:
    """A stored message."""

    name: str
    stored_at_us: int
    message_id: bytes


@dataclass(slots=True)
class Store:
    """What is committed."""

    queues: dict[int, list[Row]] = field(default_factory=lambda: {1: [], 2: []})
    sealed: set[int] = field(default_factory=set)
    frames: dict[bytes, list[tuple[PublisherTail, bytes]]] = field(default_factory=dict)
    """By publisher: the last sequence and the time of each commit, and the outcomes of its frames."""

    def queue_tail(self, queue_id: int) -> QueueTail:
        """Return where a queue ends."""
        rows = self.queues[queue_id]
        return QueueTail(len(rows), rows[-1].stored_at_us if rows else 0, queue_id in self.sealed)

    def publisher_tail(self, publisher_id: bytes) -> PublisherTail:
        """Return the publisher's last sequence, and its time."""
        commits = self.frames.get(publisher_id)
        return commits[-1][0] if commits else PublisherTail(0, 0)

    def look_up(self, frame: AppendFrame) -> FrameOutcome:
        """Return what became of a frame that was stored before."""
        packed = next(packed for last, packed in self.frames[frame.publisher_id] if last.sequence >= frame.sequence)
        (outcome,) = [outcome for outcome in decode(packed) if outcome.sequence == frame.sequence]
        return outcome


class CommitterOrder(RuleBasedStateMachine):
    """See the module."""

    def __init__(self) -> None:
        super().__init__()
        self.store = Store()
        self.publishers = [Publisher(bytes([number]) * 16) for number in range(1, _PUBLISHERS + 1)]
        self.brokers: list[list[AppendFrame]] = [[] for _ in range(_BROKERS)]
        self.clock_us = 1_700_000_000_000_000

    # --- publishers -------------------------------------------------------------------------------------------------

    @rule(
        who=st.integers(0, _PUBLISHERS - 1),
        broker=st.integers(0, _BROKERS - 1),
        shape=st.lists(st.booleans(), max_size=4),
    )
    def publish(self, who: int, broker: int, shape: list[bool]) -> None:
        """Send the next frame; False in *shape* is a message that the edge refuses."""
        publisher = self.publishers[who]
        if len(publisher.unanswered) >= _UNANSWERED_MAX:
            return
        publisher.sequence += 1
        frame = _frame(publisher, shape)
        publisher.unanswered[publisher.sequence] = frame
        self.brokers[broker].append(_copy(frame))

    @rule(who=st.integers(0, _PUBLISHERS - 1), broker=st.integers(0, _BROKERS - 1))
    def resend(self, who: int, broker: int) -> None:
        """Send all that is unanswered again, while it may still be under way elsewhere."""
        self.brokers[broker] += [_copy(frame) for frame in self.publishers[who].unanswered.values()]

    # --- what goes wrong --------------------------------------------------------------------------------------------

    @rule(broker=st.integers(0, _BROKERS - 1), place=st.integers(0, 10))
    def lose_a_frame(self, broker: int, place: int) -> None:
        """A frame does not arrive, those behind it do."""
        if place < len(self.brokers[broker]):
            del self.brokers[broker][place]

    @rule(broker=st.integers(0, _BROKERS - 1))
    def crash(self, broker: int) -> None:
        """A broker forgets all that waits."""
        self.brokers[broker].clear()

    @rule(jump_us=st.integers(-10_000_000, 10_000_000))
    def clock_jumps(self, jump_us: int) -> None:
        """The database's clock is set, or another server takes over."""
        self.clock_us += jump_us

    @precondition(lambda self: len(self.store.queues) < 8)
    @rule()
    def change_the_layout(self) -> None:
        """Seal all queues, and open others."""
        self.store.sealed |= self.store.queues.keys()
        first = len(self.store.queues) + 1
        self.store.queues |= {first: [], first + 1: []}

    # --- committing -------------------------------------------------------------------------------------------------

    @rule(
        broker=st.integers(0, _BROKERS - 1),
        count=st.integers(1, 8),
        fate=st.sampled_from(["committed", "committed", "failed", "answer lost"]),
    )
    def commit(self, broker: int, count: int, fate: str) -> None:
        """A broker's next transaction."""
        batch, self.brokers[broker] = self.brokers[broker][:count], self.brokers[broker][count:]
        self.clock_us += 1_000
        results = self._transaction(batch, is_committed=fate != "failed")
        if fate == "committed":
            for frame, result in zip(batch, results, strict=True):
                self._answer(frame, result)

    def _transaction(self, batch: Sequence[AppendFrame], *, is_committed: bool) -> list[FrameResult]:
        store = self.store
        open_queues = sorted(store.queues.keys() - store.sealed)
        for frame in batch:
            for message in frame.messages:
                message.queue_id = open_queues[len(message.body) % len(open_queues)]
        tails = {m.queue_id: store.queue_tail(m.queue_id) for frame in batch for m in frame.messages}
        last = {frame.publisher_id: store.publisher_tail(frame.publisher_id) for frame in batch}
        plan = plan_append(batch, tails, last, self.clock_us)
        if is_committed:
            for head, _, body in zip(plan.rows[::3], plan.rows[1::3], plan.rows[2::3], strict=True):
                self._store_row(bytes(head), bytes(body))
            for publisher_id, outcomes in plan.outcomes.items():
                # Numbers go up by one, and time does not go back: a later commit is found by looking from an earlier.
                sequences = [outcome.sequence for outcome in outcomes]
                assert sequences == list(range(last[publisher_id].sequence + 1, sequences[-1] + 1))
                assert plan.publishers_us[publisher_id] >= last[publisher_id].stored_at_us
                tail = PublisherTail(sequences[-1], plan.publishers_us[publisher_id])
                store.frames.setdefault(publisher_id, []).append((tail, encode(outcomes)))
        return plan.results

    def _store_row(self, head: bytes, body: bytes) -> None:
        _, _, queue_id, _, queue_offset, _, stored_at, _, message_id = _HEAD.unpack(head)
        rows = self.store.queues[queue_id]
        stored_at_us = stored_at + POSTGRES_EPOCH_US
        # The promises of a queue: no gap, and time does not go back.
        assert queue_offset == len(rows)
        assert not rows or stored_at_us >= rows[-1].stored_at_us
        # And it is the clock's, unless this very queue is ahead of it.
        assert stored_at_us == max(self.clock_us, rows[-1].stored_at_us if rows else 0)
        assert queue_id not in self.store.sealed
        rows.append(Row(body.decode(), stored_at_us, message_id))

    def _answer(self, frame: AppendFrame, result: FrameResult) -> None:
        publisher = next(p for p in self.publishers if p.publisher_id == frame.publisher_id)
        if isinstance(result, Gap):
            # It tells the publisher to send again from a frame that it still has.
            assert min(publisher.unanswered) <= result.expected < frame.sequence
            return
        outcome = self.store.look_up(frame) if isinstance(result, StoredBefore) else result.outcome  # type: ignore[union-attr]
        assert isinstance(result, Stored | StoredBefore)
        # However often it is sent, it is answered as it was.
        assert publisher.answers.setdefault(frame.sequence, outcome) == outcome
        publisher.unanswered.pop(frame.sequence, None)

    # --- what always holds ------------------------------------------------------------------------------------------

    @invariant()
    def every_message_is_stored_once_under_an_id_of_its_own(self) -> None:
        """No name twice, no id twice."""
        rows = [row for queue in self.store.queues.values() for row in queue]
        assert len({row.name for row in rows}) == len({row.message_id for row in rows}) == len(rows)

    @invariant()
    def an_answer_says_where_the_messages_are(self) -> None:
        """What was acknowledged is stored, in its place, under its id; what was refused is not."""
        for publisher in self.publishers:
            for sequence, outcome in publisher.answers.items():
                for index, (queue_id, offset) in enumerate(zip(outcome.queue_ids, outcome.queue_offsets, strict=True)):
                    if not queue_id:
                        assert index in {refused.index for refused in outcome.refusals}
                        continue
                    row = self.store.queues[queue_id][offset]
                    assert row.name == _name(publisher, sequence, index)
                    assert row.stored_at_us == outcome.stored_at_us_in(queue_id)
                    assert int.from_bytes(row.message_id, "big") == index + int.from_bytes(
                        outcome.first_message_id, "big"
                    )

    @invariant()
    def frames_of_a_publisher_are_stored_in_order(self) -> None:
        """In each queue, and without one of them missing below another."""
        for rows in self.store.queues.values():
            for publisher in self.publishers:
                own = [_number(row.name) for row in rows if row.name.startswith(f"{publisher.publisher_id[0]}:")]
                assert own == sorted(own)

    def teardown(self) -> None:
        """In the end every publisher gets its answers, through whichever broker."""
        for publisher in self.publishers:
            self.brokers = [[_copy(frame) for frame in publisher.unanswered.values()]]
            self.commit(0, _UNANSWERED_MAX, "committed")
            assert not publisher.unanswered
            assert sorted(publisher.answers) == list(range(1, publisher.sequence + 1))
        self.every_message_is_stored_once_under_an_id_of_its_own()
        self.an_answer_says_where_the_messages_are()
        self.frames_of_a_publisher_are_stored_in_order()


def _name(publisher: Publisher, sequence: int, index: int) -> str:
    return f"{publisher.publisher_id[0]}:{sequence}:{index}"


def _number(name: str) -> tuple[int, int]:
    _, sequence, index = name.split(":")
    return int(sequence), int(index)


def _frame(publisher: Publisher, shape: list[bool]) -> AppendFrame:
    sequence = publisher.sequence
    messages: list[Appendable] = [
        Said(_name(publisher, sequence, index).encode()) for index, is_good in enumerate(shape) if is_good
    ]
    refusals = tuple(Refused(index, "R", "S", "m", {}) for index, is_good in enumerate(shape) if not is_good)
    return AppendFrame(publisher.publisher_id, sequence, messages, refusals)


def _copy(frame: AppendFrame) -> AppendFrame:
    messages: list[Appendable] = [Said(message.body) for message in frame.messages]
    return AppendFrame(frame.publisher_id, frame.sequence, messages, frame.refusals)


TestCommitterOrder = pytest.mark.timeout(60)(CommitterOrder.TestCase)
TestCommitterOrder.settings = settings(max_examples=150, stateful_step_count=50, deadline=None)


def test_messages_refused_by_the_database_make_room_for_their_neighbours() -> None:
    messages: list[Appendable] = [Said(b"%d" % place, queue_id=1) for place in range(4)]
    frame = AppendFrame(b"p" * 16, 1, messages, (Refused(2, "R", "S", "m"),))
    frame.refuse({1: "too bad", 3: "no better"})
    plan = plan_append([frame], {1: QueueTail(7, 0, sealed=False)}, {}, 1)

    (result,) = plan.results
    assert isinstance(result, Stored)
    # Of five messages sent, the edge refused the third, and the database the second and the fifth.
    assert list(result.outcome.queue_offsets) == [7, 0, 0, 8, 0]
    assert [(refused.index, refused.reason) for refused in result.outcome.refusals] == [
        (1, "STORE_REFUSED"),
        (2, "R"),
        (4, "STORE_REFUSED"),
    ]


def test_a_queue_that_is_ahead_of_the_clock_takes_no_other_along() -> None:
    messages: list[Appendable] = [Said(b"%d" % place, queue_id=1 + place % 2) for place in range(4)]
    ahead = {1: QueueTail(7, 5_000, sealed=False), 2: QueueTail(0, 900, sealed=False)}
    plan = plan_append([AppendFrame(b"p" * 16, 1, messages)], ahead, {}, 1_000)

    (result,) = plan.results
    assert isinstance(result, Stored)
    times = [_HEAD.unpack(bytes(head))[6] + POSTGRES_EPOCH_US for head in plan.rows[::3]]
    assert times == [5_000, 1_000, 5_000, 1_000]
    assert (result.outcome.stored_at_us, result.outcome.ahead_us) == (1_000, {1: 5_000})
    assert plan.publishers_us == {b"p" * 16: 1_000}
    assert plan.times_us == {1_000, 5_000}
