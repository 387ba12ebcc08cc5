"""Which messages a group gets."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from confdb.routes import ExpressionFailedError, SubscriptionRoute
from msgbroker.engine import matching
from msgbroker.engine.matching import FailedEvaluations, Matcher, Outcome, facts_of
from msgdb.lanes.records import LaneReset
from tests.support.lane_builders import FakeMessage, make_group, make_subscription, make_topic, messages

QUEUE = 3


def select(batch: Sequence[FakeMessage], *subscriptions: SubscriptionRoute) -> list[int]:
    matcher = Matcher(make_group(*subscriptions), make_topic())
    return [message.queue_offset for message in matcher.select(batch, QUEUE)]


def is_hz(headers: dict[str, str]) -> bool:
    return headers["region"] == "hz"


def in_region(queue_offset: int, region: str) -> FakeMessage:
    return FakeMessage(queue_offset, headers={"region": region})


def test_every_message_of_the_type_matches_a_direct_subscription() -> None:
    batch = [FakeMessage(0), FakeMessage(1, event_code="EC_SENT"), FakeMessage(2)]

    assert select(batch, make_subscription("EC_PAID")) == [0, 2]


def test_a_batch_that_matches_as_a_whole_is_returned_as_it_is() -> None:
    batch = messages(0, 3)

    assert Matcher(make_group(make_subscription()), make_topic()).select(batch, QUEUE) is batch


def test_facts_known_before_are_not_found_out_again() -> None:
    batch = [FakeMessage(0), FakeMessage(1, event_code="EC_SENT")]
    matcher = Matcher(make_group(make_subscription("EC_SENT")), make_topic())

    assert [m.queue_offset for m in matcher.select(batch, QUEUE, facts_of(batch))] == [1]


def test_a_star_is_every_event_code() -> None:
    assert select([FakeMessage(0), FakeMessage(1, event_code="EC_NEW")], make_subscription("*")) == [0, 1]


def test_a_group_without_a_subscription_to_the_topic_gets_nothing() -> None:
    assert select(messages(0, 2), make_subscription(topic_id=2)) == []


def test_an_empty_batch_selects_nothing() -> None:
    assert select([], make_subscription()) == []


def test_a_subscription_starts_at_its_offset_in_each_queue() -> None:
    assert select(messages(0, 4), make_subscription(start_offsets={QUEUE: 2})) == [2, 3]


def test_a_queue_younger_than_the_subscription_is_matched_from_its_beginning() -> None:
    assert select(messages(0, 2), make_subscription(start_offsets={QUEUE + 1: 2})) == [0, 1]


def test_from_where_a_lane_was_put_by_hand_the_subscriptions_of_that_moment_count() -> None:
    then = dataclasses.replace(make_subscription("EC_PAID", start_offsets={QUEUE: 5}), subscription_id=3)
    later = dataclasses.replace(make_subscription("EC_SENT", start_offsets={QUEUE: 6}), subscription_id=4)
    batch = [*messages(0, 8), FakeMessage(8, event_code="EC_SENT")]
    batch[4] = FakeMessage(4, event_code="EC_SENT")

    def select_with(reset: LaneReset | None) -> list[int]:
        matcher = Matcher(make_group(then, later), make_topic(), reset)
        return [message.queue_offset for message in matcher.select(batch, QUEUE)]

    assert select_with(None) == [5, 6, 7, 8]
    assert select_with(LaneReset(2, 3)) == [2, 3, 5, 6, 7, 8]
    assert select_with(LaneReset(2, 4)) == [2, 3, 4, 5, 6, 7, 8]
    # Forward it changes nothing: what lies before is settled.
    assert select_with(LaneReset(7, 4)) == [5, 6, 7, 8]


def test_of_overlapping_subscriptions_the_earliest_counts_and_a_message_comes_once() -> None:
    early = make_subscription("*", start_offsets={QUEUE: 1})
    late = make_subscription("EC_PAID", start_offsets={QUEUE: 2})

    assert select(messages(0, 4), late, early) == [1, 2, 3]


def test_a_header_subscription_takes_what_satisfies_its_predicate() -> None:
    batch = [in_region(0, "hz"), in_region(1, "sh"), in_region(2, "hz")]

    assert select(batch, make_subscription("EC_PAID", is_hz)) == [0, 2]


def test_a_header_subscription_starts_at_its_offset() -> None:
    batch = [in_region(0, "hz"), in_region(1, "hz")]

    assert select(batch, make_subscription("*", is_hz, {QUEUE: 1})) == [1]


def test_a_direct_and_a_header_subscription_of_one_type_deliver_once() -> None:
    batch = [in_region(0, "hz"), in_region(1, "sh"), in_region(2, "hz")]

    assert select(batch, make_subscription("*", is_hz), make_subscription("EC_PAID", None, {QUEUE: 1})) == [0, 1, 2]


def test_a_message_no_header_subscription_is_about_does_not_match() -> None:
    batch = [in_region(0, "hz"), FakeMessage(1, event_code="EC_SENT")]

    assert select(batch, make_subscription("EC_PAID", is_hz)) == [0]


@pytest.mark.parametrize("answer", [1, "true", None])
def test_only_true_is_a_match(answer: object) -> None:
    def answers(headers: dict[str, str]) -> bool:
        return answer  # type: ignore[return-value]

    assert select(messages(0, 1), make_subscription("*", answers)) == []


def test_an_expression_that_fails_on_a_message_does_not_match_it_and_is_counted() -> None:
    def fails(headers: dict[str, str]) -> bool:
        raise ExpressionFailedError("int(headers.amount) > 1", "no such key")

    matcher = Matcher(make_group(make_subscription("*", fails), make_subscription("*", is_hz)), make_topic())

    assert [m.queue_offset for m in matcher.select([in_region(0, "hz")], QUEUE)] == [0]
    assert matcher.failed_evaluations == 1


def test_what_failed_is_told_by_subscription_with_the_last_problem_and_only_once() -> None:
    def fails(headers: dict[str, str]) -> bool:
        raise ExpressionFailedError("x", f"no {headers['region']}")

    one = dataclasses.replace(make_subscription("*", fails), subscription_id=1, expression="one")
    other = dataclasses.replace(make_subscription("EC_SENT", fails), subscription_id=2, expression="other")
    matcher = Matcher(make_group(one, other), make_topic())
    matcher.select([in_region(0, "hz"), in_region(1, "sh"), FakeMessage(2, "EC_SENT", headers={"region": "bj"})], QUEUE)

    assert matcher.take_failed() == {
        1: FailedEvaluations("one", 3, "no bj"),
        2: FailedEvaluations("other", 1, "no bj"),
    }
    assert matcher.take_failed() == {}
    assert matcher.failed_evaluations == 4


def test_what_failed_elsewhere_is_told_by_subscription_too() -> None:
    late = dataclasses.replace(make_subscription("*", is_hz, {QUEUE: 1}), subscription_id=1, expression="late")
    same = dataclasses.replace(make_subscription("EC_PAID", is_hz), subscription_id=2, expression="early")
    matcher = Matcher(make_group(late, same), make_topic())
    outcomes = {"late": Outcome.NO_MATCH, "early": Outcome.FAILED}

    matcher.select_known(messages(0, 3), QUEUE, lambda text, _: outcomes[text])

    assert matcher.take_failed() == {2: FailedEvaluations("early", 3, "")}


def test_a_message_for_one_group_is_seen_by_that_group_only() -> None:
    batch = [FakeMessage(0, target_group=8), FakeMessage(1, target_group=7), FakeMessage(2)]

    assert select(batch, make_subscription()) == [1, 2]
    assert select(batch[:1], make_subscription()) == []


@pytest.mark.parametrize(
    "subscription",
    [
        make_subscription("EC_SENT"),
        make_subscription("*", is_hz),
        make_subscription("*", start_offsets={QUEUE: 9}),
        make_subscription("EC_SENT", is_hz, {QUEUE: 9}),
    ],
)
def test_a_message_for_one_group_is_seen_by_it_whatever_its_subscriptions_are_by_now(
    subscription: SubscriptionRoute,
) -> None:
    batch = [FakeMessage(0, target_group=7), FakeMessage(1, target_group=8), FakeMessage(2, target_group=7)]

    assert select(batch, subscription) == [0, 2]
    assert select([*batch, in_region(3, "sh")], subscription) == [0, 2]


def test_what_a_matcher_remembers_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matching, "_SELECTIONS_MAX", 4)
    matcher = Matcher(make_group(make_subscription("*")), make_topic())

    for queue_id in range(20):
        assert matcher.select(messages(0, 1), queue_id)

    assert len(matcher._selections) <= 4


class Time:
    """A budget of so many evaluations."""

    def __init__(self, evaluations: int) -> None:
        self.left = evaluations

    def is_over(self) -> bool:
        self.left -= 1
        return self.left <= 0


def test_a_batch_is_decided_as_far_as_the_time_goes_and_no_message_is_evaluated_twice() -> None:
    seen: list[str] = []

    def is_even(headers: dict[str, str]) -> bool:
        seen.append(headers["number"])
        return int(headers["number"]) % 2 == 0

    batch = [FakeMessage(number, headers={"number": str(number)}) for number in range(10)]
    matcher = Matcher(make_group(make_subscription("*", is_even)), make_topic())
    matched: list[int] = []
    at = 0
    while at < len(batch):
        selected = matcher.select_within(batch[at:], QUEUE, Time(3).is_over)
        matched += [message.queue_offset for message in selected.matched]
        assert selected.decided == min(3, len(batch) - at)
        at += selected.decided

    assert matched == [0, 2, 4, 6, 8]
    assert seen == [str(number) for number in range(10)]
    assert matcher.evaluations == 10


def test_however_little_time_there_is_a_batch_goes_on_by_one_message() -> None:
    matcher = Matcher(make_group(make_subscription("*", is_hz)), make_topic())

    selected = matcher.select_within([in_region(0, "sh"), in_region(1, "hz")], QUEUE, lambda: True)

    assert (selected.matched, selected.decided) == ([], 1)


def test_what_takes_no_expression_takes_no_time() -> None:
    def fails() -> bool:
        raise AssertionError("asked for the time")

    direct = Matcher(make_group(make_subscription("EC_PAID")), make_topic())
    assert direct.select_within([FakeMessage(0), FakeMessage(1, event_code="EC_SENT")], QUEUE, fails).decided == 2
    other_code = Matcher(make_group(make_subscription("EC_SENT", is_hz)), make_topic())
    assert other_code.select_within(messages(0, 5), QUEUE, fails) == ([], 5)
    of_others = Matcher(make_group(make_subscription("*", is_hz)), make_topic())
    assert of_others.select_within([FakeMessage(0, target_group=8)], QUEUE, fails) == ([], 1)


def test_a_matcher_says_which_expressions_it_selects_by_and_what_the_dearest_costs() -> None:
    cheap = dataclasses.replace(make_subscription("EC_PAID", is_hz), expression="b", cost=10)
    dear = dataclasses.replace(make_subscription("*", is_hz), expression="a", cost=1_000)
    elsewhere = dataclasses.replace(make_subscription("*", is_hz, topic_id=2), expression="c", cost=10_000)
    matcher = Matcher(make_group(cheap, dear, elsewhere), make_topic())

    assert (matcher.expressions, matcher.cost) == (("a", "b"), 1_000)
    assert Matcher(make_group(make_subscription()), make_topic()).expressions == ()


def test_only_what_an_expression_decides_is_asked_elsewhere() -> None:
    by_a = dataclasses.replace(make_subscription("*", is_hz), expression="a")
    by_b = dataclasses.replace(make_subscription("EC_PAID", is_hz, {QUEUE: 2}), expression="b")
    direct = make_subscription("EC_SENT", None, {QUEUE: 3})
    batch = [
        FakeMessage(0),
        FakeMessage(1, target_group=8),
        FakeMessage(2),
        FakeMessage(3, event_code="EC_SENT"),
    ]

    matcher = Matcher(make_group(by_a, by_b, direct), make_topic())
    assert list(matcher.questions(batch, QUEUE)) == [("a",), (), ("a", "b"), ()]


def test_with_answers_from_elsewhere_a_batch_is_decided_up_to_the_first_that_is_missing() -> None:
    by_a = dataclasses.replace(make_subscription("*", is_hz), expression="a")
    direct = make_subscription("EC_SENT")
    batch = [FakeMessage(0), FakeMessage(1, event_code="EC_SENT"), FakeMessage(2), FakeMessage(3), FakeMessage(4)]
    known = {0: Outcome.NO_MATCH, 2: Outcome.MATCH, 3: Outcome.FAILED}
    matcher = Matcher(make_group(by_a, direct), make_topic())

    selected = matcher.select_known(batch, QUEUE, lambda _, message: known.get(message.queue_offset))

    assert ([message.queue_offset for message in selected.matched], selected.decided) == ([1, 2], 4)
    assert (matcher.evaluations, matcher.failed_evaluations) == (0, 1)


def test_one_expression_that_matches_is_enough_whatever_the_other_would_say() -> None:
    by_a = dataclasses.replace(make_subscription("*", is_hz), expression="a")
    by_b = dataclasses.replace(make_subscription("EC_PAID", is_hz), expression="b")
    matcher = Matcher(make_group(by_a, by_b), make_topic())
    known = {"b": Outcome.MATCH}

    assert matcher.select_known(messages(0, 1), QUEUE, lambda text, _: known.get(text)).decided == 1
    known = {"a": Outcome.NO_MATCH}
    assert matcher.select_known(messages(0, 1), QUEUE, lambda text, _: known.get(text)).decided == 0


@given(
    codes=st.lists(st.sampled_from(["EC_PAID", "EC_SENT", "EC_OTHER"]), max_size=12),
    targets=st.lists(st.sampled_from([None, 7, 8]), min_size=12, max_size=12),
    values=st.lists(st.integers(0, 3), min_size=12, max_size=12),
    slice_evaluations=st.integers(1, 5),
    direct_from=st.integers(0, 12),
    header_from=st.integers(0, 12),
)
def test_in_slices_and_with_answers_from_elsewhere_the_same_is_selected_as_at_once(
    codes: list[str],
    targets: list[int | None],
    values: list[int],
    slice_evaluations: int,
    direct_from: int,
    header_from: int,
) -> None:
    def is_two(headers: dict[str, str]) -> bool:
        if headers["value"] == "3":
            raise ExpressionFailedError("value", "is three")
        return headers["value"] == "2"

    batch = [
        FakeMessage(offset, event_code=code, target_group=targets[offset], headers={"value": str(values[offset])})
        for offset, code in enumerate(codes)
    ]
    group = make_group(
        make_subscription("EC_SENT", None, {QUEUE: direct_from}), make_subscription("*", is_two, {QUEUE: header_from})
    )
    at_once, in_slices, elsewhere = (Matcher(group, make_topic()) for _ in range(3))
    expected = list(at_once.select(batch, QUEUE))
    sliced: list[FakeMessage] = []
    at = 0
    while at < len(batch):
        selected = in_slices.select_within(batch[at:], QUEUE, Time(slice_evaluations).is_over)
        sliced += selected.matched
        at += selected.decided
    outcomes = {"2": Outcome.MATCH, "3": Outcome.FAILED}
    known = elsewhere.select_known(
        batch, QUEUE, lambda _, message: outcomes.get(message.headers["value"], Outcome.NO_MATCH)
    )

    naive = [
        message
        for message in batch
        if message.target_group == 7
        or (
            message.target_group is None
            and (
                (message.event_code == "EC_SENT" and message.queue_offset >= direct_from)
                or (message.headers["value"] == "2" and message.queue_offset >= header_from)
            )
        )
    ]
    assert expected == naive
    assert sliced == expected
    assert (list(known.matched), known.decided) == (expected, len(batch))
    assert in_slices.failed_evaluations == at_once.failed_evaluations == elsewhere.failed_evaluations


def test_event_codes_that_publishers_make_up_are_not_remembered() -> None:
    matcher = Matcher(
        make_group(make_subscription("EC_PAID"), make_subscription("*", start_offsets={QUEUE: 100})), make_topic()
    )
    for offset in range(200):
        for code in ("EC_PAID", f"EC_{offset}"):
            is_wanted = code == "EC_PAID" or offset >= 100
            assert bool(matcher.select([FakeMessage(offset, event_code=code)], QUEUE)) is is_wanted

    assert len(matcher._selections) == 2
