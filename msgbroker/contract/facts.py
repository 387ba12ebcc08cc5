"""Facts: what an error is about, as values of declared types.

A leaf declares each of its facts once, as a class attribute. An error keeps what it was told in `facts`, and each
attribute gives its own of them, typed. On the wire facts are text; they are read by the same declarations, so that an
error is the same whether it was raised here or there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Final, Generic, Protocol, Self, TypeVar, cast, overload

T = TypeVar("T")

FactValue = str | int | float | bool
"""Words of a given list are a StrEnum, and so text."""


class _Told(Protocol):
    facts: dict[str, FactValue]


class Fact(Generic[T]):
    """A declared fact: of an error it gives the value, and *unknown* where that was not told, or makes no sense."""

    def __init__(self, kind: type[T], unknown: T) -> None:
        self._kind = kind
        self._unknown = unknown
        self._name = ""

    def __set_name__(self, owner: type[object], name: str) -> None:
        self._name = name

    @overload
    def __get__(self, error: None, owner: type[object]) -> Self: ...

    @overload
    def __get__(self, error: _Told, owner: type[object]) -> T: ...

    def __get__(self, error: _Told | None, owner: type[object]) -> Self | T:
        if error is None:
            return self
        value = error.facts.get(self._name)
        return value if isinstance(value, self._kind) else self._unknown

    def typed(self, value: object) -> FactValue:
        """Return *value*, or what its text says, in the declared type; what makes no sense stays text."""
        if isinstance(value, self._kind) and isinstance(value, FactValue):
            return value
        text = str(value)
        # Of others (words of a given list) the class reads it.
        read = _READERS.get(self._kind) or cast("Callable[[str], FactValue]", self._kind)
        try:
            return read(text)
        except ValueError:
            # Facts only decorate an error; a broken decoration must not hide it.
            return text


def _flag(text: str) -> bool:
    if text not in {"True", "False"}:
        raise ValueError(text)
    return text == "True"


def _number(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(text)
    return number


_READERS: Final[Mapping[type, Callable[[str], FactValue]]] = {bool: _flag, float: _number}


_declared: dict[type[object], Mapping[str, Fact[Any]]] = {}


def declared_facts(kind: type[object]) -> Mapping[str, Fact[Any]]:
    """Return the facts that a class of errors declares, those of its family included."""
    declared = _declared.get(kind)
    if declared is None:
        declared = _declared[kind] = {
            name: fact for base in reversed(kind.__mro__) for name, fact in vars(base).items() if isinstance(fact, Fact)
        }
    return declared


def typed_facts(kind: type[object], facts: Mapping[str, object]) -> dict[str, FactValue]:
    """Return *facts* in the types that *kind* declares; what is None was not told, what it does not know stays text."""
    declared = declared_facts(kind)
    told = {name: value for name, value in facts.items() if value is not None}
    return {name: declared[name].typed(value) if name in declared else str(value) for name, value in told.items()}


def text_of(value: FactValue) -> str:
    """Return a fact as it goes over the wire: 30 and not 30.0, and otherwise as Python writes it."""
    return repr(value).removesuffix(".0") if isinstance(value, float) else str(value)
