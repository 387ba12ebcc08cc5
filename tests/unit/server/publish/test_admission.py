"""Admission: what is refused at the edge, in which words, and what the rest becomes."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from confdb.routes import NotUnderstood, Snapshot, StressOperator, StressRule, TopicRoute
from msgbroker.contract.errors import (
    GroupNotFoundError,
    InvalidNameError,
    InvalidRequestFieldError,
    NamespaceNotFoundError,
)
from msgbroker.server.edge.decoding import frame_decoder, parse_message
from msgbroker.server.publish.admission import Admission, check_origin
from msgbroker.server.publish.admitted_types import Origin
from msgbroker.v1 import message_pb2, publisher_pb2
from tests.support.broker_builders import PAID, TOPIC, route, snapshot

decode_frame = frame_decoder(publisher_pb2.PublishFrame)
NOW_US = 1_700_000_000_000_000
ORIGIN = Origin("default", "", "host")
RULES = {"default": (StressRule("x-stress-test", StressOperator.EQUALS, "true"),)}


class Edge:
    """An admission whose snapshot can change."""

    def __init__(self, *topics: TopicRoute, **fields: Any) -> None:
        self.snapshot = snapshot(*(topics or (route(),)), **fields)
        self.learnt: list[tuple[str, str]] = []
        self.admission = Admission(
            ORIGIN,
            snapshot=lambda: self.snapshot,
            learn_event_code=lambda r, code: self.learnt.append((r.name, code)),
            parse=parse_message,
        )

    def admit(self, *messages: message_pb2.Message) -> Any:
        received = decode_frame(publisher_pb2.PublishFrame(sequence=1, messages=messages).SerializeToString())
        return self.admission.admit(received.encoded, received.spans, NOW_US)

    def reasons(self, *messages: message_pb2.Message) -> dict[int, str]:
        return {refused.index: refused.reason for refused in self.admit(*messages).refusals}


def said(**fields: Any) -> message_pb2.Message:
    return message_pb2.Message(**{"topic": TOPIC, "event_code": PAID, "body": b"body", **fields})


@pytest.mark.parametrize(
    "fields, reason, words",
    [
        ({"body": b"x" * 8_193}, "BODY_TOO_LARGE", (TOPIC, "8193", "8192")),
        ({"key": "k" * 257}, "INVALID_KEY", ("key", "257", "256")),
        ({"key": "键" * 86}, "INVALID_KEY", ("258", "256")),
        ({"key": "a\0"}, "INVALID_KEY", ("NUL",)),
        ({"ordering_key": "k" * 257}, "INVALID_KEY", ("ordering key", "257", "256")),
        ({"ordering_key": "\0"}, "INVALID_KEY", ("ordering key", "NUL")),
        ({"headers": {str(n): "" for n in range(65)}}, "INVALID_HEADERS", ("65", "64")),
        ({"headers": {"h": "x" * 4_096}}, "INVALID_HEADERS", ("4097", "4096")),
        ({"headers": {"文" * 1_000: "文" * 366}}, "INVALID_HEADERS", ("4098", "4096")),
        ({"headers": {"h": "\0"}}, "INVALID_HEADERS", ("'h'", "NUL")),
        ({"headers": {"": "x"}}, "INVALID_HEADERS", ("without a name",)),
        ({"topic": "T" * 129}, "INVALID_NAME", ("topic", "129", "128")),
        ({"topic": "-x"}, "INVALID_NAME", ("topic", "'-x'", "A-Z a-z 0-9")),
        ({"topic": ""}, "INVALID_NAME", ("topic", "empty")),
        ({"event_code": "E" * 65}, "INVALID_NAME", ("event code", "65", "64")),
        ({"event_code": "*"}, "INVALID_NAME", ("event code", "'*'")),
        ({"topic": "TP_NONE"}, "TOPIC_NOT_FOUND", ("TP_NONE", "default")),
        ({"event_code": "EC_NONE"}, "EVENT_CODE_NOT_FOUND", ("EC_NONE", TOPIC)),
        ({"deliver_at_us": 5}, "DELAY_NOT_SUPPORTED", (TOPIC,)),
        ({"born_at_us": -1}, "INVALID_FIELD", ("born_at_us",)),
        ({"born_at_us": 5_000_000_000_000_000}, "INVALID_FIELD", ("born_at_us", "2100")),
    ],
)
def test_a_bad_message_is_refused_alone_with_the_name_and_the_limit(
    fields: dict[str, Any], reason: str, words: tuple[str, ...]
) -> None:
    admitted = Edge().admit(said(body=b"before"), said(**fields), said(body=b"after"))

    (refused,) = admitted.refusals
    assert (refused.index, refused.reason) == (1, reason)
    assert all(word in refused.message for word in words), refused.message
    bodies = [message_pb2.Message.FromString(message.content).body for message in admitted.messages]
    assert bodies == [b"before", b"after"]


@pytest.mark.parametrize(
    "fields",
    [
        {"body": b"x" * 8_192},
        {"body": b""},
        {"key": "键" * 85, "ordering_key": "k" * 256},
        {"headers": {str(n): "" for n in range(64)}},
        {"headers": {"h": "x" * 4_095}},
        {"born_at_us": 1},
    ],
    ids=", ".join,
)
def test_what_is_just_within_the_limits_is_admitted(fields: dict[str, Any]) -> None:
    message = said(**fields)
    admitted = Edge().admit(message)

    assert admitted.refusals == ()
    message.born_at_us = message.born_at_us or NOW_US
    assert message_pb2.Message.FromString(admitted.messages[0].content) == message
    assert bytes(admitted.messages[0].body) == message.body


@pytest.mark.parametrize("message", [b"\xff", b"\x0a\x02\xff\xfe\x12\x01E", b"\x0a\x7f", b"\x1a\x02\xff\xfe"])
def test_a_message_that_cannot_be_read_is_refused_alone(message: bytes) -> None:
    good = said(born_at_us=NOW_US).SerializeToString()
    type_only = message_pb2.Message(topic=TOPIC, event_code=PAID).SerializeToString()
    parts = [good, message, type_only + message, good]
    ends = list(itertools.accumulate(map(len, parts)))
    spans = list(zip([0, *ends], ends, strict=False))

    admitted = Edge().admission.admit(b"".join(parts), spans, NOW_US)
    assert [message.content for message in admitted.messages] == [good, good]
    assert [(refused.index, refused.reason) for refused in admitted.refusals] == [
        (1, "INVALID_FIELD"),
        (2, "INVALID_FIELD"),
    ]


def test_what_is_not_in_the_usual_form_goes_on_in_it() -> None:
    usual = said(key="k", headers={"region": "hz"}, born_at_us=NOW_US)
    later = message_pb2.Message(key="k", headers={"region": "hz"}).SerializeToString()
    sooner = said(born_at_us=NOW_US).SerializeToString()
    unknown = b"\xfa\x01\x03abc"
    encoded = sooner + later + unknown

    (message,) = Edge().admission.admit(encoded, [(0, len(encoded))], NOW_US).messages
    assert message.content == usual.SerializeToString()
    assert (message.ordering_key, dict(message.headers), bytes(message.body)) == ("k", {"region": "hz"}, b"body")


@pytest.mark.parametrize(
    "topic, reason, word",
    [
        (route(is_closed=True), "TOPIC_CLOSED", "closed"),
        (route(not_understood=NotUnderstood(("topic-kind-scheduled",))), "NOT_UNDERSTOOD", "topic-kind-scheduled"),
        (route(not_understood=NotUnderstood(problem="queue_count is 0")), "NOT_UNDERSTOOD", "queue_count"),
    ],
    ids=["closed", "feature", "unreadable"],
)
def test_a_topic_that_takes_no_messages_says_why(topic: TopicRoute, reason: str, word: str) -> None:
    (refused,) = Edge(topic).admit(said()).refusals

    assert refused.reason == reason
    assert word in refused.message


def test_a_topics_own_body_limit_counts() -> None:
    edge = Edge(route(body_bytes_max=10), route(2, name="TP_LARGE", body_bytes_max=1_000_000))

    assert edge.reasons(said(body=b"x" * 11), said(topic="TP_LARGE", body=b"x" * 11)) == {0: "BODY_TOO_LARGE"}


def test_an_open_topic_takes_codes_it_does_not_know_and_learns_each_once() -> None:
    edge = Edge(route(is_open=True))

    assert edge.reasons(said(event_code="EC_NEW"), said(event_code="EC_NEW"), said()) == {}
    assert edge.learnt == [(TOPIC, "EC_NEW")]
    assert edge.reasons(said(event_code="no spaces")) == {0: "INVALID_NAME"}


def test_a_message_without_a_time_was_born_when_it_arrived() -> None:
    (message,) = Edge().admit(said()).messages

    assert message_pb2.Message.FromString(message.content).born_at_us == NOW_US


def test_the_ordering_key_is_the_key_where_none_is_given() -> None:
    messages = Edge().admit(said(key="k"), said(key="k", ordering_key="o"), said()).messages

    assert [message.ordering_key for message in messages] == ["k", "o", ""]


def test_stress_is_decided_by_the_namespaces_rules() -> None:
    edge = Edge(stress_rules=RULES)
    messages = edge.admit(
        said(headers={"x-stress-test": "true"}), said(headers={"x-stress-test": "no"}), said()
    ).messages

    assert [message.stress for message in messages] == [True, False, False]


def test_the_kill_switch_refuses_stress_messages_only() -> None:
    edge = Edge(route(stress_refused=True), stress_rules=RULES)

    assert edge.reasons(said(), said(headers={"x-stress-test": "true"})) == {1: "STRESS_REFUSED"}


def test_a_new_snapshot_counts_from_the_next_frame_on() -> None:
    edge = Edge()
    assert edge.reasons(said()) == {}
    edge.snapshot = snapshot(route(is_closed=True), version=2)
    assert edge.reasons(said()) == {0: "TOPIC_CLOSED"}
    edge.snapshot = snapshot(route(), version=3)
    assert edge.reasons(said()) == {}


def test_a_single_message_may_be_larger_than_a_frame() -> None:
    large = Edge(route(body_bytes_max=4 * 1024 * 1024)).admit(said(body=b"x" * 4 * 1024 * 1024))

    assert len(large.messages) == 1


def test_an_open_topic_costs_a_bounded_amount_of_memory_whatever_codes_come() -> None:
    edge = Edge(route(is_open=True))
    for number in range(10_000):
        edge.admit(said(event_code=f"EC_{number}"))

    assert len(edge.admission._types) <= 4_096
    assert len(edge.learnt) == 10_000


@pytest.mark.parametrize(
    "origin, error",
    [
        (Origin("nowhere", "", ""), NamespaceNotFoundError),
        (Origin("default", "PG_NOBODY", ""), GroupNotFoundError),
        (Origin("n" * 300_000, "", ""), InvalidNameError),
        (Origin("default", "g" * 300_000, ""), InvalidNameError),
        (Origin("default", "", "h" * 129), InvalidRequestFieldError),
        (Origin("default", "", "h\0"), InvalidRequestFieldError),
    ],
)
def test_an_origin_that_is_not_known_is_refused(origin: Origin, error: type[Exception]) -> None:
    known: Snapshot = snapshot(route(), publisher_groups=frozenset({("default", "PG_SHOP")}))
    check_origin(known, Origin("default", "PG_SHOP", "h" * 128))

    with pytest.raises(error):
        check_origin(known, origin)
