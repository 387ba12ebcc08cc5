"""What a caller gets wrong is refused in his own line, by the name of the argument and what is wanted."""

from __future__ import annotations

import math
from collections.abc import Callable
from enum import StrEnum
from typing import Any

import grpc
import pydantic
import pytest

from msgbroker.client import (
    BodyTooLargeError,
    InvalidHeadersError,
    InvalidKeyError,
    InvalidNameError,
    InvalidRequestError,
    InvalidSettingError,
    Message,
    MessageCenter,
    MessageCenterError,
    OutgoingMessage,
    PublishTimeoutError,
    Receipt,
)
from msgbroker.client.testing import InMemoryCenter


@pytest.mark.parametrize(
    "arguments, error, wording",
    [
        ({"key": 3}, InvalidKeyError, "key is 3 of type int; it must be a str"),
        ({"key": 0}, InvalidKeyError, "key is 0 of type int; it must be a str"),
        ({"key": None}, InvalidKeyError, "key is None of type NoneType; it must be a str"),
        ({"ordering_key": b"x"}, InvalidKeyError, "ordering key is b'x' of type bytes; it must be a str"),
        ({"topic": 3}, InvalidNameError, "topic '3' is of type int; it must be a str"),
        ({"event_code": ["EC"]}, InvalidNameError, "is of type list; it must be a str"),
        ({"headers": ["a"]}, InvalidHeadersError, "of type list; a dict of str to str is wanted"),
    ],
)
async def test_an_argument_of_another_type_is_named(
    arguments: dict[str, Any], error: type[MessageCenterError], wording: str
) -> None:
    async with InMemoryCenter() as center:
        with pytest.raises(error) as refused:
            await center.publish(**{"topic": "TP", "event_code": "EC", **arguments})
        assert wording in refused.value.message
        assert center.published == []


async def test_names_may_be_an_enum() -> None:
    class Topic(StrEnum):
        TRADE = "TP_TRADE"

    async with InMemoryCenter() as center:
        await center.publish(Topic.TRADE, "EC", key="k")
        assert [message.topic for message in center.published] == ["TP_TRADE"]


async def test_publish_many_says_what_it_takes() -> None:
    tuples: Any = [OutgoingMessage("TP", "EC"), ("TP", "EC", b"")]
    async with InMemoryCenter() as center:
        _, wrong = await center.publish_many(tuples)
    assert isinstance(wrong, InvalidSettingError)
    assert wrong.message.startswith("messages[1] is of type tuple; OutgoingMessage(topic, event")


def in_itself() -> Any:
    body: dict[str, Any] = {}
    body["self"] = body
    return body


def too_deep() -> Any:
    body: list[Any] = []
    for _ in range(100_000):
        body = [body]
    return body


class Anything(pydantic.BaseModel):
    it: Any


@pytest.mark.parametrize(
    "make", [in_itself, too_deep, lambda: Anything(it=object()), lambda: {"in": Anything(it=chr(0xD800))}]
)
async def test_a_body_that_json_has_no_form_for_is_refused_and_its_neighbours_are_stored(
    make: Callable[[], Any],
) -> None:
    async with InMemoryCenter() as center:
        with pytest.raises(InvalidRequestError) as refused:
            await center.publish("TP", "EC", make())
        first, wrong, last = await center.publish_many(
            OutgoingMessage("TP", "EC", body) for body in ("first", make(), "last")
        )

    assert refused.value.reason == "INVALID_FIELD"
    assert refused.value.message.startswith("body cannot be written as JSON: ")
    assert [type(answer) for answer in (first, wrong, last)] == [Receipt, type(refused.value), Receipt]


@pytest.mark.parametrize(
    "options, wording",
    [
        ({"group": "SG", "topic": "TP", "concurency": 3}, "concurency is no argument of subscriber: did you mean 'con"),
        ({"group": "SG", "topic": "TP", "zzz": 3}, "zzz is no argument of subscriber: it takes group, topic, "),
        ({"topic": "TP"}, "group is missing"),
        ({"group": "SG", "topic": 3}, "topic is 3 of type int; str is wanted"),
        ({"group": "SG", "topic": "TP", "concurrency": "4"}, "concurrency is '4' of type str; int is wanted"),
        ({"group": "SG", "topic": "TP", "concurrency": True}, "concurrency is True of type bool; int is wanted"),
        ({"group": "SG", "topic": "TP", "timeout_seconds": "4"}, "float or int or None is wanted"),
        ({"group": "SG", "topic": "TP", "timeout_seconds": math.nan}, "timeout_seconds is nan, which is no number"),
    ],
)
def test_options_of_a_subscriber_are_checked_by_name(options: dict[str, Any], wording: str) -> None:
    with pytest.raises(InvalidSettingError) as refused:
        MessageCenter().subscriber(**options)
    assert wording in refused.value.message


@pytest.mark.parametrize(
    "settings, wording",
    [
        ({"publish_timeout_seconds": "30"}, "publish_timeout_seconds is '30' of type str; float or int or None is wan"),
        ({"publish_timeout_seconds": math.nan}, "publish_timeout_seconds is nan, which is no number"),
        ({"answer_timeout_seconds": None}, "answer_timeout_seconds is None of type NoneType; float or int is wanted"),
        ({"connect_timeout_seconds": True}, "connect_timeout_seconds is True of type bool; float or int is wanted"),
        ({"backoff_initial_seconds": b"1"}, "backoff_initial_seconds is b'1' of type bytes"),
        ({"backoff_max_seconds": math.nan}, "backoff_max_seconds is nan"),
        ({"drain_timeout_seconds": math.nan}, "drain_timeout_seconds is nan"),
        ({"unanswered_messages_max": 2.5}, "unanswered_messages_max is 2.5 of type float; int is wanted"),
        ({"unanswered_bytes_max": "100"}, "unanswered_bytes_max is '100' of type str; int is wanted"),
        ({"on_unavailable": ["wait"]}, "on_unavailable is ['wait'] of type list; str is wanted"),
        ({"namespace": None}, "namespace is None of type NoneType; str is wanted"),
        ({"publisher_group": 3}, "publisher_group is 3 of type int; str is wanted"),
        ({"instance_id": 3}, "instance_id is 3 of type int; str or None is wanted"),
        ({"credentials": "a secret"}, "credentials is of type str; grpc.ChannelCredentials or None is wanted"),
        ({"addresses": 7400}, "addresses has 7400 of type int; host:port is wanted, or a list of them"),
        ({"addresses": None}, "addresses has None of type NoneType"),
        ({"addresses": ["a:1", None]}, "addresses has None of type NoneType"),
        ({"addresses": b"a:1"}, "addresses has 97 of type int"),
    ],
    ids=repr,
)
def test_settings_of_a_center_are_checked_by_name(settings: dict[str, Any], wording: str) -> None:
    with pytest.raises(InvalidSettingError) as refused:
        MessageCenter(**settings)
    assert wording in refused.value.message


def test_settings_of_every_type_that_is_wanted_are_taken() -> None:
    MessageCenter(
        ["a:1", " b:2 "],
        instance_id=None,
        publish_timeout_seconds=math.inf,
        answer_timeout_seconds=10,
        credentials=grpc.ssl_channel_credentials(),
    )


def test_an_unknown_setting_of_a_center_is_named() -> None:
    settings: dict[str, Any] = {"publish_timeout": 3}
    with pytest.raises(InvalidSettingError, match="did you mean 'publish_timeout_seconds'"):
        MessageCenter(**settings)


def test_a_handler_that_does_not_say_what_it_takes_is_named_with_the_remedy() -> None:
    def unannotated(order, message) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001
        ...

    def half(order: dict[str, Any], message) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001
        ...

    def twice(order: Message, message: Message) -> None: ...

    def three(first: str, second: Message, third: int) -> None: ...

    def wrong(connection: object, number: int) -> None: ...

    problems: dict[Any, str] = {
        unannotated: "does not say what 'order' is: annotate the body (dict, list, str, bytes or a pydantic model)",
        half: "does not say that 'message' is the Message",
        twice: "asks for the message twice",
        three: "must take one parameter, or two",
        wrong: "does not say that 'number' is the Message",
    }
    for function, problem in problems.items():
        with pytest.raises(InvalidSettingError) as refused:
            MessageCenter().subscriber(group="SG", topic="TP")(function)
        assert f"{function.__name__} {problem}" in refused.value.message


async def test_a_single_parameter_without_annotation_gets_the_message() -> None:
    seen: list[object] = []
    async with InMemoryCenter() as center:

        @center.subscriber(group="SG", topic="TP")
        async def handle(it) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001
            seen.append(it)

        await center.start()
        await center.publish("TP", "EC", "text")
        await center.settle_all()
    assert [isinstance(it, Message) for it in seen] == [True]


async def test_a_body_that_no_topic_may_take_is_not_called_over_this_topics_limit() -> None:
    async with InMemoryCenter() as center:
        with pytest.raises(BodyTooLargeError, match="5000000 bytes; no topic may take more than 4194304") as refused:
            await center.publish("TP", "EC", bytes(5_000_000))
    assert refused.value.reason == "BODY_TOO_LARGE"


@pytest.mark.parametrize("timeout_seconds", [None, 0.2])
async def test_a_publish_timeout_names_the_address(timeout_seconds: float | None) -> None:
    async with MessageCenter("127.0.0.1:1", publish_timeout_seconds=0.2, drain_timeout_seconds=0) as center:
        with pytest.raises(PublishTimeoutError, match=r"no answer from 127\.0\.0\.1:1 within 0\.2 s"):
            await center.publish("TP", "EC", timeout_seconds=timeout_seconds)
