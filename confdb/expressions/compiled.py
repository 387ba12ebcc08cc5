"""HEADER expressions: CEL over `headers`, compiled once, type-checked to a boolean.

Needs cel-expr-python and nothing else of confdb: the in-memory center for users' tests compiles expressions, too.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from threading import Lock
from typing import Any, Final
from weakref import ReferenceType, ref

from cel_expr_python import cel

from confdb.expressions.checked import NotDecodedError, decode
from confdb.expressions.cost import COST_CEILING, Cost, cost_of
from confdb.expressions.header_reads import HeaderRead, unguarded_reads
from confdb.expressions.hints import hint
from confdb.routes import ExpressionFailedError, HeaderPredicate, Headers
from msgbroker.contract import limits
from msgbroker.contract.errors import InvalidExpressionError

__all__ = ["ExpressionFailedError", "compile_expression", "cost_of_expression", "missing_header", "warnings_about"]

CACHED_EXPRESSIONS_MAX: Final = 16_384
"""Programs kept by their text. More than a snapshot has, or every load of a snapshot would compile them all."""

PREPARED_BYTES_MAX: Final = 16 * 1024 * 1024
"""What the engine made of headers is kept in so many bytes: of the newest messages, while group after group looks at
them."""
_PREPARED_BYTES: Final = 1_000
_PREPARED_HEADER_BYTES: Final = 500
_PREPARED_CHARACTER_BYTES: Final = 2
"""What that takes for each message, header and character, measured with cel-expr-python 0.1.3, and rounded up."""

_WARNED_MAX: Final = 1_024
"""Texts whose warnings are remembered: clients register theirs at each start."""
_NAMED_MAX: Final = 5
"""How many headers a warning names."""
_NAME: Final = re.compile(r"[A-Za-z_]\w*")

_FIRST_PROBLEM: Final = re.compile(r"ERROR: <input>:(\d+):(\d+): (.*)")
_STATUS: Final = re.compile(r"^[A-Z_]+: | \[[A-Z_]+\]$")
_MISSING: Final = re.compile(r"""Key not found in map : (["'])(.*?)\1?$""", re.DOTALL)


@dataclass(frozen=True, slots=True)
class _Compiled:
    predicate: HeaderPredicate
    cost: Cost


class _PreparedHeaders:
    """What the engine made of headers, of the newest ones: of others it is made again when it is needed again.

    The headers are their messages': nothing here keeps those alive. Any thread may evaluate.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._kept: deque[tuple[ReferenceType[Headers], int]] = deque()
        self._bytes_held = 0
        """How many bytes are held, with those that have gone with their message since: they are counted until their
        turn comes."""

    def keep(self, headers: Headers, prepared: cel.Activation) -> None:
        """Keep what the engine made of *headers*, and let go of the oldest where that is too much."""
        characters = len("".join(headers)) + len("".join(headers.values()))
        size_bytes = _PREPARED_BYTES + len(headers) * _PREPARED_HEADER_BYTES + characters * _PREPARED_CHARACTER_BYTES
        with self._lock:
            headers.prepared = prepared
            self._kept.append((ref(headers), size_bytes))
            self._bytes_held += size_bytes
            while self._bytes_held > PREPARED_BYTES_MAX:
                oldest, oldest_bytes = self._kept.popleft()
                self._bytes_held -= oldest_bytes
                if (let_go := oldest()) is not None:
                    let_go.prepared = None


def compile_expression(text: str) -> HeaderPredicate:
    """Compile *text* to a predicate over headers, or raise InvalidExpressionError with the position.

    Whatever it costs: `cost_limits` is for what is registered now.
    """
    return _compiled(text).predicate


def cost_of_expression(text: str) -> Cost:
    """Return what evaluating *text* can cost, by its structure, or raise InvalidExpressionError with the position."""
    return _compiled(text).cost


@lru_cache(maxsize=_WARNED_MAX)
def warnings_about(text: str) -> tuple[str, ...]:
    """Return what whoever registers *text* should be told, or raise InvalidExpressionError with the position.

    Which reads of a header that may be missing are worth a word is the rule of `header_reads`.
    """
    try:
        reads = unguarded_reads(decode(_program(text).serialize()))
    except (NotDecodedError, RecursionError):
        # Of a newer compiler, say: nobody knows, and there is nothing to warn of.
        return ()
    surprising = [read for read in reads if not read.is_plain]
    return (_missing_header_warning(surprising),) if surprising else ()


def missing_header(problem: str) -> str | None:
    """Return the header that was not there, if that is the *problem* of an ExpressionFailedError, as far as it goes.

    Characters that cannot be shown are written as in a CEL text.
    """
    found = _MISSING.search(problem)
    return None if found is None else found[2]


def _missing_header_warning(reads: Sequence[HeaderRead]) -> str:
    names = [_as_read(read.header) for read in reads[:_NAMED_MAX]]
    if len(reads) > _NAMED_MAX:
        names.append(f"{len(reads) - _NAMED_MAX} more")
    question = f'"{reads[0].header or "NAME"}" in headers'
    there, it = ("it is there", "it") if len(reads) == 1 else ("they are there", "one of them")
    return (
        f"the expression reads {', '.join(names)} without asking whether {there}: on a message without {it} it fails,"
        f" which is no match, with `!=` and `!` as well; `{question} && ...` says so,"
        f" `!({question}) || ...` takes such messages, too"
    )


def _as_read(header: str | None) -> str:
    if header is None:
        return "headers[...]"
    return f"headers.{header}" if _NAME.fullmatch(header) else f'headers["{header}"]'


@lru_cache(maxsize=CACHED_EXPRESSIONS_MAX)
def _compiled(text: str) -> _Compiled:
    program = _program(text)
    return _Compiled(_predicate(program, text), _cost(program))


def _program(text: str) -> cel.Expression:
    if not text.strip():
        raise InvalidExpressionError("is empty")
    if len(text) > limits.EXPRESSION_CHARS_MAX:
        raise InvalidExpressionError(f"has {len(text)} characters; {limits.EXPRESSION_CHARS_MAX} at most")
    if not _is_storable(text):
        raise InvalidExpressionError("contains a NUL character or half a surrogate pair")
    try:
        program = _environment().compile(text)
    except RuntimeError as error:
        raise _translated(error, text) from error
    return_type = program.return_type()
    if return_type != cel.Type.BOOL:
        # The whole expression has the wrong type, so the position is its beginning.
        raise InvalidExpressionError(f"is of type {return_type.name()}; it must be BOOL", line=1, column=1)
    return program


def _cost(program: cel.Expression) -> Cost:
    try:
        return cost_of(decode(program.serialize()))
    except (NotDecodedError, ArithmeticError, LookupError, RecursionError, TypeError, ValueError) as error:
        # Nobody knows what it costs (a newer compiler, say): then it is treated as one that costs too much.
        return Cost(COST_CEILING, f"it cannot be looked into ({error}): write it in a simpler way")


def _predicate(program: cel.Expression, text: str) -> HeaderPredicate:
    evaluate = program.eval

    def matches(headers: dict[str, str]) -> bool:
        prepared = headers.prepared if type(headers) is Headers else None
        try:
            value = evaluate(prepared).value() if prepared is not None else _evaluate_unprepared(program, headers)
        except RuntimeError as error:
            # Its own budget of steps is spent.
            raise ExpressionFailedError(text, str(error)) from error
        if value is True:
            return True
        if value is False:
            return False
        # A failed evaluation returns an error value, which is truthy.
        raise ExpressionFailedError(text, str(value))

    return matches


def _evaluate_unprepared(program: cel.Expression, headers: dict[str, str]) -> Any:
    # The library takes a dict and no other mapping, not even a subclass.
    if type(headers) is not Headers:
        return program.eval(data={"headers": dict(headers)}).value()
    plain = dict(headers)
    headers.looks += 1
    if headers.looks == 1:
        # Converting costs as much as most expressions. Kept from the second look on: most messages are looked at once.
        return program.eval(data={"headers": plain}).value()
    prepared = _environment().Activation({"headers": plain})
    _prepared_headers().keep(headers, prepared)
    return program.eval(prepared).value()


@lru_cache(maxsize=1)
def _prepared_headers() -> _PreparedHeaders:
    return _PreparedHeaders()


@lru_cache(maxsize=1)
def _environment() -> cel.Env:
    return cel.NewEnv(variables={"headers": cel.Type.Map(cel.Type.STRING, cel.Type.STRING)})


def _translated(error: RuntimeError, text: str) -> InvalidExpressionError:
    # Before its problems and after the last one the compiler names a gRPC status.
    found = _FIRST_PROBLEM.search(str(error))
    if found is None:
        return InvalidExpressionError(_STATUS.sub("", str(error).splitlines()[0]))
    line, column, problem = found.groups()
    problem = _STATUS.sub("", problem)
    meant = hint(problem, text)
    return InvalidExpressionError(
        problem if meant is None else f"{problem}; {meant}", line=int(line), column=int(column)
    )


def _is_storable(text: str) -> bool:
    return "\0" not in text and not any("\ud800" <= character <= "\udfff" for character in text)
