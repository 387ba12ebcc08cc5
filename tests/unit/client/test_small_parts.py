"""Credit, addresses, backoff, error translation: the small pure parts."""

from __future__ import annotations

import random
from typing import Any

import grpc
import pytest

from msgbroker.client import (
    BrokerUnavailableError,
    InvalidNameError,
    InvalidSettingError,
    MessageCenter,
    NotFoundError,
    Release,
    ResourceExhaustedError,
    RetryAfter,
    TopicNotFoundError,
)
from msgbroker.client.connect.addresses import Addresses, Backoff
from msgbroker.client.connect.failures import from_refusal, from_rpc_error
from msgbroker.client.subscribe.credit import CreditGauge
from msgbroker.client.values.bodies import encode_body
from msgbroker.v1 import message_pb2


def test_credit_follows_the_speed_of_the_handlers() -> None:
    gauge = CreditGauge(8, 1_000, 0.0)

    assert gauge.credit == 8
    assert gauge.observe(10, 0.05) is None
    assert gauge.observe(100, 0.1) == 500
    assert gauge.observe(330, 0.31) is None
    assert gauge.observe(10_000, 0.5) == 1_000
    assert gauge.observe(10_010, 10.5) == 8


def test_credit_is_no_more_than_the_group_allows() -> None:
    gauge = CreditGauge(64, 1_000, 0.0)
    gauge.cap(10)

    assert gauge.credit == 10
    assert gauge.observe(1_000, 1.0) is None


def test_addresses_are_tried_in_turn_the_given_ones_first() -> None:
    addresses = Addresses(["a", "b"])
    addresses.learn(["b", "c"])
    seen = []
    for _ in range(4):
        seen.append(addresses.current())
        addresses.advance()

    assert seen == ["a", "b", "c", "a"]


def test_preferred_addresses_are_tried_once_each() -> None:
    addresses = Addresses(["a"])
    addresses.prefer(["x", "y"])
    seen = []
    for _ in range(3):
        seen.append(addresses.current())
        addresses.advance()

    assert seen == ["x", "y", "a"]


def test_learning_keeps_the_place() -> None:
    addresses = Addresses(["a", "b"])
    addresses.learn(["c", "d"])
    for _ in range(3):
        addresses.advance()
    addresses.learn(["d"])
    assert addresses.current() == "d"
    addresses.learn([])
    assert addresses.current() == "a"


def test_waits_double_up_to_the_most_and_begin_anew_after_a_success() -> None:
    backoff = Backoff(1.0, 4.0, random.Random(1))
    waits = [backoff.next_seconds() for _ in range(4)]

    assert all(bound / 2 <= wait <= bound for wait, bound in zip(waits, [1, 2, 4, 4], strict=True))
    backoff.reset()
    assert backoff.next_seconds() <= 1.0
    assert backoff.next_seconds(at_least_seconds=9.0) == 9.0


def rpc_error(code: grpc.StatusCode, *metadata: tuple[str, Any]) -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(*metadata), "details")


def test_a_brokers_error_comes_back_as_itself() -> None:
    error = from_rpc_error(
        rpc_error(
            grpc.StatusCode.NOT_FOUND,
            ("msgcenter-reason", "TOPIC_NOT_FOUND"),
            ("msgcenter-facts-bin", b'{"topic": "TP"}'),
        ),
        "b:1",
    )

    assert type(error) is TopicNotFoundError
    assert (error.message, error.facts) == ("details", {"topic": "TP"})


def test_broken_facts_do_not_hide_the_error() -> None:
    error = from_rpc_error(
        rpc_error(grpc.StatusCode.NOT_FOUND, ("msgcenter-reason", "TOPIC_NOT_FOUND"), ("msgcenter-facts-bin", b"{")),
        "b:1",
    )
    assert (type(error), error.facts) == (TopicNotFoundError, {})


@pytest.mark.parametrize(
    "code, kind",
    [
        (grpc.StatusCode.UNAVAILABLE, BrokerUnavailableError),
        (grpc.StatusCode.INTERNAL, BrokerUnavailableError),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, ResourceExhaustedError),
    ],
)
def test_an_error_of_grpc_itself_becomes_its_family(code: grpc.StatusCode, kind: type[Exception]) -> None:
    error = from_rpc_error(rpc_error(code), "b:1")
    assert type(error) is kind
    assert "b:1" in error.message


def test_a_refusal_of_a_newer_broker_becomes_its_family_and_keeps_its_reason() -> None:
    error = from_refusal(message_pb2.Refusal(reason="MOON_PHASE_NOT_FOUND", status="NOT_FOUND", message="no moon"))
    assert (type(error), error.reason, str(error)) == (NotFoundError, "MOON_PHASE_NOT_FOUND", "no moon")


@pytest.mark.parametrize("retryable", [True, False])
@pytest.mark.parametrize("status", ["UNAVAILABLE", "NOT_FOUND", "MOON_STATUS"])
def test_of_what_it_does_not_know_the_broker_says_whether_to_try_again(status: str, retryable: bool) -> None:
    error = from_refusal(message_pb2.Refusal(reason="NEW_REASON", status=status, retryable=retryable))

    assert (error.reason, error.retryable) == ("NEW_REASON", retryable)
    assert from_refusal(message_pb2.Refusal(reason="TOPIC_NOT_FOUND", retryable=retryable)).retryable is False


def test_a_fact_may_have_any_name() -> None:
    facts = {"message": "hello", "self": "me", "reason": "why", "error": "", "": "nothing"}
    error = from_refusal(message_pb2.Refusal(reason="NEW_REASON", message="no", facts=facts))

    assert (error.message, error.facts) == ("no", facts)


def test_bodies_become_bytes() -> None:
    assert encode_body("文") == "文".encode()
    assert encode_body({"a": ["文", 1]}) == '{"a":["文",1]}'.encode()
    assert encode_body(bytearray(b"x")) == b"x"
    assert encode_body({}) == b"{}"
    with pytest.raises(TypeError, match="int"):
        encode_body(1)  # type: ignore[arg-type]


@pytest.mark.parametrize("seconds", [-1, 7 * 86_400 + 1])
def test_delays_have_bounds(seconds: float) -> None:
    for verdict in (RetryAfter, Release):
        with pytest.raises(InvalidSettingError):
            verdict(seconds)


@pytest.mark.parametrize(
    "settings",
    [
        {"unanswered_messages_max": 0},
        {"on_unavailable": "panic"},
        {"publish_timeout_seconds": 0},
        {"connect_timeout_seconds": 0},
        {"drain_timeout_seconds": -1},
        {"addresses": []},
    ],
)
def test_settings_have_bounds(settings: dict[str, Any]) -> None:
    with pytest.raises(InvalidSettingError):
        MessageCenter(**settings)


def test_names_in_settings_are_checked() -> None:
    for settings in ({"namespace": "no good"}, {"publisher_group": "no good"}, {"instance_id": "no good"}):
        with pytest.raises(InvalidNameError):
            MessageCenter(**settings)  # type: ignore[arg-type]


def test_every_instance_has_a_name_of_its_own() -> None:
    assert MessageCenter().instance_id != MessageCenter().instance_id
    assert MessageCenter(instance_id="till-7").instance_id == "till-7"
