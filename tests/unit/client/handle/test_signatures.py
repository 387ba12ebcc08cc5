"""A handler that can never work is refused when it is declared, by its name and with what to write instead."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Annotated, Any, Optional

import pytest
from pydantic import BaseModel
from typing_extensions import TypeAliasType

from msgbroker.client import InvalidSettingError, Message, MessageCenter
from msgbroker.client.testing import InMemoryCenter


def declare(function: Callable[..., Any], body: Any = None) -> None:
    MessageCenter().subscriber(group="SG", topic="TP", body=body)(function)


def refusal_of(function: Callable[..., Any]) -> str:
    with pytest.raises(InvalidSettingError) as refused:
        declare(function)
    return refused.value.message


async def in_parts(message: Message) -> AsyncIterator[None]:
    yield


class InParts:
    async def __call__(self, message: Message) -> AsyncIterator[None]:
        yield

    async def in_parts(self, message: Message) -> AsyncIterator[None]:
        yield


def counted(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return wrapper


def awaited(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    async def wrapper(*args: Any, **kwargs: Any) -> Any:
        return await function(*args, **kwargs)

    return wrapper


class Decorated:
    __call__ = counted(InParts.__call__)


@pytest.mark.parametrize(
    "function",
    [
        in_parts,
        functools.partial(in_parts),
        InParts(),
        InParts().in_parts,
        functools.partial(InParts()),
        counted(in_parts),
        awaited(in_parts),
        counted(awaited(in_parts)),
        functools.partial(awaited(InParts().in_parts)),
        Decorated(),
    ],
    ids=range(10),
)
def test_an_asynchronous_generator_is_refused_in_every_disguise(function: Callable[..., Any]) -> None:
    refusal = refusal_of(function)
    assert refusal.split(" is a ")[0].casefold().replace("_", "").endswith(("inparts", "inparts.call", "decorated"))
    assert "is a generator function: a call of it runs none of its lines; write it without yield" in refusal


async def take_list(messages: list[Message]) -> None: ...
async def take_sequence(messages: Sequence[Message]) -> None: ...
async def take_optional(message: Message | None) -> None: ...
async def take_optional_too(order: dict[str, Any], message: Optional[Message] = None) -> None: ...  # noqa: UP045
async def take_named(*, message: Message) -> None: ...
async def take_named_too(order: dict[str, Any], *, message: Message) -> None: ...
async def take_any_named(**kwargs: Any) -> None: ...
async def take_anything(*args: Any, **kwargs: Any) -> None: ...
async def take_nothing() -> None: ...


@pytest.mark.parametrize(
    "function, problem",
    [
        (take_list, "asks for list[Message] in 'messages': it is called for each message"),
        (take_sequence, "[Message] in 'messages': it is called for each message, and always gets one: write messages:"),
        (take_optional, "in 'message': it is called for each message, and always gets one: write message: Message"),
        (take_optional_too, "in 'message': it is called for each message, and always gets one: write message: Message"),
        (take_named, "asks for 'message' by keyword, and nothing is given by keyword: write it without the *"),
        (take_named_too, "asks for 'message' by keyword, and nothing is given by keyword: write it without the *"),
        (take_any_named, "must take one parameter, or two: a body and a Message; where a decorator takes (*args"),
        (take_anything, "must take one parameter, or two: a body and a Message; where a decorator takes (*args"),
        (take_nothing, "must take one parameter, or two: a body and a Message"),
    ],
)
def test_what_it_could_never_be_called_with_is_refused(function: Callable[..., Any], problem: str) -> None:
    refusal = refusal_of(function)
    assert refusal.startswith(f"handler {function.__name__} ")
    assert problem in refusal


def give(value: Any, *, named: str = "") -> None: ...


Alias = Message


def test_a_body_that_is_given_as_text_is_found_or_refused() -> None:
    declare(give, body="Mine")
    with pytest.raises(InvalidSettingError, match=r"give has an annotation that cannot be read here .*'Undefined'"):
        declare(give, body="Undefined")


async def annotated(message: Annotated[Message, "documented"]) -> None: ...
async def aliased(message: Alias) -> None: ...
async def with_defaults(order: dict[str, Any], message: Message, count: int = 1, *, dry: bool = False) -> None: ...
async def with_an_unreadable_default(message: Message, session: Session = None) -> None: ...  # type: ignore[name-defined]  # noqa: F821
async def with_all_the_rest(message: Message, *args: Any, **kwargs: Any) -> None: ...


@pytest.mark.parametrize(
    "function",
    [
        annotated,
        aliased,
        with_defaults,
        with_an_unreadable_default,
        with_all_the_rest,
        counted(with_defaults),
        functools.partial(give, named="x"),
    ],
)
def test_what_it_can_be_called_with_is_taken(function: Callable[..., Any]) -> None:
    declare(function)


async def test_another_name_for_a_type_is_that_type() -> None:
    seen: list[object] = []
    async with InMemoryCenter() as center:
        of_topic = functools.partial(center.subscriber, group="SG", topic="TP")
        of_topic(event_code="EC_TEXT", body=TypeAliasType("Text", str))(seen.append)
        of_topic(event_code="EC_MESSAGE", body=TypeAliasType("Mail", Annotated[Message, "documented"]))(seen.append)
        await center.start()
        await center.publish("TP", "EC_TEXT", "no JSON")
        await center.settle_all()
        assert seen == ["no JSON"]
        await center.publish("TP", "EC_MESSAGE", "no JSON either")
        await center.settle_all()

    assert [isinstance(each, kind) for each, kind in zip(seen, (str, Message), strict=True)] == [True, True]


async def test_a_handler_may_use_what_is_defined_further_down() -> None:
    seen: list[str] = []
    async with InMemoryCenter() as center:

        @center.subscriber(group="SG", topic="TP")
        async def handle(order: dict[str, Any], message: Message) -> None:
            seen.append(describe(order))

        def describe(order: dict[str, Any]) -> str:
            return f"order {order['number']}"

        await center.start()
        await center.publish("TP", "EC", {"number": 1})
        await center.settle_all()

    assert seen == ["order 1"]


class Mine(BaseModel):
    number: int


async def test_a_class_of_ones_own_called_message_is_what_it_says() -> None:
    seen: list[object] = []

    def declare_here() -> None:
        Message = Mine  # noqa: N806

        @center.subscriber(group="SG", topic="TP")
        async def handle(order: Message) -> None:  # type: ignore[valid-type]
            seen.append((order, Message))

    async with InMemoryCenter() as center:
        declare_here()
        await center.start()
        await center.publish("TP", "EC", {"number": 1})
        await center.settle_all()

    assert seen == [(Mine(number=1), Mine)]


async def test_a_plain_decorator_may_run_a_generator() -> None:
    seen: list[str] = []

    def run_through(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def wrapper(message: Message) -> None:
            seen.extend(function(message))

        return wrapper

    async with InMemoryCenter() as center:

        @center.subscriber(group="SG", topic="TP")
        @run_through
        def handle(message: Message) -> Any:
            yield message.text()

        await center.start()
        await center.publish("TP", "EC", "1")
        await asyncio.wait_for(center.settle_all(), 10)

    assert seen == ["1"]
