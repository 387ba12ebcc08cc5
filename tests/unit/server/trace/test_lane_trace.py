"""What is traced of a lane is what happened in it: each end of a hand-out once, of whom it was and as it was."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from msgbroker.engine.lane.config import Handed, LaneConfig
from msgbroker.engine.lane.lane import Lane
from msgbroker.engine.lane.watching import OF_VERDICT
from msgbroker.engine.retry import RetryPolicy
from msgbroker.engine.tracing import ALWAYS_TRACED, DRAWS
from msgbroker.engine.verdicts import Held, Settlement, Verdict
from msgbroker.server.trace.buffer import Noted, TraceBuffer
from msgbroker.server.trace.lane_trace import KIND_OF, LaneTrace
from msgdb.lanes.records import ClaimedLane, DeadLetterMove
from msgdb.trace.records import RANGE_MAX, TraceKind
from tests.support.lane_builders import ALL_BYTES, KEY, FakeMessage

INSTANCES = ("a#1", "b#2")
CONFIG = LaneConfig(ack_timeout_seconds=10.0, retry=RetryPolicy((5.0, 5.0), 3), window_max=12, redeliveries_max=30)


@dataclass(frozen=True, slots=True)
class DrawnMessage(FakeMessage):
    """A message that has a draw."""

    trace_draw: int = 0


class Scene:
    """A lane with its trace, at a rate; every other message is traced at rate 0.5."""

    def __init__(self, rate: float, config: LaneConfig = CONFIG) -> None:
        self.now = 1_000.0
        self.rate = rate
        self.buffer = TraceBuffer(now=lambda: self.now)
        self.trace = LaneTrace(self.buffer, KEY)
        self.lane: Lane[DrawnMessage] = Lane(ClaimedLane(KEY, 1, 0, []), [], config, self.now)
        self.lane.watch(self.trace)
        self.end = 0
        self.written: list[tuple[str, Handed]] = []

    def message(self, offset: int) -> DrawnMessage:
        draw = DRAWS // 4 if offset % 2 else DRAWS - 1
        return DrawnMessage(offset, stress=offset % 7 == 6, trace_draw=draw)

    def feed(self, count: int = 5) -> None:
        count = min(count, self.lane.wants())
        self.lane.feed(self.end, self.end + count, [self.message(self.end + index) for index in range(count)])
        self.end += count

    def take(self, instance: str = "a#1", count: int = 1_000, *, permits: bool = True) -> None:
        due = self.lane.due(self.now, 100)
        self.lane.feed_again([self.message(offset) for offset, _ in due], [])
        handout = self.lane.take(instance, count, ALL_BYTES, self.now, lambda _: permits)
        if handout.count:
            self.trace.handed_out(self.rate, instance.partition("#")[0], handout, self.now)  # type: ignore[arg-type]
            self.written.append((instance, handout.handed))

    def settle(self, instance: str, verdict: Verdict, first: int, end: int, attempt: int = 1, error: str = "") -> None:
        held = Held(KEY.queue_id, 1, attempt, [(first, end)])
        self.lane.settle(instance, Settlement(held, verdict, error=error), self.now)

    def in_flight(self) -> dict[int, tuple[str, int]]:
        state = self.lane._state
        flying = {offset: (f.instance_id, 1) for f in state.flights._flights for offset in f.offsets}
        return flying | {o: (r.instance_id, r.attempt) for o, r in state.again.in_flight.items()}

    def told(self) -> list[Noted]:
        """Return what was noted since this was asked last, but for hand-outs that go on."""
        noted, left_out = self.buffer.take()
        assert left_out is None
        return [each for each in noted if each.kind is not TraceKind.HANDED_OUT]


def each_of(noted: list[Noted]) -> list[tuple[int, TraceKind, str | None, int | None]]:
    """Return what was told of each message by itself."""
    return sorted(
        (offset, each.kind, each.instance, each.attempt)
        for each in noted
        for offset in range(each.first, each.last + 1)
    )


INSTANCE = st.sampled_from(INSTANCES)
RANGES = st.tuples(st.integers(0, 40), st.integers(1, 12))
STEPS = st.one_of(
    st.tuples(st.just("feed"), st.integers(1, 12)),
    st.tuples(st.just("take"), INSTANCE, st.integers(1, 8), st.booleans()),
    st.tuples(st.just("take"), INSTANCE, st.integers(1, 8), st.booleans()),
    st.tuples(st.just("settle"), INSTANCE, st.sampled_from([Verdict.ACK, *Verdict]), RANGES, st.integers(1, 3)),
    st.tuples(st.just("settle"), INSTANCE, st.sampled_from([Verdict.ACK, *Verdict]), RANGES, st.integers(1, 3)),
    st.tuples(st.just("begin"), INSTANCE, RANGES),
    st.tuples(st.just("wait"), st.sampled_from([0.5, 5.0, 11.0])),
    st.tuples(st.just("leave"), INSTANCE, st.booleans()),
    st.tuples(st.just("withdraw"), st.booleans()),
)
KINDS_OF = {
    "wait": {TraceKind.TIMED_OUT},
    "leave": {TraceKind.INSTANCE_GONE},
    "withdraw": {TraceKind.WITHDRAWN, TraceKind.DENIED},
    "take": {TraceKind.DENIED},
}


def carry_out(scene: Scene, step: tuple) -> set[TraceKind]:  # type: ignore[type-arg]
    """Carry a step out, and return how hand-outs may have ended by it."""
    what, *said = step
    lane = scene.lane
    if what == "feed":
        scene.feed(*said)
    elif what == "take":
        instance, count, permits = said
        scene.take(instance, count, permits=permits)
    elif what == "settle":
        instance, verdict, (first, count), attempt = said
        scene.settle(instance, verdict, first, first + count, attempt)
        return {KIND_OF[OF_VERDICT[verdict]]}
    elif what == "begin":
        instance, (first, count) = said
        lane.begin(instance, Held(KEY.queue_id, 1, 1, [(first, first + count)]))
    elif what == "wait":
        scene.now += said[0]
        lane.expire(scene.now)
    elif what == "leave":
        instance, crashed = said
        lane.return_instance(instance, scene.now, counts=crashed, has_crashed=crashed)
    elif scene.written:
        instance, handed = scene.written.pop()
        if said[0]:
            lane.withdraw(instance, handed, scene.now)
        else:
            lane.deny(instance, handed)
    return KINDS_OF.get(what, set())


@given(st.lists(STEPS, max_size=40))
def test_each_end_of_a_hand_out_is_told_once_and_as_it_was(steps: list) -> None:  # type: ignore[type-arg]
    scene = Scene(1.0)
    for step in steps:
        before = scene.in_flight()
        kinds = carry_out(scene, step)
        after = scene.in_flight()
        ended = {offset: who for offset, who in before.items() if after.get(offset) != who}
        told = scene.told()
        # What was denied before it was handed out was never in flight.
        of_flights = [each for each in each_of(told) if each[2] is not None]
        assert [(offset, f"{instance}", attempt) for offset, _, instance, attempt in of_flights] == sorted(
            (offset, name.partition("#")[0], attempt) for offset, (name, attempt) in ended.items()
        )
        assert {kind for _, kind, _, _ in each_of(told)} <= kinds
        assert scene.trace._open.keys() == after.keys()


@given(st.lists(STEPS, max_size=40))
def test_at_another_rate_what_is_chosen_is_told_just_as_at_rate_1_and_of_the_others_what_fails(steps: list) -> None:  # type: ignore[type-arg]
    all_of_it, some, none = Scene(1.0), Scene(0.5), Scene(0.0)
    failed: set[int] = set()
    never_a_failure = {TraceKind.ACKED, TraceKind.RELEASED, TraceKind.WITHDRAWN}
    for step in steps:
        told = []
        for scene in (all_of_it, some, none):
            carry_out(scene, step)
            told.append(each_of(scene.told()))
        everything, chosen, failures = told
        assert [each for each in chosen if each[0] % 2] == [each for each in everything if each[0] % 2]
        assert set(failures) <= set(chosen) <= set(everything)
        certain = {e for e in everything if e[1] not in never_a_failure and e[1] is not TraceKind.INSTANCE_GONE}
        assert certain <= set(failures)
        # Of what never failed nothing that goes well is told.
        assert all(attempt != 1 for _, kind, _, attempt in failures if kind in never_a_failure)
        failed |= {offset for offset, *_ in failures}
        assert {offset for offset, *_ in failures} <= failed


def test_what_ends_at_once_as_a_whole_is_one_event() -> None:
    scene = Scene(1.0, LaneConfig(window_max=5_000))
    scene.feed(2_500)
    scene.take(count=2_500)
    scene.settle("a#1", Verdict.ACK, 0, 2_500)

    assert [(each.kind, each.first, each.count) for each in scene.told()] == [
        (TraceKind.ACKED, 0, RANGE_MAX),
        (TraceKind.ACKED, 1_000, RANGE_MAX),
        (TraceKind.ACKED, 2_000, 500),
    ]


def test_failures_beside_each_other_are_one_event_as_well() -> None:
    scene = Scene(0.0)
    scene.feed(6)
    scene.take()
    scene.settle("a#1", Verdict.RETRY, 0, 6, error="boom")

    (told,) = scene.told()
    assert (told.kind, told.first, told.last, told.detail) == (TraceKind.RETRIED, 0, 5, "boom")


def test_how_long_an_instance_had_a_message_is_told_of_those_that_are_not_chosen_too() -> None:
    scene = Scene(0.0)
    scene.feed(1)
    scene.take()
    scene.now += 3.0
    scene.settle("a#1", Verdict.REJECT, 0, 1)

    (told,) = scene.told()
    assert (told.at, told.handed_at) == (1_003.0, 1_000.0)


def test_what_was_never_written_to_its_instance_is_told_to_come_back() -> None:
    scene = Scene(1.0)
    scene.feed(3)
    scene.take()
    instance, handed = scene.written[0]

    scene.lane.withdraw(instance, handed, scene.now)

    assert each_of(scene.told()) == [(offset, TraceKind.WITHDRAWN, "a", 1) for offset in range(3)]


def test_what_comes_after_a_failure_is_told_at_any_rate() -> None:
    scene = Scene(0.0)
    scene.feed(2)
    scene.take()
    scene.settle("a#1", Verdict.RETRY, 0, 1)
    scene.settle("a#1", Verdict.ACK, 1, 2)
    scene.now += 5.0
    scene.take("b#2")
    scene.settle("b#2", Verdict.ACK, 0, 1, attempt=2)

    assert each_of(scene.told()) == [(0, TraceKind.ACKED, "b", 2), (0, TraceKind.RETRIED, "a", 1)]


def test_of_a_topic_that_is_not_traced_even_what_was_redriven_comes_again_within_the_limit_for_failures() -> None:
    scene = Scene(0.0)
    scene.message = lambda offset: DrawnMessage(offset, trace_draw=ALWAYS_TRACED)  # type: ignore[method-assign]
    scene.buffer = scene.trace._buffer = TraceBuffer(failures_per_second_max=2, now=lambda: scene.now)
    scene.feed(5)
    scene.take()
    scene.settle("a#1", Verdict.RETRY, 0, 5)
    scene.buffer.take()
    scene.now += 6.0

    scene.take()
    scene.settle("a#1", Verdict.ACK, 0, 5, attempt=2)

    noted, left_out = scene.buffer.take()
    assert sum(each.count for each in noted if each.kind is TraceKind.ACKED) == 2
    assert left_out is not None


def test_a_lane_that_is_given_up_tells_of_what_was_still_with_instances() -> None:
    scene = Scene(1.0)
    scene.feed(4)
    scene.take()
    scene.settle("a#1", Verdict.ACK, 0, 2)
    scene.told()

    scene.trace.close()

    assert each_of(scene.told()) == [(2, TraceKind.LANE_GONE, "a", 1), (3, TraceKind.LANE_GONE, "a", 1)]


def test_a_dead_letter_is_told_with_its_reason() -> None:
    scene = Scene(0.0)

    scene.trace.dead_lettered([DeadLetterMove(7, 1, 3, "ATTEMPTS_EXHAUSTED", "boom", had_row=False)])

    (told,) = scene.told()
    assert (told.kind, told.first, told.attempt, told.detail) == (TraceKind.DEAD_LETTERED, 7, 3, "ATTEMPTS_EXHAUSTED")


@pytest.mark.parametrize("has_crashed", [True, False])
def test_an_instance_that_goes_away_without_a_word_has_failed_and_one_that_leaves_has_not(has_crashed: bool) -> None:
    scene = Scene(0.0)
    scene.feed(2)
    scene.take()

    scene.lane.return_instance("a#1", scene.now, counts=has_crashed, has_crashed=has_crashed)

    assert [each.kind for each in scene.told()] == [TraceKind.INSTANCE_GONE] * has_crashed
