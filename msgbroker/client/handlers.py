"""Handlers: what the user's function wants, and which handler of a group a message goes to."""

from __future__ import annotations

import functools
import inspect
import types
import typing
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, TypedDict

from msgbroker.client.bodies import Decoder, decoder_for
from msgbroker.client.message import Message
from msgbroker.client.options import check_options, check_types
from msgbroker.contract import limits
from msgbroker.contract.errors import InvalidSettingError
from msgbroker.contract.names import ANY_EVENT_CODE, check_event_code, check_group, check_topic

HandlerFunction = Callable[..., Any]

_CONCURRENCY_MAX = 10_000


@dataclass(frozen=True, slots=True)
class Registration:
    """What to register before a group subscribes (development only)."""

    topic: str
    event_code: str
    group: str
    expression: str
    from_beginning: bool


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
    """`SubscriberOptions` with their defaults."""

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
    _refuse_generators(function)
    registration = None
    if options.register:
        registration = Registration(
            options.topic, options.event_code, options.group, options.expression or "", options.from_beginning
        )
    return Handler(
        options.group,
        options.topic,
        options.event_code,
        _invoker(function, options.body),
        _is_async(function),
        options.concurrency,
        options.credit,
        options.timeout_seconds,
        registration,
    )


class HandlerTable:
    """The handlers of one group, by message type."""

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


def _is_async(function: HandlerFunction) -> bool:
    return _is(inspect.iscoroutinefunction, function)


def _refuse_generators(function: HandlerFunction) -> None:
    """Raise InvalidSettingError where a call makes something to be iterated over, and nobody would."""
    if _is(inspect.isgeneratorfunction, function) or _is(inspect.isasyncgenfunction, function):
        raise InvalidSettingError(
            "handler",
            f"{_name(function)} is a generator function: a call of it runs none of its lines; write it without yield",
        )


def _is(kind: Callable[[object], bool], function: HandlerFunction) -> bool:
    while isinstance(function, functools.partial):
        function = function.func
    # An object may have a __call__ of that kind.
    return kind(function) or kind(getattr(function, "__call__", None))  # noqa: B004


def _invoker(function: HandlerFunction, body: Any) -> Callable[[Message], Any]:
    """Return *function* as a function of a Message."""
    try:
        wanted, wants_message_too = _wanted(function, body)
        if wanted is Message:
            return function
        decode: Decoder = decoder_for(wanted)
    except InvalidSettingError as error:
        raise InvalidSettingError("handler", f"{_name(function)} {error.message.removeprefix('handler ')}") from error
    if wants_message_too:
        return lambda message: function(decode(message.body), message)
    return lambda message: function(decode(message.body))


def _wanted(function: HandlerFunction, body: Any) -> tuple[Any, bool]:
    try:
        parameters = [
            parameter
            for parameter in inspect.signature(function).parameters.values()
            if parameter.kind in {parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD}
        ]
    except ValueError as error:
        raise InvalidSettingError("handler", f"has no readable signature: {error}") from error
    required = [parameter for parameter in parameters if parameter.default is parameter.empty]
    if not parameters or len(required) > 2:
        raise InvalidSettingError("handler", "must take one parameter, or two: a body and a Message")
    # With `body=` the first annotation may be one that cannot be read here.
    to_read = parameters[1:2] if body is not None else parameters[:2]
    hints = _hints(function, [parameter for parameter in to_read if isinstance(parameter.annotation, str)])
    first = parameters[0]
    wanted = body or hints.get(first.name, first.annotation)
    if wanted in {first.empty, Any}:
        wanted = Message
    second = hints.get(parameters[1].name, parameters[1].annotation) if len(parameters) > 1 else None
    wants_message_too = second is Message and wanted is not Message
    if len(required) == 2 and not wants_message_too:
        raise InvalidSettingError("handler", _why_not_two(parameters, wanted))
    return wanted, wants_message_too


def _why_not_two(parameters: list[inspect.Parameter], wanted: object) -> str:
    """Return why a handler cannot have these two parameters, and what to write instead."""
    first, second = parameters[0].name, parameters[1].name
    if parameters[0].annotation is inspect.Parameter.empty:
        problem = f"does not say what {first!r} is"
    elif wanted is Message:
        problem = f"asks for the message twice: {first!r} is a Message already"
    else:
        problem = f"does not say that {second!r} is the Message"
    return (
        f"{problem}: annotate the body (dict, list, str, bytes or a pydantic model), and the second parameter "
        f"with Message, as in ({first}: dict, {second}: Message); or take one parameter, the Message"
    )


def _name(function: HandlerFunction) -> str:
    while isinstance(function, functools.partial):
        function = function.func
    return str(getattr(function, "__qualname__", type(function).__qualname__))


def _hints(function: HandlerFunction, unresolved: list[inspect.Parameter]) -> dict[str, Any]:
    """Return the annotations of parameters that are written as text (`from __future__ import annotations`)."""
    target: Any = function
    while isinstance(target, functools.partial):
        target = target.func
    target = inspect.unwrap(target)
    if not inspect.isroutine(target):
        target = type(target).__call__
    variables = inspect.getclosurevars(target).nonlocals if inspect.isfunction(target) else {}
    scope = {**getattr(target, "__globals__", {}), **variables}
    written = types.SimpleNamespace(__annotations__={parameter.name: parameter.annotation for parameter in unresolved})
    try:
        return typing.get_type_hints(written, globalns=scope, localns={"Message": Message})
    except NameError as error:
        raise InvalidSettingError(
            "handler",
            f"has an annotation that cannot be read here ({error}); define it at module level, or give body=...",
        ) from error
