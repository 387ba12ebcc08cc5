"""Which messages a group gets."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from confdb.routes import ExpressionFailedError, SubscriptionRoute
from msgbroker.engine import matching
from msgbroker.engine.matching import Matcher, facts_of
from tests.unit.engine.builders import FakeMessage, make_group, make_subscription, make_topic, messages

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


def test_a_message_for_one_group_is_seen_by_that_group_only() -> None:
    batch = [FakeMessage(0, target_group=8), FakeMessage(1, target_group=7), FakeMessage(2)]

    assert select(batch, make_subscription()) == [1, 2]
    assert select(batch[:1], make_subscription()) == []


def test_what_a_matcher_remembers_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matching, "_SELECTIONS_MAX", 4)
    matcher = Matcher(make_group(make_subscription("*")), make_topic())

    for number in range(20):
        assert matcher.select([FakeMessage(0, event_code=f"EC_{number}")], QUEUE)

    assert len(matcher._selections) <= 4
