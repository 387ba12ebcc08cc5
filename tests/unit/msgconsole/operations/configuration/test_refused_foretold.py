"""Which of the newest messages a topic would not take any more."""

from __future__ import annotations

from confdb.routes import Snapshot, StressOperator, StressRule
from confdb.services.changes import Rehearsed
from msgconsole.operations.configuration.topic_preview import Refused, tell_refused
from tests.support.broker_builders import PAID, TOPIC, route, snapshot
from tests.unit.msgconsole.operations.configuration.test_foretelling import found

RULES = {"default": (StressRule("x-stress", StressOperator.EQUALS, "yes"),)}


def told(before: Snapshot, after: Snapshot) -> Refused:
    messages = [
        found(4, PAID, {}, body_bytes=11, target_group=1),
        found(3, PAID, {"x-stress": "yes"}, body_bytes=11),
        found(2, PAID, {"x-stress": "no"}, body_bytes=10),
        found(1, PAID, {}, body_bytes=21),
    ]
    return tell_refused(messages, Rehearsed(before, after, ()), ("default", TOPIC), is_all=True)


def topic(body_bytes_max: int, *, stress_refused: bool = False) -> Snapshot:
    return snapshot(route(body_bytes_max=body_bytes_max, stress_refused=stress_refused), stress_rules=RULES)


def test_what_is_larger_than_the_topic_would_take_is_counted_and_a_copy_is_not() -> None:
    refused = told(topic(30), topic(10))

    assert (refused.looked_at, refused.messages) == (3, 2)
    assert [each.int for each in refused.examples] == [3, 1]


def test_what_is_refused_already_is_not_counted() -> None:
    assert told(topic(20), topic(10)).messages == 1
    assert told(topic(10), topic(10)).messages == 0


def test_stress_traffic_is_told_by_the_rules_and_not_by_how_it_was_marked() -> None:
    assert told(topic(30), topic(30, stress_refused=True)).messages == 1
    # One message for two reasons is one message.
    assert told(topic(30), topic(10, stress_refused=True)).messages == 2
