"""Who may see stress messages, and which those are."""

from __future__ import annotations

import pytest

from confdb.routes import Snapshot, StressOperator, StressRule
from msgbroker.engine.stress import StressGate, is_stress
from tests.support.lane_builders import make_topic


@pytest.mark.parametrize(
    "operator, value, header, expected",
    [
        (StressOperator.EQUALS, "true", "true", True),
        (StressOperator.EQUALS, "true", "True", False),
        (StressOperator.PREFIX, "load-", "load-17", True),
        (StressOperator.PREFIX, "load-", "preload-17", False),
        (StressOperator.EXISTS, "", "", True),
    ],
)
def test_a_rule_compares_a_header(operator: StressOperator, value: str, header: str, *, expected: bool) -> None:
    assert is_stress({"x-test": header}, [StressRule("x-test", operator, value)]) is expected


@pytest.mark.parametrize("headers", [{}, {"x-other": "true"}])
def test_a_message_without_the_header_is_not_stress(headers: dict[str, str]) -> None:
    assert not is_stress(headers, [StressRule("x-test", StressOperator.EXISTS, "")])


def test_one_of_several_rules_is_enough() -> None:
    rules = [StressRule("a", StressOperator.EXISTS, ""), StressRule("b", StressOperator.EQUALS, "1")]

    assert is_stress({"b": "1"}, rules)


def test_a_group_sees_the_types_it_is_whitelisted_for() -> None:
    gate = StressGate(Snapshot(1, stress_whitelist=frozenset({(7, 1, "EC_PAID"), (8, 1, "*")})))

    assert gate.allows(7, 1, "EC_PAID")
    assert not gate.allows(7, 1, "EC_SENT")
    assert not gate.allows(7, 2, "EC_PAID")
    assert gate.allows(8, 1, "EC_SENT")
    assert not gate.allows(9, 1, "EC_PAID")


def test_a_topics_kill_switch_outranks_the_whitelist() -> None:
    topics = {("default", "TP"): make_topic(1, stress_refused=True), ("default", "TQ"): make_topic(2)}
    gate = StressGate(Snapshot(1, topics=topics, stress_whitelist=frozenset({(7, 1, "*"), (7, 2, "*")})))

    assert not gate.allows(7, 1, "EC_PAID")
    assert gate.allows(7, 2, "EC_PAID")
