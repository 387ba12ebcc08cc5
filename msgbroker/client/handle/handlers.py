"""Handlers: what the user's function wants, and which handler of a group a message goes to."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, TypedDict

from msgbroker.client.handle.signatures import (
    HandlerFunction,
    is_async,
    name_of_handler,
    read_signature,
    refuse_generators,
)
from msgbroker.client.values.bodies import Decoder, decoder_for
from msgbroker.client.values.message import Message
from msgbroker.client.values.options import check_options, check_types
from msgbroker.client.values.registration import Registration
from msgbroker.contract import limits
from msgbroker.contract.errors import InvalidSettingError
from msgbroker.contract.names import ANY_EVENT_CODE, check_event_code, check_group, check_topic

_CONCURRENCY_MAX = 10_000


@dataclass(frozen=True, slots=True)
class Handler:
    """One function that handles one message type of one group."""

    group: str
    topic: str
    event_code: str
    """`*`: every event code that no other handler of the group names."""
    invoke: Callable[[Message], Any]
    is_async: bool
    concurrency: int
    credit: int | None
    timeout_seconds: float | None
    registration: Registration | None


class _RequiredOptions(TypedDict):
    group: str
    topic: str


class SubscriberOptions(_RequiredOptions, total=False):
    """The keyword arguments of `subscriber`; `MessageCenter.subscriber` says what each does."""

    event_code: str
    concurrency: int
    credit: int | None
    timeout_seconds: float | None
    body: Any
    register: bool
    expression: str | None
    from_beginning: bool


@dataclass(frozen=True, slots=True)
class HandlerOptions:
    """What was given to a `subscriber` call, with the defaults for what was not."""

    group: str
    topic: str
    event_code: str = ANY_EVENT_CODE
    concurrency: int = 64
    credit: int | None = None
    timeout_seconds: float | None = None
    body: Any = None
    register: bool = False
    expression: str | None = None
    from_beginning: bool = False


_OPTION_TYPES: Final[dict[str, tuple[type, ...]]] = {
    "group": (str,),
    "topic": (str,),
    "event_code": (str,),
    "concurrency": (int,),
    "credit": (int, types.NoneType),
    "timeout_seconds": (float, int, types.NoneType),
    "body": (object,),
    "register": (bool,),
    "expression": (str, types.NoneType),
    "from_beginning": (bool,),
}


def make_options(given: SubscriberOptions) -> HandlerOptions:
    """Return the options of a `subscriber` call, or raise InvalidSettingError that names the odd one."""
    check_options("subscriber", given, _OPTION_TYPES)
    for name in ("group", "topic"):
        if name not in given:
            raise InvalidSettingError(name, f'is missing: subscriber({name}="...") needs it')
    check_types(given, _OPTION_TYPES)
    return HandlerOptions(**given)


def make_handler(function: HandlerFunction, options: HandlerOptions) -> Handler:
    """Return the handler that *function* is, or raise InvalidSettingError or InvalidNameError."""
    check_group(options.group)
    check_topic(options.topic)
    if options.event_code != ANY_EVENT_CODE:
        check_event_code(options.event_code)
    if not 1 <= options.concurrency <= _CONCURRENCY_MAX:
        raise InvalidSettingError("concurrency", f"is {options.concurrency}; 1 to {_CONCURRENCY_MAX}")
    if options.credit is not None and not 1 <= options.credit <= limits.CREDIT_MAX:
        raise InvalidSettingError("credit", f"is {options.credit}; 1 to {limits.CREDIT_MAX}")
    if options.timeout_seconds is not None and options.timeout_seconds <= 0:
        raise InvalidSettingError("timeout_seconds", "must be more than 0")
    refuse_generators(function)
    registration = None
    if options.register:
        registration = Registration(
            options.topic,
            options.event_code,
            group=options.group,
            expression=options.expression or "",
            from_beginning=options.from_beginning,
        )
    return Handler(
        group=options.group,
        topic=options.topic,
        event_code=options.event_code,
        invoke=_invoker(function, options.body),
        is_async=is_async(function),
        concurrency=options.concurrency,
        credit=options.credit,
        timeout_seconds=options.timeout_seconds,
        registration=registration,
    )


class HandlerTable:
    """Knows which handler of one group a message goes to, by its type."""

    def __init__(self) -> None:
        self._by_topic: dict[str, dict[str, Handler]] = {}

    def add(self, handler: Handler) -> None:
        """Add a handler; two of the same message type would compete, so that is refused."""
        of_topic = self._by_topic.setdefault(handler.topic, {})
        if handler.event_code in of_topic:
            raise InvalidSettingError(
                "handler", f"of {handler.group} for {handler.topic}/{handler.event_code} exists already"
            )
        of_topic[handler.event_code] = handler

    def __iter__(self) -> Iterator[Handler]:
        return (handler for of_topic in self._by_topic.values() for handler in of_topic.values())

    def find(self, topic: str, event_code: str) -> Handler | None:
        """Return the handler of a message type, if there is one."""
        of_topic = self._by_topic.get(topic)
        if of_topic is None:
            return None
        return of_topic.get(event_code) or of_topic.get(ANY_EVENT_CODE)

    def find_only(self, topic: str) -> Handler | None:
        """Return the handler that takes all of the topic, if there is exactly such a one."""
        of_topic = self._by_topic.get(topic)
        return of_topic.get(ANY_EVENT_CODE) if of_topic is not None and len(of_topic) == 1 else None


def _invoker(function: HandlerFunction, body: Any) -> Callable[[Message], Any]:
    """Return *function* as a function of a Message."""
    try:
        asked = read_signature(function, body)
        if asked.body is Message:
            return function
        decode: Decoder = decoder_for(asked.body)
    except InvalidSettingError as error:
        problem = error.message.removeprefix("handler ")
        raise InvalidSettingError("handler", f"{name_of_handler(function)} {problem}") from error
    if asked.has_message_too:
        return lambda message: function(decode(message.body), message)
    return lambda message: function(decode(message.body))
