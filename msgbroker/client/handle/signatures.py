"""What a handler asks for, read from its signature when it is declared: what can never work is refused there."""

from __future__ import annotations

import functools
import inspect
import sys
import types
import typing
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from msgbroker.client.values.message import Message
from msgbroker.client.values.typed_bodies import name_of
from msgbroker.contract.errors import InvalidSettingError

HandlerFunction = Callable[..., Any]

_EMPTY: Final = inspect.Parameter.empty
_POSITIONAL: Final = {inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD}
_COLLECTING: Final = {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}


@dataclass(frozen=True, slots=True)
class Asked:
    """What a handler's signature asks to be called with."""

    body: Any
    """The type to read the body as; `Message` where the handler wants the message itself."""
    has_message_too: bool


def name_of_handler(function: HandlerFunction) -> str:
    """Return the name under which its author knows it."""
    while isinstance(function, functools.partial):
        function = function.func
    return str(getattr(function, "__qualname__", type(function).__qualname__))


def is_async(function: HandlerFunction) -> bool:
    """Whether a call of it makes a coroutine."""
    return _is(inspect.iscoroutinefunction, function)


def refuse_generators(function: HandlerFunction) -> None:
    """Raise InvalidSettingError where a call makes something to be iterated over, and nobody would.

    What an ordinary decorator makes of a generator function may work: whether it does is seen when it is called. An
    asynchronous one is always refused: what decorates handlers awaits them.
    """
    is_generator = _is(inspect.isgeneratorfunction, function)
    if is_generator or any(inspect.isasyncgenfunction(layer) for layer in _layers(function)):
        raise InvalidSettingError(
            "handler",
            f"{name_of_handler(function)} is a generator function: a call of it runs none of its lines; "
            "write it without yield",
        )


def read_signature(function: HandlerFunction, body: Any) -> Asked:
    """Return what *function* asks for; *body*, unless None, is what its first parameter is, whatever that says.

    Raises:
        InvalidSettingError: it can never be called, or does not say what it wants.
    """
    parameters = _parameters_of(function)
    positional = [parameter for parameter in parameters if parameter.kind in _POSITIONAL]
    required = [parameter for parameter in positional if parameter.default is _EMPTY]
    _refuse_uncallable(parameters, positional, required)
    first = positional[0]
    wanted = _taken_apart(_meant(function, first.annotation if body is None else body))
    if wanted is _EMPTY or wanted is Any:
        wanted = Message
    _refuse_message_inside(first, wanted)
    has_message_too = False
    if len(positional) > 1 and wanted is not Message:
        or_else = _EMPTY if len(required) < 2 else None
        second = _meant(function, positional[1].annotation, or_else)
        has_message_too = _taken_apart(second) is Message
        if not has_message_too:
            _refuse_message_inside(positional[1], second)
    if len(required) == 2 and not has_message_too:
        raise InvalidSettingError("handler", _why_not_two(required, wanted))
    return Asked(wanted, has_message_too)


def _parameters_of(function: HandlerFunction) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(function).parameters.values())
    except ValueError as error:
        raise InvalidSettingError("handler", f"has no readable signature: {error}") from error


def _refuse_uncallable(
    parameters: Sequence[inspect.Parameter],
    positional: Sequence[inspect.Parameter],
    required: Sequence[inspect.Parameter],
) -> None:
    for parameter in parameters:
        if parameter.kind is parameter.KEYWORD_ONLY and parameter.default is _EMPTY:
            raise InvalidSettingError(
                "handler",
                f"asks for {parameter.name!r} by keyword, and nothing is given by keyword: write it without the *, as "
                "in (order: dict, message: Message)",
            )
    if positional and len(required) <= 2:
        return
    advice = ""
    if not positional and any(parameter.kind in _COLLECTING for parameter in parameters):
        advice = "; where a decorator takes (*args, **kwargs), let it use functools.wraps"
    raise InvalidSettingError("handler", f"must take one parameter, or two: a body and a Message{advice}")


def _refuse_message_inside(parameter: inspect.Parameter, wanted: object) -> None:
    if wanted is not Message and _has_message(wanted):
        raise InvalidSettingError(
            "handler",
            f"asks for {name_of(wanted)} in {parameter.name!r}: it is called for each message, and always gets one: "
            f"write {parameter.name}: Message",
        )


def _why_not_two(parameters: Sequence[inspect.Parameter], wanted: object) -> str:
    """Return why a handler cannot have these two parameters, and what to write instead."""
    first, second = parameters[0].name, parameters[1].name
    if parameters[0].annotation is _EMPTY:
        problem = f"does not say what {first!r} is"
    elif wanted is Message:
        problem = f"asks for the message twice: {first!r} is a Message already"
    else:
        problem = f"does not say that {second!r} is the Message"
    return (
        f"{problem}: annotate the body (dict, list, str, bytes or a pydantic model), and the second parameter "
        f"with Message, as in ({first}: dict, {second}: Message); or take one parameter, the Message"
    )


# --- annotations ------------------------------------------------------------------------------------------------


def _taken_apart(annotation: Any) -> Any:
    """Return what *annotation* is another name of; of a Message what is said of it makes no difference."""
    while type(annotation).__name__ == "TypeAliasType":
        annotation = annotation.__value__
    if typing.get_origin(annotation) is typing.Annotated and _taken_apart(typing.get_args(annotation)[0]) is Message:
        return Message
    return annotation


def _has_message(annotation: Any) -> bool:
    return annotation is Message or any(_has_message(part) for part in _parts(annotation))


def _parts(annotation: Any) -> tuple[Any, ...]:
    """Return the types that a type is made of."""
    return () if typing.get_origin(annotation) is typing.Literal else typing.get_args(annotation)


def _is_text(annotation: Any) -> bool:
    """Whether it, or a part of it, is written as text (`from __future__ import annotations`)."""
    return isinstance(annotation, (str, typing.ForwardRef)) or any(_is_text(part) for part in _parts(annotation))


def _meant(function: HandlerFunction, annotation: Any, or_else: Any = None) -> Any:
    """Return what an annotation written as text means; *or_else*, unless None, where that cannot be told."""
    if not _is_text(annotation):
        return annotation
    written = types.SimpleNamespace(__annotations__={"it": annotation})
    try:
        return typing.get_type_hints(written, globalns=_scope_of(function), include_extras=True)["it"]
    except (NameError, AttributeError, TypeError, SyntaxError) as error:
        if or_else is not None:
            return or_else
        raise InvalidSettingError(
            "handler",
            f"has an annotation that cannot be read here ({error}); define it at module level, or give body=...",
        ) from error


def _scope_of(function: HandlerFunction) -> dict[str, Any]:
    """Return the names that the author of a handler could write in its annotations, as far as they are known by now."""
    *_, target = _layers(function)
    module = sys.modules.get(getattr(target, "__module__", None) or "")
    scope = {"Message": Message, **getattr(target, "__globals__", getattr(module, "__dict__", {}))}
    code = getattr(target, "__code__", None)
    for name, cell in zip(getattr(code, "co_freevars", ()), getattr(target, "__closure__", None) or (), strict=False):
        try:
            scope[name] = cell.cell_contents
        except ValueError:
            # What it stands for is defined further down.
            continue
    return scope


# --- functions behind functions ---------------------------------------------------------------------------------


def _layers(function: HandlerFunction) -> Iterator[Any]:
    """Yield *function* and what is behind it: of a partial, of a decorator that says what it wraps, of an object."""
    layer: Any = function
    seen: set[int] = set()
    while layer is not None and id(layer) not in seen:
        seen.add(id(layer))
        yield layer
        if isinstance(layer, functools.partial):
            layer = layer.func
        elif (wrapped := getattr(layer, "__wrapped__", None)) is not None:
            layer = wrapped
        elif inspect.isroutine(layer) or isinstance(layer, type):
            return
        else:
            layer = getattr(type(layer), "__call__", None)  # noqa: B004 - not whether, but which


def _is(kind: Callable[[object], bool], function: HandlerFunction) -> bool:
    while isinstance(function, functools.partial):
        function = function.func
    # An object may have a __call__ of that kind.
    return kind(function) or kind(getattr(function, "__call__", None))  # noqa: B004
