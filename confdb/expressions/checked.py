"""What a compiled expression is made of: the compiler's encoded `cel.expr.CheckedExpr`, taken apart.

Macros (`exists`, `all`, `exists_one`, `map`, `filter`) are `Loop`s here, as the compiler has expanded them, and
operators are calls. Field numbers are those of the specification's `cel/expr/syntax.proto` and `checked.proto`; no
generated code, because protobuf stays at the edges.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Final, TypeAlias

DEPTH_MAX: Final = 200
"""The parser allows 32 in the text; macros and operators make more of it."""

_STRING_VALUE, _BYTES_VALUE = 6, 7


class NotDecodedError(Exception):
    """The compiler's output is not in the form that is known here.

    Caught in `compiled`: such an expression is taken to cost as much as can be, and there is nothing to warn of.
    """


@dataclass(frozen=True, slots=True)
class Constant:
    """A literal; *text* of a string or of bytes, else None."""

    text: bytes | None


@dataclass(frozen=True, slots=True)
class Name:
    """A variable of an expression."""

    name: str


@dataclass(frozen=True, slots=True)
class Select:
    """`operand.field`; with *is_test* `has(operand.field)`."""

    operand: Node
    field: str
    is_test: bool


@dataclass(frozen=True, slots=True)
class Call:
    """A function or operator; a method's target is the first of *arguments*."""

    function: str
    arguments: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class ListOf:
    """A list literal of an expression."""

    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class MapOf:
    """A map literal, or a message with its fields: keys may be missing."""

    keys: tuple[Node, ...]
    values: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Loop:
    """A macro, expanded: *step* is evaluated for each element of *over*, and what it gives is *accumulator*."""

    variable: str
    over: Node
    accumulator: str
    start: Node
    condition: Node
    step: Node
    result: Node


Node: TypeAlias = Constant | Name | Select | Call | ListOf | MapOf | Loop

_Fields: TypeAlias = dict[int, list[bytes | int]]


def decode(serialized: bytes) -> Node:
    """Return the expression in *serialized*, the compiler's `google.protobuf.Any`. Raises NotDecodedError."""
    try:
        checked = _fields(_one(_fields(serialized), 2))
        return _node(_one(checked, 4), 0)
    except (IndexError, KeyError, TypeError, UnicodeDecodeError) as error:
        raise NotDecodedError(f"{type(error).__name__}: {error}") from error


def _node(encoded: bytes, depth: int) -> Node:
    if depth > DEPTH_MAX:
        raise NotDecodedError(f"is deeper than {DEPTH_MAX}")
    kinds = _fields(encoded)
    for number, decoder in _DECODERS.items():
        if number in kinds:
            return decoder(_fields(_one(kinds, number)), depth + 1)
    raise NotDecodedError(f"has only the fields {sorted(kinds)}")


def _constant(fields: _Fields, _: int) -> Node:
    for number in (_STRING_VALUE, _BYTES_VALUE):
        if number in fields:
            return Constant(_one(fields, number))
    return Constant(None)


def _name(fields: _Fields, _: int) -> Node:
    return Name(_text(fields, 1))


def _select(fields: _Fields, depth: int) -> Node:
    return Select(_node(_one(fields, 1), depth), _text(fields, 2), is_test=bool(fields.get(3, [0])[-1]))


def _call(fields: _Fields, depth: int) -> Node:
    return Call(_text(fields, 2), (*_nodes(fields, 1, depth), *_nodes(fields, 3, depth)))


def _list(fields: _Fields, depth: int) -> Node:
    return ListOf(_nodes(fields, 1, depth))


def _map(fields: _Fields, depth: int) -> Node:
    entries = [_fields(_bytes(encoded)) for encoded in fields.get(2, ())]
    keys = [node for entry in entries for node in _nodes(entry, 3, depth)]
    return MapOf(tuple(keys), tuple(_node(_one(entry, 4), depth) for entry in entries))


def _loop(fields: _Fields, depth: int) -> Node:
    if 8 in fields:
        # A second variable is for macros that the compiler does not know yet.
        raise NotDecodedError("has a loop over keys and values")
    over, start, condition, step, result = (_node(_one(fields, number), depth) for number in (2, 4, 5, 6, 7))
    return Loop(_text(fields, 1), over, _text(fields, 3), start, condition, step, result)


_DECODERS: Final = {3: _constant, 4: _name, 5: _select, 6: _call, 7: _list, 8: _map, 9: _loop}


def _nodes(fields: _Fields, number: int, depth: int) -> tuple[Node, ...]:
    return tuple(_node(_bytes(encoded), depth) for encoded in fields.get(number, ()))


def _one(fields: _Fields, number: int) -> bytes:
    return _bytes(fields[number][-1])


def _text(fields: _Fields, number: int) -> str:
    return _one(fields, number).decode() if number in fields else ""


def _bytes(value: bytes | int) -> bytes:
    if isinstance(value, int):
        raise NotDecodedError("has a number where a message should be")
    return value


def _fields(encoded: bytes) -> _Fields:
    """Return the fields of an encoded message by their numbers."""
    found: _Fields = defaultdict(list)
    at, end = 0, len(encoded)
    while at < end:
        tag, at = _varint(encoded, at)
        value: bytes | int
        match tag & 7:
            case 0:
                value, at = _varint(encoded, at)
            case 2:
                size, at = _varint(encoded, at)
                value, at = encoded[at : at + size], at + size
            case 1 | 5 as kind:
                size = 8 if kind == 1 else 4
                value, at = encoded[at : at + size], at + size
            case kind:
                raise NotDecodedError(f"has a field of wire type {kind}")
        found[tag >> 3].append(value)
    if at != end:
        raise NotDecodedError("ends in the middle of a field")
    return found


def _varint(encoded: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = encoded[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
