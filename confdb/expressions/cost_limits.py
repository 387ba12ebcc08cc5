"""What a HEADER expression may cost, asked when it is registered.

First by its structure, which takes no time whatever the expression is. What passes is then tried on the largest
messages there can be: structure tells little of a regular expression, and steps are not seconds. The patterns of
`matches` are tried by themselves as well: made-up messages may never come to them (`headers.kind == "x7" && ...`). What
was registered before there was a limit goes on working; brokers evaluate it where it holds nobody up.
"""

from __future__ import annotations

import re
import string
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from hashlib import shake_128
from typing import Final, TypeAlias

from confdb.expressions.compiled import compile_expression, cost_of_expression
from confdb.routes import ExpressionFailedError, HeaderPredicate
from msgbroker.contract import limits
from msgbroker.contract.errors import ExpressionTooCostlyError

Stopwatch: TypeAlias = Callable[[HeaderPredicate, dict[str, str]], float]
"""Returns the seconds that an evaluation takes."""

_CHECKED_MAX: Final = 1_024
_TRIES: Final = 3
_TRIED_TIMES_MAX: Final = 4
"""How many times the limit all tries together may take: this may run on a broker's event loop."""
_NAMED_MAX: Final = 16
_ALONE_MAX: Final = 4
_PATTERNS_MAX: Final = 8
_LETTERS_MAX: Final = 3
"""How many letters of a pattern are put together with others, in made-up messages."""

_NAMED_HEADER: Final = re.compile(r"""\bheaders\s*(?:\.\s*(\w+)|\[\s*["']([^"']{1,64})["']\s*\])""")
_LITERAL: Final = re.compile(r"""["']([^"']+)["']""")
_NO_LETTERS: Final = re.compile(r"\\.|\{[\d,]*\}|\(\?[^):>]*[):>]|\[:\^?\w+:\]", re.DOTALL)
"""What letters and digits in a pattern do not stand for themselves."""
_ANY_PATTERN: Final = "headers.text.matches(headers.pattern)"


@lru_cache(maxsize=_CHECKED_MAX)
def check_expression(text: str) -> HeaderPredicate:
    """Compile an expression that is to be registered.

    Raises InvalidExpressionError with the position, or ExpressionTooCostlyError.
    """
    check_cost(text)
    return compile_expression(text)


def check_cost(text: str, stopwatch: Stopwatch | None = None) -> None:
    """Raise ExpressionTooCostlyError if evaluating *text* can cost more than one tenant may take of a broker."""
    cost = cost_of_expression(text)
    if cost.steps > limits.EXPRESSION_COST_MAX:
        raise ExpressionTooCostlyError(f"{cost.steps:,} steps", f"{limits.EXPRESSION_COST_MAX:,}", cost.advice)
    stopwatch = stopwatch or cpu_seconds
    seconds = max(
        _most_seconds(compile_expression(text), list(largest_messages(text)), stopwatch),
        _most_seconds(compile_expression(_ANY_PATTERN), list(hardest_texts(cost.patterns)), stopwatch),
    )
    if seconds > limits.EXPRESSION_SECONDS_MAX:
        raise ExpressionTooCostlyError(
            f"{seconds * 1_000:.1f} ms", f"{limits.EXPRESSION_SECONDS_MAX * 1_000:g} ms", cost.advice
        )


def cpu_seconds(predicate: HeaderPredicate, headers: dict[str, str]) -> float:
    """Return what an evaluation takes of this thread's own time: what else runs on the machine does not count."""
    started_at = time.thread_time()
    # On a made-up message it may well fail.
    with suppress(ExpressionFailedError):
        predicate(headers)
    return time.thread_time() - started_at


def largest_messages(text: str) -> Iterator[dict[str, str]]:
    """Return headers that make *text* work hard: the most there may be, the longest there may be."""
    names = list(dict.fromkeys(name for found in _NAMED_HEADER.findall(text) for name in found if name))[:_NAMED_MAX]
    literals = _LITERAL.findall(text)
    often = Counter(character for literal in literals for character in literal if character.isalnum()).most_common(1)
    fills = dict.fromkeys(["a", "1", *(character for character, _ in often), *sorted(literals, key=len)[-1:]])
    others = [f"header-{number:02}" for number in range(limits.HEADERS_MAX - len(names))]
    yield _filled([*names, *others], "a")
    for fill in fills:
        yield _filled(names or others[:1], fill)
    for name in names[:_ALONE_MAX]:
        for fill in fills:
            yield _filled(names, fill, [name])


def hardest_texts(patterns: Sequence[str]) -> Iterator[dict[str, str]]:
    """Return headers that hold one of *patterns*, the first of them at most, and a long text that makes it work hard.

    That is one in which a match may begin anywhere, and never does so in the same way as just before: the search has to
    keep in mind where it did.
    """
    for pattern in patterns[:_PATTERNS_MAX]:
        letters = list(dict.fromkeys(filter(str.isalnum, _NO_LETTERS.sub("", pattern))))
        other = next(letter for letter in [*string.ascii_lowercase, "-"] if letter not in letters)
        often = Counter(filter(str.isalnum, _NO_LETTERS.sub("", pattern))).most_common(2)
        pairs = [tuple(letter for letter, _ in often), *((letter, other) for letter in letters[:_LETTERS_MAX])]
        for pair in dict.fromkeys(pair for pair in pairs if len(pair) > 1):
            yield {"pattern": pattern, "text": _mixed(*pair)}


def _mixed(one: str, other: str) -> str:
    """Return as much of both as a header may have, without an order, and always in the same way."""
    count = limits.HEADERS_BYTES_MAX // max(len(one.encode()), len(other.encode()))
    return "".join(other if byte & 1 else one for byte in shake_128(b"").digest(count))


def _filled(names: Sequence[str], fill: str, full: Sequence[str] = ()) -> dict[str, str]:
    """Return headers of these names; those of *full*, or all, share what there may be in bytes."""
    full = full or names
    room = max(0, limits.HEADERS_BYTES_MAX - sum(len(name.encode()) for name in names)) // len(full)
    value = (fill * (room // len(fill.encode()) + 1)).encode()[:room].decode(errors="ignore")
    return {name: value if name in full else "" for name in names}


def _most_seconds(predicate: HeaderPredicate, messages: Sequence[dict[str, str]], stopwatch: Stopwatch) -> float:
    """Return the most that one of *messages* takes; as soon as that is too much, no more is tried."""
    most = spent = 0.0
    for headers in messages:
        seconds = stopwatch(predicate, headers)
        spent += seconds
        for _ in range(_TRIES - 1):
            if seconds <= limits.EXPRESSION_SECONDS_MAX:
                break
            # Once may be chance: a collection of garbage, a cold cache.
            seconds = min(seconds, stopwatch(predicate, headers))
        most = max(most, seconds)
        if max(most, spent / _TRIED_TIMES_MAX) > limits.EXPRESSION_SECONDS_MAX:
            break
    return most
