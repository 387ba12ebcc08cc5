"""Which headers an expression reads without having asked whether they are there: such a read can surprise.

Where a header is missing, reading it fails, and an expression that fails does not match. CEL lets a failure pass where
it cannot make a difference: `false && failure` is false, `true || failure` is true. So a read of a header is

- *guarded*, where a missing header decides the expression around it, or keeps the read from being made:
  `"x" in headers && ...`, `!("x" in headers) || ...`, on either side; `"x" in headers ? ... : ...`; `has(headers.x)` is
  the same question; and `headers[k]` for a `k` that a macro over the headers goes through. What is guarded never fails
  for want of the header.
- *plain*, where failing is what everybody means: "there, and so". That is the text compared in `==` (with anything but
  the empty text), `in` a list, `startsWith`, `endsWith`, `contains`, `matches`, and what should be more in `<`, `<=`,
  `>`, `>=`, also converted first (`int(headers.amount) > 100`), as long as nothing around it but `&&`, `||`, `? :`
  (not its question) and the macros `exists` and `all` lie between the comparison and the whole. Then the expression
  matches just when it would if the comparison were false without the header.
- a surprise else: `headers.region != "hz"` does not match a message without a region.

Of all other functions and macros nothing is believed. Pure; works on what `checked` makes of the compiler's
output.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final, NamedTuple, TypeAlias

from confdb.expressions.checked import Call, Constant, ListOf, Loop, MapOf, Name, Node, Select

_AND: Final = "_&&_"
_IN: Final = frozenset({"@in", "_in_", "in"})

_Key: TypeAlias = tuple[str, int]
"""A header: by its name and 0, or by the variable that holds its name and how deep the macro is that it belongs to."""
_Keys: TypeAlias = frozenset[_Key]
_NONE: Final[_Keys] = frozenset()


class HeaderRead(NamedTuple):
    """A header that is read without a guard."""

    header: str | None
    """The header's name; None: the message tells which one it is."""
    is_plain: bool


class _Place(Enum):
    """Where a part of an expression stands, which decides what becomes of its failure."""

    TRUTH = auto()
    """It stands where failing is as good as false."""
    OPERAND = auto()
    """It is compared, and the comparison stands where failing is as good as false."""
    ELSEWHERE = auto()


_COMPARED: Final[Mapping[str, tuple[_Place, ...]]] = {
    "_==_": (_Place.OPERAND, _Place.OPERAND),
    **dict.fromkeys(_IN, (_Place.OPERAND, _Place.ELSEWHERE)),
    **dict.fromkeys(("_>_", "_>=_"), (_Place.OPERAND, _Place.ELSEWHERE)),
    **dict.fromkeys(("_<_", "_<=_"), (_Place.ELSEWHERE, _Place.OPERAND)),
    **dict.fromkeys(("startsWith", "endsWith", "contains", "matches"), (_Place.OPERAND, _Place.ELSEWHERE)),
    "bool": (_Place.OPERAND,),
}
"""Comparisons that say something of what is there, and where their operands are."""
_CONVERSIONS: Final = frozenset({"int", "uint", "double", "string", "bytes", "timestamp", "duration", "_+_"})


@dataclass(frozen=True, slots=True)
class _Scope:
    """The variables of the macros that a part of an expression is inside of."""

    depth: int = 0
    variables: Mapping[str, int] = field(default_factory=dict)
    """Each variable, with how deep the macro is that it belongs to."""
    header_names: _Keys = _NONE
    """Variables that go through the names of the headers that are there."""

    def inside(self, loop: Loop) -> _Scope:
        depth = self.depth + 1
        variables = {**self.variables, loop.variable: depth, loop.accumulator: depth}
        named = {(loop.variable, depth)} if self.is_headers(loop.over) else _NONE
        return _Scope(depth, variables, self.header_names | named)

    def is_headers(self, node: Node) -> bool:
        if not isinstance(node, Name):
            return False
        return node.name == ".headers" or (node.name == "headers" and "headers" not in self.variables)

    def key(self, node: Node) -> _Key | None:
        match node:
            case Constant(bytes(text)):
                return text.decode(errors="replace"), 0
            case Name(name) if name in self.variables:
                return name, self.variables[name]
        return None


class _Decided(NamedTuple):
    """What is certain without a header: for those of *false* that a node is false, for those of *true* it is true."""

    false: _Keys = _NONE
    true: _Keys = _NONE


def unguarded_reads(expression: Node) -> tuple[HeaderRead, ...]:
    """Return the headers that *expression* reads without a guard, each once; plain where all reads of it are."""
    plain: dict[str | None, bool] = {}
    for read in _reads(expression, _Place.TRUTH, _NONE, _Scope()):
        plain[read.header] = plain.get(read.header, True) and read.is_plain
    return tuple(HeaderRead(header, is_plain) for header, is_plain in plain.items())


def _reads(node: Node, place: _Place, guarded: _Keys, scope: _Scope) -> Iterator[HeaderRead]:
    match node:
        case Call("_&&_" | "_||_" | "_?_:_", _):
            yield from _logical_reads(node, place, guarded, scope)
        case Call("_[_]", (of, index)):
            yield from _indexed_reads(of, index, place, guarded, scope)
        case Call(function, arguments):
            for argument, its_place in zip(arguments, _places(function, arguments, place), strict=True):
                yield from _reads(argument, its_place, guarded, scope)
        case Select(operand, name, is_test):
            if is_test:
                yield from _reads(operand, _Place.ELSEWHERE, guarded, scope)
            else:
                yield from _indexed_reads(operand, Constant(name.encode()), place, guarded, scope)
        case ListOf(items):
            its_place = _Place.OPERAND if place is _Place.OPERAND else _Place.ELSEWHERE
            yield from _each(items, its_place, guarded, scope)
        case MapOf(keys, values):
            yield from _each((*keys, *values), _Place.ELSEWHERE, guarded, scope)
        case Loop():
            yield from _loop_reads(node, place, guarded, scope)


def _each(nodes: Iterable[Node], place: _Place, guarded: _Keys, scope: _Scope) -> Iterator[HeaderRead]:
    for node in nodes:
        yield from _reads(node, place, guarded, scope)


def _logical_reads(node: Call, place: _Place, guarded: _Keys, scope: _Scope) -> Iterator[HeaderRead]:
    place = place if place is _Place.TRUTH else _Place.ELSEWHERE
    match node:
        case Call("_?_:_", (question, if_true, if_false)):
            asked = _decided(question, scope)
            yield from _reads(question, _Place.ELSEWHERE, guarded, scope)
            yield from _reads(if_true, place, guarded | asked.false, scope)
            yield from _reads(if_false, place, guarded | asked.true, scope)
        case Call(function, (left, right)):
            # Whichever side is decided without the header, the other side's failure passes.
            on_left, on_right = _decided(left, scope), _decided(right, scope)
            is_and = function == _AND
            by_left, by_right = (on_left.false, on_right.false) if is_and else (on_left.true, on_right.true)
            yield from _reads(left, place, guarded | by_right, scope)
            yield from _reads(right, place, guarded | by_left, scope)


def _indexed_reads(of: Node, index: Node, place: _Place, guarded: _Keys, scope: _Scope) -> Iterator[HeaderRead]:
    yield from _each((of, index), _Place.ELSEWHERE, guarded, scope)
    key = scope.key(index)
    name = key[0] if key is not None and key[1] == 0 else None
    if scope.is_headers(of):
        if key is None or key not in guarded | scope.header_names:
            yield HeaderRead(name, place is _Place.OPERAND)
    elif not (isinstance(of, ListOf | MapOf) or (isinstance(index, Constant) and name is None)):
        # The headers may come this way, too: through `dyn`, out of a list, by a macro's variable.
        yield HeaderRead(name, is_plain=False)


def _loop_reads(loop: Loop, place: _Place, guarded: _Keys, scope: _Scope) -> Iterator[HeaderRead]:
    inside = scope.inside(loop)
    result = Name(loop.accumulator)
    match loop.step:
        case Call("_&&_" | "_||_", (first, _)) if first == loop.result == result:
            # `all` and `exists` are rows of && and ||.
            step_place = place
        case _:
            step_place = _Place.ELSEWHERE
    yield from _each((loop.over, loop.start), _Place.ELSEWHERE, guarded, scope)
    yield from _reads(loop.step, step_place, guarded, inside)
    yield from _each((loop.condition, loop.result), _Place.ELSEWHERE, guarded, inside)


def _places(function: str, arguments: tuple[Node, ...], place: _Place) -> tuple[_Place, ...]:
    """Return where the arguments of a call are."""
    nowhere = (_Place.ELSEWHERE,) * len(arguments)
    if place is _Place.OPERAND and function in _CONVERSIONS:
        return (_Place.OPERAND,) * len(arguments)
    places = _COMPARED.get(function, nowhere) if place is _Place.TRUTH else nowhere
    if len(places) != len(arguments) or (function == "_==_" and Constant(b"") in arguments):
        # A header that is missing may be taken for an empty one.
        return nowhere
    return places


def _decided(node: Node, scope: _Scope) -> _Decided:
    """Return what *node* is without a header, as far as that is certain whatever else fails."""
    decided = _Decided()
    match node:
        case Select(operand, name, True) if scope.is_headers(operand):
            decided = _Decided(false=frozenset({(name, 0)}))
        case Call(function, (asked, among)) if function in _IN and scope.is_headers(among):
            key = scope.key(asked)
            decided = _Decided(false=_NONE if key is None else frozenset({key}))
        case Call("!_", (denied,)):
            without = _decided(denied, scope)
            decided = _Decided(without.true, without.false)
        case Call("_&&_", (left, right)):
            one, other = _decided(left, scope), _decided(right, scope)
            decided = _Decided(one.false | other.false, one.true & other.true)
        case Call("_||_", (left, right)):
            one, other = _decided(left, scope), _decided(right, scope)
            decided = _Decided(one.false & other.false, one.true | other.true)
        case Call("_?_:_", (question, if_true, if_false)):
            answer, one, other = (_decided(part, scope) for part in (question, if_true, if_false))
            decided = _Decided(
                (answer.false & other.false) | (answer.true & one.false),
                (answer.false & other.true) | (answer.true & one.true),
            )
    return decided
