"""From what was observed to what was measured."""

from __future__ import annotations

from typing import Any

import pytest

from msgconsole.bench.measures.measuring import Observed, measured
from msgconsole.bench.measures.resources import Usage
from msgconsole.bench.phases.registration import LATE_GROUP, Registered
from msgconsole.bench.scenario import LateGroup, Phase

STARTED_AT = 1_000.0


def published(**given: Any) -> dict[str, Any]:
    result = {"started_at": STARTED_AT, "ended_at": STARTED_AT + 4, "published": 1_001, "matching": 1_001}
    return {**result, "receipt_ms": {}, **given}


def received(counts: dict[str, int], after_seconds: float) -> dict[str, Any]:
    return {"counts": counts, "last_at": STARTED_AT + after_seconds, "latency_ms": {"p50": 1.0}}


def observed(**given: Any) -> Observed:
    fields: dict[str, Any] = {
        "groups": Registered(["SG"], []),
        "backlog": 0,
        "publishing": [published()],
        "receiving": [received({"SG": 1_001}, 5.0)],
        "before": {"broker": Usage(1.0, 0)},
        "after": {"broker": Usage(1.5, 50 * 2**20)},
    }
    return Observed(**{**fields, **given})


def test_the_rate_is_from_the_first_publish_to_the_last_delivery() -> None:
    result = measured(Phase("any"), observed())
    assert (result.seconds, result.messages_per_second, result.published_per_second) == (5.0, 200.0, 250.0)


def test_the_message_that_connects_is_not_part_of_the_load() -> None:
    assert measured(Phase("any"), observed()).messages == 1_000


def test_cpu_is_given_for_a_message_and_as_a_share_of_a_core() -> None:
    result = measured(Phase("any"), observed())
    assert (result.cpu_us_per_message, result.cpu_share) == ({"broker": 500.0}, {"broker": 0.1})


def test_what_several_subscribers_got_is_added_up() -> None:
    got = [received({"SG": 600}, 5.0), received({"SG": 402}, 4.0)]
    assert observed(receiving=got).too_many() == {"SG": 1}


def test_a_header_group_expects_what_matches() -> None:
    seen = observed(groups=Registered([], ["SG_HEADER"]), publishing=[published(matching=11)])
    assert seen.expected() == {"SG_HEADER": 11}


def test_a_long_phase_compares_its_beginning_with_its_end() -> None:
    history: list[tuple[float, dict[str, Any]]] = [(STARTED_AT, {"counts": {"SG": 0}})]
    history += [(STARTED_AT + at, {"counts": {"SG": 100 * at}}) for at in range(1, 51)]
    history += [(STARTED_AT + at, {"counts": {"SG": 5_000 + 50 * (at - 50)}}) for at in range(51, 103)]
    probed = [(STARTED_AT + at, 5.0 if at < 50 else 8.0) for at in range(102)]
    seen = observed(
        publishing=[published(ended_at=STARTED_AT + 102)],
        probing=[{"measured": probed, "published": 102}],
        receiving=[received({"SG": 1_001}, 102.0)],
        subscriber_histories=[history],
    )
    result = measured(Phase("any"), seen)
    assert result.first is not None
    assert result.last is not None
    assert (result.first.messages_per_second, result.last.messages_per_second) == (100, 50)
    assert (result.first.receipt_ms["p50"], result.last.receipt_ms["p50"]) == (5.0, 8.0)


def test_a_late_group_has_caught_up_when_it_has_what_was_stored_before() -> None:
    late = [(STARTED_AT + at, {"counts": {LATE_GROUP: 1_000 * at}}) for at in range(12)]
    publishing = [(STARTED_AT + at, {"published": 100 * at}) for at in range(12)]
    others = [(STARTED_AT + at, {"counts": {"SG": 100 * at}}) for at in range(12)]
    seen = observed(
        backlog=10_000, late_histories=[late], publisher_histories=[publishing], subscriber_histories=[others]
    )
    result = measured(Phase("any", late=LateGroup.CATCHES_UP), seen)
    assert result.catch_up is not None
    assert (result.catch_up.seconds, result.catch_up.messages_per_second) == (10.0, 1_000.0)
    assert (result.catch_up.published_per_second, result.catch_up.others_per_second) == (100.0, 100.0)


@pytest.mark.parametrize("count, too_many", [(1_001, {}), (1_003, {"SG": 2})])
def test_what_came_twice_is_seen(count: int, too_many: dict[str, int]) -> None:
    assert observed(receiving=[received({"SG": count}, 5.0)]).too_many() == too_many
