"""What evaluating a HEADER expression can cost: worked out from its structure, for the largest message there can be.

A *step* is what looking at a variable costs, about 10 ns. A macro runs once for each element, 64 times over the
headers, so one inside of another runs 4,096 times; functions that look at text cost by its bytes. Branches that an
evaluation would skip are counted, because what it skips is up to the message.

Names and values of all headers together have 4,096 bytes. So a text that belongs to the header a macro is at is small
*on average*, and that is what counts for work that grows evenly with it; a header that is named may have it all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from confdb.expressions.checked import Call, Constant, ListOf, Loop, MapOf, Name, Node, Select
from confdb.expressions.pattern_size import pattern_size
from msgbroker.contract import limits

COST_CEILING: Final = 10**12
"""The highest cost that is told: what costs more is said to cost this."""

# Steps, measured with cel-expr-python 0.1.3: a slice of 64 headers, texts of up to 4,096 bytes, lists of up to 1,000.
_SELECT: Final = 4
_CALL: Final = 3
_LOGIC: Final = 1
_ITEM: Final = 2
_LOOP: Final = 2
_JOIN: Final = 15
_CONVERT: Final = 12
_PARSE_TIME: Final = 70
_ZONE: Final = 10_000
"""The cost of looking a time zone up by its name: files may be looked for."""
_PATTERN: Final = 200
_PATTERN_INSTRUCTION: Final = 25
_PATTERN_POSITION: Final = 0.04
"""The cost of each place of a pattern, by byte of the text. A pattern that must keep many places in mind takes four
times as long."""
_PATTERN_FROM_MESSAGE: Final = 10_000_000
_UNKNOWN: Final = 1_000
_COPY_ITEM: Final = 3
_BYTES_JOINED: Final = 28
_BYTES_SCANNED: Final = 20
_BYTES_COMPARED: Final = 50
_SEARCH_BYTE: Final = 0.44
_SEARCH_BYTES_COMPARED: Final = 800
_NUMBER_CHARS_MAX: Final = 40

_PAIRS_MIN: Final = 256
"""From how many rounds of macros inside of one another on these are what makes an expression dear."""

_LOGICAL: Final = frozenset({"_&&_", "_||_", "!_", "@not_strictly_false", "__not_strictly_false__"})
_COMPARING: Final = frozenset({"_==_", "_!=_", "_<_", "_<=_", "_>_", "_>=_", "startsWith", "endsWith"})
_ARITHMETIC: Final = frozenset({"_-_", "_*_", "_/_", "_%_", "-_", "type"})
_IN: Final = frozenset({"@in", "_in_", "in"})
_TO_NUMBER: Final = frozenset({"int", "uint", "double", "bool"})
_TO_TEXT: Final = frozenset({"string", "bytes"})
_TIMES: Final = frozenset({"timestamp", "duration"})
_TIME_PARTS: Final = frozenset(
    f"get{part}"
    for part in (
        "FullYear", "Month", "Date", "DayOfMonth", "DayOfWeek", "DayOfYear",
        "Hours", "Minutes", "Seconds", "Milliseconds",
    )
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Cost:
    """What an expression costs on the largest message."""

    steps: int
    advice: str
    """What to write instead, where that is too much."""
    patterns: tuple[str, ...] = ()
    """The patterns of its `matches`, the largest first: structure tells little of what looking for them takes."""


@dataclass(frozen=True, slots=True)
class _Size:
    """How large a value may be. Numbers and the like are nothing."""

    mean_bytes: float = 0
    """How many bytes a text has on average, over the rounds of the macros around it."""
    most_bytes: float = 0
    count: float = 0
    """How many elements a list, or keys a map, may have."""
    element: _Size | None = None
    """How large a list's elements, or a map's keys, may be."""
    value: _Size | None = None
    """How large a map's values may be."""
    is_header_name: bool = False
    """Whether it is the name of each header in turn, in a macro."""

    @property
    def weight(self) -> float:
        """All that comparing it may look at, in bytes."""
        of_each = 200 + (self.element.weight if self.element else 0) + (self.value.weight if self.value else 0)
        return self.mean_bytes + self.count * of_each

    @property
    def alone(self) -> _Size:
        """As one that was picked: it may be the largest."""
        return _Size(
            self.most_bytes,
            self.most_bytes,
            self.count,
            self.element.alone if self.element else None,
            self.value.alone if self.value else None,
        )


_NOTHING: Final = _Size()
_EACH_BYTES: Final = limits.HEADERS_BYTES_MAX / limits.HEADERS_MAX
_EACH_NAME: Final = _Size(_EACH_BYTES, limits.HEADERS_BYTES_MAX, is_header_name=True)
_EACH_VALUE: Final = _Size(_EACH_BYTES, limits.HEADERS_BYTES_MAX)
_HEADERS: Final = _Size(count=limits.HEADERS_MAX, element=_EACH_NAME, value=_EACH_VALUE)

_Scope = Mapping[str, _Size]
_Costed = tuple[float, _Size]


def cost_of(expression: Node) -> Cost:
    """Return what *expression* costs on the largest message."""
    look = _Look()
    steps, _ = look.at(expression, {"headers": _HEADERS})
    # Not a number, where infinities met: then it is too much as well.
    return Cost(int(steps) if steps < COST_CEILING else COST_CEILING, look.advice, look.patterns)


class _Look:
    """One look at an expression; each node is visited once."""

    def __init__(self) -> None:
        self._rounds = 1.0
        self._most_pairs = 0.0
        self._has_pattern_of_message = False
        self._most_by_pattern = 0.0
        self._patterns: dict[str, float] = {}

    @property
    def patterns(self) -> tuple[str, ...]:
        """The patterns of `matches` that were met, the largest first."""
        return tuple(sorted(self._patterns, key=self._patterns.__getitem__, reverse=True))

    @property
    def advice(self) -> str:
        """What could be written instead, so that it costs less."""
        if self._has_pattern_of_message:
            return (
                "write the pattern of `matches` into the expression: one that comes with the message can cost anything"
            )
        if self._most_pairs >= _PAIRS_MIN:
            return (
                "a macro inside of another runs for every pair: name the headers it is about, "
                "or let the publisher set one header that says it"
            )
        if self._most_by_pattern >= limits.EXPRESSION_COST_MAX / 2:
            return "use a shorter pattern (what repeats {n} times counts n times), or startsWith, endsWith, contains"
        return "name the headers it is about, or let the publisher set one header that says it"

    def at(self, node: Node, scope: _Scope) -> _Costed:
        """Return the steps that evaluating *node* takes, and the size of what it gives."""
        match node:
            case Loop():
                costed = self._loop(node, scope)
            case Call(function, arguments):
                costed = self._call(function, arguments, scope)
            case Select(operand, _, is_test):
                steps, of = self.at(operand, scope)
                costed = steps + _SELECT, _NOTHING if is_test or of.value is None else of.value.alone
            case Name(name):
                costed = 1, scope.get(name.removeprefix("."), _NOTHING)
            case Constant(text):
                costed = 1, _NOTHING if text is None else _Size(len(text), len(text))
            case ListOf(items):
                steps, sizes = self._each(items, scope)
                costed = steps + _ITEM * len(items), _Size(count=len(items), element=_largest(sizes))
            case MapOf(keys, values):
                steps, key_sizes = self._each(keys, scope)
                value_steps, value_sizes = self._each(values, scope)
                size = _Size(count=len(values), element=_largest(key_sizes), value=_largest(value_sizes))
                costed = steps + value_steps + 4 * _ITEM * len(values), size
        return costed

    def _each(self, nodes: tuple[Node, ...], scope: _Scope) -> tuple[float, list[_Size]]:
        costed = [self.at(node, scope) for node in nodes]
        return sum(steps for steps, _ in costed), [size for _, size in costed]

    def _call(self, function: str, arguments: tuple[Node, ...], scope: _Scope) -> _Costed:
        steps, sizes = self._each(arguments, scope)
        if function == "matches":
            return steps + self._match(sizes[0], arguments[1]), _NOTHING
        own_steps, size = _FUNCTIONS.get(function, _unknown)(sizes)
        return steps + own_steps, size

    def _loop(self, loop: Loop, scope: _Scope) -> _Costed:
        steps, over = self.at(loop.over, scope)
        start_steps, start = self.at(loop.start, scope)
        rounds = over.count
        inside = {**scope, loop.variable: over.element or _NOTHING, loop.accumulator: start}
        outer_rounds, self._rounds = self._rounds, self._rounds * max(1.0, rounds)
        if outer_rounds > 1:
            self._most_pairs = max(self._most_pairs, self._rounds)
        condition_steps, _ = self.at(loop.condition, inside)
        step_steps, after = self.at(loop.step, inside)
        self._rounds = outer_rounds
        growth = max(0.0, after.count - start.count)
        # What is collected is copied in every round: half of it, on average.
        copying = rounds * rounds / 2 * growth * _COPY_ITEM
        collected = replace(
            _larger(start, after),
            count=start.count + rounds * growth,
            element=_largest([size for size in (start.element, after.element) if size is not None]),
        )
        result_steps, result = self.at(loop.result, {**scope, loop.accumulator: collected})
        in_loop = rounds * (_LOOP + condition_steps + step_steps) + copying
        return steps + start_steps + in_loop + result_steps, result

    def _match(self, text: _Size, pattern: Node) -> float:
        if not isinstance(pattern, Constant) or pattern.text is None:
            self._has_pattern_of_message = True
            return _PATTERN_FROM_MESSAGE
        pattern_text = pattern.text.decode()
        size = pattern_size(pattern_text)
        looking = text.mean_bytes * max(0.1, size.positions * _PATTERN_POSITION)
        steps = _PATTERN + size.instructions * _PATTERN_INSTRUCTION + looking
        self._patterns[pattern_text] = max(steps, self._patterns.get(pattern_text, 0.0))
        self._most_by_pattern = max(self._most_by_pattern, steps * self._rounds)
        return steps


def _larger(one: _Size, other: _Size) -> _Size:
    return _Size(
        max(one.mean_bytes, other.mean_bytes),
        max(one.most_bytes, other.most_bytes),
        max(one.count, other.count),
        _largest([size for size in (one.element, other.element) if size is not None]),
        _largest([size for size in (one.value, other.value) if size is not None]),
        is_header_name=one.is_header_name and other.is_header_name,
    )


def _largest(sizes: Sequence[_Size]) -> _Size | None:
    largest: _Size | None = None
    for size in sizes:
        largest = size if largest is None else _larger(largest, size)
    return largest


def _compare(one: _Size, other: _Size) -> float:
    return _CALL + min(one.weight, other.weight) / _BYTES_COMPARED


def _look_up(wanted: _Size, among: _Size) -> float:
    if among.value is not None:
        return _CALL + _ITEM + wanted.mean_bytes / _BYTES_COMPARED
    of_each = min(wanted.weight, among.element.weight if among.element else 0)
    return _CALL + among.count * (_ITEM + of_each / _BYTES_COMPARED)


def _to_text(size: _Size) -> _Costed:
    most = size.most_bytes or _NUMBER_CHARS_MAX
    return _CONVERT + size.mean_bytes / _BYTES_SCANNED, _Size(size.mean_bytes or most, most)


def _join(one: _Size, other: _Size) -> _Costed:
    joined = _larger(one, other)
    mean_bytes, count = one.mean_bytes + other.mean_bytes, one.count + other.count
    size = replace(
        joined,
        mean_bytes=mean_bytes,
        most_bytes=one.most_bytes + other.most_bytes,
        count=count,
        is_header_name=False,
    )
    return _JOIN + mean_bytes / _BYTES_JOINED + count * _COPY_ITEM, size


def _index(of: _Size, by: _Size) -> _Costed:
    steps = _CALL + _ITEM + by.mean_bytes / _BYTES_COMPARED
    if of is _HEADERS and by.is_header_name:
        return steps, _EACH_VALUE
    picked = of.value or of.element
    return steps, picked.alone if picked else _NOTHING


def _search(text: _Size, wanted: _Size) -> float:
    # At each place as far as both agree. Places and bytes together cannot be more than the text has.
    compared = text.mean_bytes * min(wanted.most_bytes, text.most_bytes / 4)
    return _CALL + text.mean_bytes * _SEARCH_BYTE + compared / _SEARCH_BYTES_COMPARED


def _unknown(sizes: Sequence[_Size]) -> _Costed:
    return _UNKNOWN + sum(size.weight for size in sizes), (_largest(sizes) or _NOTHING).alone


def _parse_time(sizes: Sequence[_Size]) -> _Costed:
    return _PARSE_TIME + sizes[0].mean_bytes, _NOTHING


_FUNCTIONS: Final[Mapping[str, Callable[[Sequence[_Size]], _Costed]]] = {
    **dict.fromkeys(_LOGICAL, lambda _: (_LOGIC, _NOTHING)),
    **dict.fromkeys(_COMPARING, lambda sizes: (_compare(*sizes), _NOTHING)),
    **dict.fromkeys(_ARITHMETIC, lambda _: (_CALL, _NOTHING)),
    **dict.fromkeys(_IN, lambda sizes: (_look_up(*sizes), _NOTHING)),
    **dict.fromkeys(_TO_NUMBER, lambda sizes: (_CONVERT + sizes[0].mean_bytes / _BYTES_SCANNED, _NOTHING)),
    **dict.fromkeys(_TO_TEXT, lambda sizes: _to_text(*sizes)),
    **dict.fromkeys(_TIMES, _parse_time),
    **dict.fromkeys(_TIME_PARTS, lambda sizes: (_CALL if len(sizes) == 1 else _ZONE, _NOTHING)),
    "_?_:_": lambda sizes: (_LOGIC, _larger(sizes[1], sizes[2])),
    "_+_": lambda sizes: _join(*sizes),
    "_[_]": lambda sizes: _index(*sizes),
    "contains": lambda sizes: (_search(*sizes), _NOTHING),
    "dyn": lambda sizes: (_CALL, sizes[0]),
    "size": lambda sizes: (_CALL + sizes[0].mean_bytes / _BYTES_SCANNED, _NOTHING),
}
