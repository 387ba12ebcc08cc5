"""The publisher's window against a model of what brokers promise, in random histories."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from msgbroker.client.publish.frames import Frame, Mark, Reaction
from msgbroker.client.publish.outbox import (
    SMALL_FRAMES_UNANSWERED_MAX,
    WORTHWHILE_MESSAGES,
    Outbox,
    OutboxConfig,
)

pytestmark = pytest.mark.slow

Messages: TypeAlias = tuple[bytes, ...]


class Ticket:
    """A waiter."""

    def __init__(self) -> None:
        self.is_done = False

    def done(self) -> bool:
        """Whether it waits no longer."""
        return self.is_done


def make_outbox(**changes: int) -> Outbox[Ticket]:
    config = OutboxConfig(**{"messages_max": 1_000, "bytes_max": 10_000, "frame_bytes": 100, **changes})
    return Outbox(config, b"id-0")


def offer(outbox: Outbox[Ticket], *bodies: bytes, now: float = 0.0) -> list[Ticket]:
    tickets = [Ticket() for _ in bodies]
    for body, ticket in zip(bodies, tickets, strict=True):
        outbox.offer(body, ticket, now)
    return tickets


def next_frame(outbox: Outbox[Ticket]) -> Frame[Ticket]:
    frame = outbox.next_frame()
    assert frame is not None
    return frame


def test_what_waits_goes_in_one_frame_up_to_the_bounds() -> None:
    outbox = make_outbox(frame_messages=3)
    offer(outbox, b"a", b"b", b"c", b"d")

    assert next_frame(outbox).messages == [b"a", b"b", b"c"]
    assert next_frame(outbox).messages == [b"d"]
    assert outbox.next_frame() is None


def test_a_message_larger_than_a_frame_is_alone_in_one() -> None:
    outbox = make_outbox()
    offer(outbox, b"a", b"b" * 200, b"c")

    assert [next_frame(outbox).messages for _ in range(3)] == [[b"a"], [b"b" * 200], [b"c"]]


def test_only_a_frame_worth_its_cost_joins_several_unanswered_ones() -> None:
    outbox = make_outbox()
    for _ in range(SMALL_FRAMES_UNANSWERED_MAX):
        offer(outbox, b"x")
        next_frame(outbox)
    offer(outbox, b"x")
    assert outbox.next_frame() is None

    offer(outbox, *[b"x"] * WORTHWHILE_MESSAGES)
    assert len(next_frame(outbox).waiters) == 100


def test_no_more_than_so_many_frames_are_unanswered() -> None:
    outbox = make_outbox(frames_unanswered_max=16, frame_messages=100)
    offer(outbox, *[b""] * 1_000)
    outbox = make_outbox(frames_unanswered_max=5, frame_messages=100)
    offer(outbox, *[b""] * 1_000)
    for _ in range(5):
        next_frame(outbox)

    assert outbox.next_frame() is None
    outbox.stored(1)
    assert next_frame(outbox).sequence == 6


def test_a_cancelled_message_is_left_out_and_makes_room() -> None:
    outbox = make_outbox()
    tickets = offer(outbox, b"a", b"b")
    tickets[0].is_done = True

    assert next_frame(outbox).messages == [b"b"]
    assert outbox.count == 1


def test_after_a_failure_nothing_is_sent_until_the_rest_is_answered() -> None:
    outbox = make_outbox(frame_messages=1)
    offer(outbox, b"a", b"b", b"c")
    next_frame(outbox), next_frame(outbox)

    assert outbox.failed(1, "STORE_UNAVAILABLE", retryable=True) == (Reaction.WAIT, None)
    assert outbox.next_frame() is None
    assert outbox.failed(2, "SEQUENCE_GAP", retryable=True, expected=1) == (Reaction.WAIT, None)
    assert outbox.is_quiet
    outbox.rewind()

    assert [next_frame(outbox).sequence for _ in range(3)] == [1, 2, 3]


def test_a_frame_stored_out_of_turn_by_an_old_stream_does_not_confuse_it() -> None:
    outbox = make_outbox(frame_messages=1)
    offer(outbox, b"a", b"b")
    next_frame(outbox), next_frame(outbox)

    outbox.failed(1, "QUEUE_HELD", retryable=True)
    stored = outbox.stored(2)

    assert stored is not None
    assert stored.messages == [b"b"]
    outbox.rewind()
    assert next_frame(outbox).sequence == 1


def test_a_frame_that_can_never_be_stored_is_given_up_when_all_before_it_are_answered() -> None:
    outbox = make_outbox(frame_messages=1)
    offer(outbox, b"a", b"b", b"c")
    next_frame(outbox), next_frame(outbox)

    # An old stream's copy of the first may be stored at any moment: under a new id it would be stored again.
    assert outbox.failed(1, "STORE_UNAVAILABLE", retryable=True) == (Reaction.WAIT, None)
    assert outbox.failed(2, "INVALID_FIELD", retryable=False) == (Reaction.WAIT, None)
    assert outbox.is_quiet
    outbox.rewind()
    assert [next_frame(outbox).sequence for _ in range(2)] == [1, 2]
    assert outbox.stored(1) is not None

    reaction, given_up = outbox.failed(2, "INVALID_FIELD", retryable=False)
    assert (reaction, given_up and given_up.messages) == (Reaction.RESTART, [b"b"])


def test_a_broker_that_wants_an_older_number_than_there_is_makes_it_start_again() -> None:
    outbox = make_outbox(frame_messages=1)
    offer(outbox, b"a", b"b")
    next_frame(outbox)
    outbox.stored(1)
    next_frame(outbox)

    assert outbox.failed(2, "SEQUENCE_GAP", retryable=True, expected=1) == (Reaction.RESTART, None)
    outbox.restart(b"id-1")
    assert outbox.next_frame() is None, "the stream that is open speaks for the old id"
    outbox.rewind()
    assert (outbox.publisher_id, next_frame(outbox).sequence) == (b"id-1", 1)


def test_a_frame_no_longer_remembered_was_stored_and_is_given_up() -> None:
    outbox = make_outbox(frame_messages=1)
    offer(outbox, b"a")
    next_frame(outbox)

    reaction, frame = outbox.failed(1, "FRAME_FORGOTTEN", retryable=False)

    assert reaction is Reaction.IGNORE
    assert frame is not None
    assert outbox.count == 0


def test_what_waited_too_long_expires_sent_or_not() -> None:
    outbox = make_outbox(frame_messages=1)
    sent = offer(outbox, b"a", now=1.0)
    next_frame(outbox)
    waiting = offer(outbox, b"b", now=2.0)
    young = offer(outbox, b"c", now=5.0)

    expired = outbox.expire(3.0)

    assert (expired.maybe_stored, expired.never_sent) == (sent, waiting)
    assert outbox.is_given_up
    outbox.drop_frames()
    assert outbox.count == len(young)


def unanswered(outbox: Outbox[Ticket]) -> set[bytes]:
    """The bodies it holds."""
    return {body for frame in outbox._frames for body in frame.messages} | {body for body, _, _ in outbox._pending}


STEPS = ["offer", "offer", "send", "store", "expire", "cancel", "mark", "drop"]


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_a_mark_is_passed_once_all_before_it_are_answered_or_given_up_and_no_later(data: st.DataObject) -> None:
    outbox = make_outbox(frame_messages=3)
    tickets: list[Ticket] = []
    marks: list[tuple[Mark, set[bytes]]] = []
    for step in data.draw(st.lists(st.sampled_from(STEPS), max_size=50)):
        number = data.draw(st.integers(0, 9))
        if step == "offer":
            tickets += offer(outbox, b"%d" % len(tickets), now=number)
        elif step == "send":
            outbox.next_frame()
        elif step == "store":
            # Those of an old stream are stored out of turn.
            outbox.stored(number)
        elif step == "expire":
            outbox.expire(number)
        elif step == "cancel" and tickets:
            tickets[number % len(tickets)].is_done = True
        elif step == "mark":
            marks.append((outbox.mark(), unanswered(outbox)))
        elif step == "drop" and number == 0:
            outbox.drop_all()
        for mark, before in marks:
            assert outbox.has_passed(mark) == (not before & unanswered(outbox))


@dataclass
class ModelBroker:
    """What brokers promise: the next number of an id is stored, a repeat is answered as it was, the rest fails."""

    last: dict[bytes, int] = field(default_factory=dict)
    log: list[bytes] = field(default_factory=list)
    impossible: set[Messages] = field(default_factory=set)
    """Frames that no broker will ever store: what can never succeed is refused by all alike."""

    def store(self, publisher_id: bytes, sequence: int, messages: Messages) -> int | None:
        """Store a frame and return None, or the number expected instead."""
        last = self.last.get(publisher_id, 0)
        if sequence == last + 1 and messages not in self.impossible:
            self.last[publisher_id] = sequence
            self.log.extend(messages)
            return None
        return None if sequence <= last else last + 1


class OutboxMachine(RuleBasedStateMachine):
    """Streams that break, answers that are lost, outages, old streams whose frames arrive late."""

    def __init__(self) -> None:
        super().__init__()
        self.outbox = make_outbox(frame_messages=4, frames_unanswered_max=6)
        self.broker = ModelBroker()
        self.under_way: list[tuple[bytes, int, Messages]] = []
        self.late: list[tuple[bytes, int, Messages]] = []
        self.tickets: dict[bytes, Ticket] = {}
        self.given_up: set[bytes] = set()
        self.ids = 0

    @rule(count=st.integers(1, 9))
    def publish(self, count: int) -> None:
        for _ in range(count):
            body = str(len(self.tickets)).encode()
            ticket = Ticket()
            self.tickets[body] = ticket
            self.outbox.offer(body, ticket, 0.0)

    @rule()
    def send(self) -> None:
        frame = self.outbox.next_frame()
        if frame is not None:
            self.under_way.append((self.outbox.publisher_id, frame.sequence, tuple(frame.messages)))

    @precondition(lambda self: self.under_way)
    @rule()
    def answer(self) -> None:
        publisher_id, sequence, messages = self.under_way.pop(0)
        expected = self.broker.store(publisher_id, sequence, messages)
        if expected is None:
            self._resolve(self.outbox.stored(sequence))
        else:
            reaction, _ = self.outbox.failed(sequence, "SEQUENCE_GAP", retryable=True, expected=expected)
            self._react(reaction)
        self._rewind_if_quiet()

    @precondition(lambda self: self.under_way)
    @rule(retryable=st.booleans())
    def fail(self, retryable: bool) -> None:
        publisher_id, sequence, _messages = self.under_way.pop(0)
        if sequence <= self.broker.last.get(publisher_id, 0):
            # It is stored already: a broker says so.
            self._resolve(self.outbox.stored(sequence))
        else:
            reaction, frame = self.outbox.failed(sequence, "SOME_REASON", retryable=retryable)
            if frame is not None:
                self.broker.impossible.add(tuple(frame.messages))
                self.given_up.update(frame.messages)
            self._react(reaction)
        self._rewind_if_quiet()

    @rule()
    def break_stream(self) -> None:
        self.late += self.under_way
        self.under_way.clear()
        self.outbox.rewind()

    @precondition(lambda self: self.late)
    @rule()
    def arrive_late(self) -> None:
        self.broker.store(*self.late.pop(0))

    def _resolve(self, frame: Frame[Ticket] | None) -> None:
        for ticket in frame.waiters if frame else ():
            assert ticket is not None
            assert not ticket.is_done, "answered twice"
            ticket.is_done = True

    def _react(self, reaction: Reaction) -> None:
        if reaction is Reaction.RESTART:
            self.ids += 1
            self.outbox.restart(b"id-%d" % self.ids)
            self.break_stream()

    def _rewind_if_quiet(self) -> None:
        if self.outbox.is_quiet:
            assert not self.under_way
            self.outbox.rewind()

    @invariant()
    def nothing_is_stored_twice(self) -> None:
        assert len(self.broker.log) == len(set(self.broker.log))

    @invariant()
    def what_is_stored_keeps_the_order_of_publishing(self) -> None:
        order = [int(body) for body in self.broker.log]
        assert order == sorted(order)

    @invariant()
    def what_is_answered_is_stored(self) -> None:
        stored = set(self.broker.log)
        assert all(body in stored for body, ticket in self.tickets.items() if ticket.is_done)

    def teardown(self) -> None:
        """In good weather everything that was not given up is stored and answered."""
        self.break_stream()
        for _ in range(10 * len(self.tickets) + 10):
            self.send()
            if self.under_way:
                self.answer()
        waiting = {body for body, ticket in self.tickets.items() if not ticket.is_done}
        assert waiting == self.given_up
        assert (self.outbox.count, self.outbox.size_bytes) == (0, 0)
        self.nothing_is_stored_twice()
        self.what_is_stored_keeps_the_order_of_publishing()


OutboxMachine.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestOutboxHistories = OutboxMachine.TestCase
