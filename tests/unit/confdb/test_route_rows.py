"""From rows to routes: whatever is in a row, it is read, and what is not understood of it is said."""

from __future__ import annotations

import json
import math
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from confdb import features
from confdb.features import Aspect, Feature, feature_of, requires_with
from confdb.route_rows import (
    read_group,
    read_stress_rules,
    read_topic,
    readable_offsets,
    unserved_of_whitelist,
)
from confdb.routes import (
    GroupMode,
    GroupOrder,
    GroupRoute,
    NotUnderstood,
    StressRule,
    SubscriptionMode,
    TopicKind,
    TopicRoute,
    requirements,
    withheld_topics,
)
from confdb.unserved import unserved_of

NOTHING: frozenset[str] = frozenset()

TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=80)
REQUIRES = st.none() | TEXT
INTEGERS = st.integers(-(2**31), 2**31 - 1)


def topic(**fields: Any) -> TopicRoute:
    values = {
        "topic_id": 1,
        "namespace_id": 1,
        "name": "TP_TRADE",
        "kind": "NORMAL",
        "queue_count": 4,
        "generation": 1,
        "body_bytes_max": 8_192,
        "is_open": False,
        "is_closed": False,
        "stress_refused": False,
        "trace_rate": 0.01,
        "requires": None,
    }
    understood = fields.pop("understood", NOTHING)
    return read_topic("default", tuple({**values, **fields}.values()), frozenset({"EC_PAID"}), understood)


def subscription(**fields: Any) -> tuple[Any, ...]:
    values = {
        "subscription_id": 1,
        "group_id": 7,
        "topic_id": 1,
        "event_code": "EC_PAID",
        "mode": "DIRECT",
        "expression": None,
        "start_offsets": "{}",
        "requires": None,
        "paused": False,
    }
    return tuple({**values, **fields}.values())


def group(*subscriptions: tuple[Any, ...], **fields: Any) -> GroupRoute:
    values = {
        "group_id": 7,
        "namespace_id": 1,
        "name": "SG_POINTS",
        "ack_timeout_seconds": 60.0,
        "handle_seconds_max": 3_600.0,
        "retry_schedule_seconds": "{10,30.5}",
        "attempts_max": 3,
        "unsettled_max": 100,
        "group_order": "NONE",
        "mode": "SHARED",
        "paused": False,
        "requires": None,
    }
    understood = fields.pop("understood", NOTHING)
    return read_group("default", tuple({**values, **fields}.values()), subscriptions, understood)


def test_what_the_first_version_knows_is_understood() -> None:
    read = group(
        subscription(start_offsets='{"1": 10}'), subscription(mode="HEADER", expression='headers.region == "hz"')
    )

    assert (topic().kind, topic().not_understood, topic().requires) == (TopicKind.NORMAL, None, NOTHING)
    assert (read.order, read.mode) == (GroupOrder.NONE, GroupMode.SHARED)
    assert (read.not_understood, read.retry_schedule_seconds) == (None, (10.0, 30.5))
    direct, header = read.subscriptions
    assert (direct.not_understood, direct.mode, direct.start_offsets) == (None, SubscriptionMode.DIRECT, {1: 10})
    assert header.predicate is not None
    assert header.predicate({"region": "hz"})


def test_of_all_that_goes_beyond_the_first_version_this_one_understands_some() -> None:
    assert sorted(features.UNDERSTOOD) == ["archive", "jobs", "resets", "subscription-paused"]


@pytest.mark.parametrize(
    "read, feature",
    [
        (topic(kind="ORDERED"), Feature.TOPIC_KIND_ORDERED),
        (topic(kind="SCHEDULED"), Feature.TOPIC_KIND_SCHEDULED),
        (topic(kind="TRANSACTIONAL"), Feature.TOPIC_KIND_TRANSACTIONAL),
        (topic(kind="SPARSE"), "topic-kind-sparse"),
        (group(group_order="KEY"), Feature.GROUP_ORDER_KEY),
        (group(group_order="GLOBAL"), Feature.GROUP_ORDER_GLOBAL),
        (group(group_order="REGION"), "group-order-region"),
        (group(mode="BROADCAST"), Feature.GROUP_MODE_BROADCAST),
        (group(subscription(mode="SAMPLE")).subscriptions[0], "subscription-mode-sample"),
        (topic(requires="colour"), "colour"),
        (group(requires="colour"), "colour"),
        (group(subscription(requires="colour")).subscriptions[0], "colour"),
    ],
)
def test_a_value_is_a_feature_that_the_row_requires_and_this_version_does_not_understand(
    read: Any, feature: str
) -> None:
    assert read.requires == {feature}
    assert read.not_understood == NotUnderstood((feature,))


def test_who_understands_the_features_serves_what_requires_them() -> None:
    understood = frozenset({"topic-kind-sparse", "group-order-key", "colour", "subscription-mode-sample"})

    assert topic(kind="SPARSE", requires="colour", understood=understood).not_understood is None
    one = group(subscription(mode="SAMPLE"), group_order="KEY", requires="colour", understood=understood)
    assert one.not_understood is None
    assert one.subscriptions[0].not_understood is None
    assert one.requires == {"group-order-key", "colour"}


def test_an_element_that_says_nothing_is_not_understood_either() -> None:
    assert topic(requires="").not_understood == NotUnderstood(("",))
    assert topic(requires="NULL,colour", understood=frozenset({"colour"})).not_understood == NotUnderstood(("NULL",))


@pytest.mark.parametrize(
    "fields",
    [
        {"queue_count": 0},
        {"queue_count": 257},
        {"generation": 0},
        {"body_bytes_max": 0},
        {"body_bytes_max": 2**31 - 1},
    ],
    ids=str,
)
def test_a_number_that_could_not_be_used_is_not_understood(fields: dict[str, Any]) -> None:
    read = topic(**fields)
    assert read.not_understood is not None
    assert next(iter(fields)) in read.not_understood.problem


@pytest.mark.parametrize(
    "fields",
    [
        {"ack_timeout_seconds": math.nan},
        {"ack_timeout_seconds": math.inf},
        {"ack_timeout_seconds": 0.0},
        {"handle_seconds_max": math.nan},
        {"handle_seconds_max": -1.0},
        {"handle_seconds_max": 86_401.0},
        {"attempts_max": 0},
        {"attempts_max": 101},
        {"unsettled_max": 0},
        {"unsettled_max": 10_001},
        {"retry_schedule_seconds": "{NULL}"},
        {"retry_schedule_seconds": "{{1,2},{3,4}}"},
        {"retry_schedule_seconds": "[0:1]={1,2}"},
        {"retry_schedule_seconds": "{NaN}"},
        {"retry_schedule_seconds": "{Infinity}"},
        {"retry_schedule_seconds": "{-1}"},
        {"retry_schedule_seconds": "{" + ",".join(["1"] * 100) + "}"},
    ],
    ids=str,
)
def test_a_setting_of_a_group_that_could_not_be_used_is_not_understood(fields: dict[str, Any]) -> None:
    read = group(**fields)
    assert read.not_understood is not None
    assert next(iter(fields)) in read.not_understood.problem


@pytest.mark.parametrize(
    "fields",
    [
        {"expression": "true"},
        {"mode": "HEADER"},
        {"mode": "HEADER", "expression": "nonsense("},
        {"mode": "HEADER", "expression": "1 + 1"},
        {"mode": "HEADER", "expression": "x" * 5_000},
        {"event_code": "EC_*"},
        {"event_code": ""},
        {"event_code": "E" * 65},
        {"start_offsets": "[]"},
        {"start_offsets": "null"},
        {"start_offsets": '{"one": 1}'},
        {"start_offsets": '{"-1": 1}'},
        {"start_offsets": '{"1": -1}'},
        {"start_offsets": '{"1": 1.5}'},
        {"start_offsets": '{"1": true}'},
        {"start_offsets": '{"1": 9223372036854775808}'},
        {"start_offsets": '{"1": ' + "9" * 5_000 + "}"},
        {"start_offsets": '{"' + "9" * 5_000 + '": 1}'},
        {"start_offsets": "[" * 100_000 + "]" * 100_000},
    ],
    ids=lambda fields: str(fields)[:40],
)
def test_a_subscription_that_could_not_be_used_is_not_understood_and_leaves_its_neighbours_alone(
    fields: dict[str, Any],
) -> None:
    odd, neighbour = group(subscription(**fields), subscription(topic_id=2)).subscriptions

    assert odd.not_understood is not None
    assert odd.not_understood.detail
    assert odd.predicate is None
    assert neighbour.not_understood is None


@given(
    kind=TEXT,
    queue_count=INTEGERS,
    generation=INTEGERS,
    body_bytes_max=INTEGERS,
    requires=REQUIRES,
    group_order=TEXT,
    mode=TEXT,
    retry_schedule_seconds=TEXT,
    ack_timeout_seconds=st.floats(),
    handle_seconds_max=st.floats(),
    attempts_max=INTEGERS,
    unsettled_max=st.integers(-(2**63), 2**63 - 1),
    subscription_mode=st.sampled_from(["DIRECT", "HEADER"]) | TEXT,
    event_code=TEXT,
    expression=st.none() | TEXT,
    start_offsets=st.recursive(
        st.none() | st.booleans() | st.integers() | TEXT,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT | st.just("1"), inner, max_size=3),
        max_leaves=8,
    ),
)
def test_no_row_fails_and_what_is_understood_can_be_used(
    kind: str,
    queue_count: int,
    generation: int,
    body_bytes_max: int,
    requires: str | None,
    subscription_mode: str,
    event_code: str,
    expression: str | None,
    start_offsets: Any,
    **of_group: Any,
) -> None:
    topic_read = topic(
        kind=kind, queue_count=queue_count, generation=generation, body_bytes_max=body_bytes_max, requires=requires
    )
    row = subscription(
        event_code=event_code,
        mode=subscription_mode,
        expression=expression,
        start_offsets=json.dumps(start_offsets),
        requires=requires,
    )
    group_read = group(row, requires=requires, **of_group)
    (read,) = group_read.subscriptions

    if topic_read.not_understood is None:
        assert (kind, requires) == ("NORMAL", None)
        assert min(queue_count, generation, body_bytes_max) > 0
    if group_read.not_understood is None:
        assert (of_group["group_order"], of_group["mode"]) == ("NONE", "SHARED")
        assert all(math.isfinite(seconds) for seconds in group_read.retry_schedule_seconds)
        assert math.isfinite(group_read.ack_timeout_seconds)
        assert math.isfinite(group_read.handle_seconds_max)
    if read.not_understood is None:
        assert (read.mode is SubscriptionMode.HEADER) == (read.predicate is not None)
        assert (expression is None) == (read.mode is SubscriptionMode.DIRECT)
        assert all(0 <= offset < 2**63 for offset in read.start_offsets.values())
    for each in (topic_read, group_read, read):
        assert each.not_understood is None or 0 < len(each.not_understood.detail) < 600


def test_what_is_withheld_and_required_goes_by_group_topic_and_subscription() -> None:
    topics = {
        1: topic(),
        2: topic(topic_id=2, kind="ORDERED"),
        3: topic(topic_id=3),
    }
    one = group(
        subscription(requires="colour"),
        subscription(event_code="*"),
        subscription(topic_id=2),
        subscription(topic_id=3),
        subscription(topic_id=4),
    )
    whole = group(subscription(), subscription(topic_id=3), requires="smell")

    assert withheld_topics(one, topics) == {1, 2}
    assert withheld_topics(whole, topics) == {1, 3}
    assert requirements(one, topics) == {1: {"colour"}, 2: {"topic-kind-ordered"}, 3: NOTHING}
    assert requirements(whole, topics) == {1: {"smell"}, 3: {"smell"}}
    things = {(each.thing, each.group_id, each.topic_id) for each in unserved_of(topics, [one, whole])}
    assert things == {
        ("topic TP_TRADE", None, 2),
        ("subscription SG_POINTS TP_TRADE/EC_PAID", 7, 1),
        ("group SG_POINTS", 7, None),
    }


def test_of_stress_rules_those_that_are_not_understood_are_told_apart() -> None:
    rows: Any = [
        SimpleNamespace(namespace_id=1, header="x-stress-test", operator="EQUALS", value="true"),
        SimpleNamespace(namespace_id=1, header="x-load", operator="MATCHES", value="^l"),
    ]
    rules, unknown, unserved = read_stress_rules(rows, {1: "tenant"}, NOTHING)

    assert rules == {"tenant": (StressRule("x-stress-test", "EQUALS", "true"),)}  # type: ignore[arg-type]
    assert unknown == {"tenant": {"x-load": NotUnderstood(("stress-operator-matches",))}}
    assert [each.thing for each in unserved] == ["stress rule for header x-load of namespace tenant"]
    # A feature alone is no operator that this version could compare with.
    _, unknown, _ = read_stress_rules(rows, {1: "tenant"}, frozenset({"stress-operator-matches"}))
    assert unknown["tenant"]["x-load"].problem


def test_whitelist_entries_that_name_no_message_type_are_told_of() -> None:
    found = unserved_of_whitelist([(7, 1, "EC_PAID"), (7, 1, "*"), (7, 1, "EC_?")])

    assert [(each.group_id, each.topic_id) for each in found] == [(7, 1)]


def test_offsets_are_read_as_they_are_written() -> None:
    assert readable_offsets({"1": 0, "22": 2**63 - 1}) == {1: 0, 22: 2**63 - 1}
    assert readable_offsets({"1_0": 0}) is None
    assert readable_offsets({"\u0661": 0}) is None


def test_a_setting_changes_only_its_own_feature() -> None:
    requires = ["colour", "group-mode-broadcast"]

    assert feature_of(Aspect.GROUP_ORDER, "NONE") is None
    assert requires_with(requires, Aspect.GROUP_ORDER, "KEY") == [*requires, "group-order-key"]
    assert requires_with(requires, Aspect.GROUP_MODE, "SHARED") == ["colour"]
    assert requires_with(["group-order-region"], Aspect.GROUP_ORDER, "KEY") == ["group-order-key"]


def test_what_is_said_of_a_thing_is_bounded() -> None:
    why = NotUnderstood(tuple(f"feature-{number}-{'x' * 100}" for number in range(1_000)), "y" * 10_000)

    assert len(why.detail) < 600
    assert "997 more" in why.detail
