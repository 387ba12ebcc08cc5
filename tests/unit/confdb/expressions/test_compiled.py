"""HEADER expressions: what compiles, what is refused where, and what happens when one fails on a message."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref

import pytest

from confdb.expressions.compiled import PREPARED_BYTES_MAX, ExpressionFailedError, compile_expression
from confdb.routes import Headers
from msgbroker.contract import limits
from msgbroker.contract.errors import InvalidExpressionError


def test_an_expression_matches_by_the_headers() -> None:
    matches = compile_expression('headers.region == "hz" && int(headers.amount) > 100')

    assert matches({"region": "hz", "amount": "101"}) is True
    assert matches({"region": "hz", "amount": "100"}) is False
    assert matches({"region": "sh", "amount": "101"}) is False


def test_a_header_that_is_missing_fails_the_expression_instead_of_matching() -> None:
    matches = compile_expression('headers.region == "hz"')

    with pytest.raises(ExpressionFailedError, match="region"):
        matches({})


def test_a_conversion_that_fails_is_no_match() -> None:
    matches = compile_expression("int(headers.amount) > 100")

    with pytest.raises(ExpressionFailedError, match="cannot convert"):
        matches({"amount": "much"})


def test_an_expression_that_takes_too_many_steps_fails_instead_of_running_on() -> None:
    matches = compile_expression('headers.all(a, headers.all(b, headers.all(c, headers.all(d, a + b != c + d + "x"))))')

    with pytest.raises(ExpressionFailedError, match="budget"):
        matches({f"header-{number}": "x" for number in range(limits.HEADERS_MAX)})


def test_an_absent_header_can_be_asked_for() -> None:
    matches = compile_expression('"region" in headers && headers.region == "hz"')

    assert matches({}) is False


@pytest.mark.parametrize(
    "text, line, column, problem",
    [
        ("headers.region ==", 1, 18, "Syntax error"),
        ('true &&\n  region == "hz"', 2, 3, "undeclared reference to 'region'"),
        ("headers.amount > 100", 1, 16, "no matching overload"),
        ("headers.region", 1, 1, "is of type STRING; it must be BOOL"),
        ("dyn(headers.region)", 1, 1, "must be BOOL"),
    ],
)
def test_a_bad_expression_is_refused_with_the_position_of_the_error(
    text: str, line: int, column: int, problem: str
) -> None:
    with pytest.raises(InvalidExpressionError, match=f"line {line}, column {column}: ") as refusal:
        compile_expression(text)

    assert problem in refusal.value.message
    assert "[INVALID_ARGUMENT]" not in refusal.value.message
    assert (refusal.value.line, refusal.value.column) == (line, column)


@pytest.mark.parametrize(
    "text, problem",
    [
        ("", "is empty"),
        (" \n", "is empty"),
        ("true" + " " * limits.EXPRESSION_CHARS_MAX, "4096 at most"),
        ('headers.x == "\0"', "NUL"),
        ('headers.x == "\ud800"', "surrogate"),
        ("(" * 100 + "true" + ")" * 100, "recursion limit"),
    ],
)
def test_an_expression_outside_of_the_limits_is_refused(text: str, problem: str) -> None:
    with pytest.raises(InvalidExpressionError, match=problem):
        compile_expression(text)


def test_an_expression_is_compiled_once() -> None:
    assert compile_expression('headers.x == "1"') is compile_expression('headers.x == "1"')


def test_expressions_need_neither_sqlalchemy_nor_a_database_driver() -> None:
    program = (
        "import sys; from confdb.expressions.compiled import compile_expression; compile_expression('true');"
        "print(sorted({'sqlalchemy', 'psycopg', 'alembic'} & set(sys.modules)))"
    )

    printed = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout

    assert printed == "[]\n"


def many_headers(number: int) -> Headers:
    return Headers({f"h{place:02}": f"{number}" for place in range(limits.HEADERS_MAX)})


def test_what_is_made_of_headers_for_the_next_expression_is_kept_of_the_newest_only() -> None:
    first, second = compile_expression('headers.h00 == "7"'), compile_expression('headers.h01 == "7"')
    messages = [many_headers(number) for number in range(2_000)]
    for headers in messages:
        assert first(headers) is second(headers) is (headers["h00"] == "7")
    kept = [headers.prepared is not None for headers in messages]

    assert 100 < sum(kept) < 1_000
    assert kept == sorted(kept)
    assert second(messages[7]) is True, "of others it is made again"


def test_headers_are_kept_by_nothing_but_their_message() -> None:
    headers = many_headers(1)
    for place in ("h00", "h01"):
        assert compile_expression(f'headers.{place} == "1"')(headers) is True
    assert headers.prepared is not None
    seen = weakref.ref(headers)
    del headers
    gc.collect()

    assert seen() is None


_MANY_MESSAGES = """
import gc, psutil
from confdb.expressions.compiled import compile_expression
from confdb.routes import Headers

predicates = [compile_expression(text) for text in ('headers.h00 == "x"', 'headers.all(h, headers[h] != "x")')]
messages = [
    Headers({f"h{place:02}": "v" * 30 + f"{number}" for place in range(64)}) for number in range(4_000)
]
for predicate in predicates:
    predicate(Headers(messages[0]))
gc.collect()
before = psutil.Process().memory_info().rss
for headers in messages:
    for predicate in (*predicates, *predicates):
        predicate(headers)
gc.collect()
print(psutil.Process().memory_info().rss - before)
"""


def test_what_is_kept_of_headers_costs_what_it_is_counted_with() -> None:
    printed = subprocess.run([sys.executable, "-c", _MANY_MESSAGES], check=True, capture_output=True, text=True).stdout

    assert int(printed) < 1.5 * PREPARED_BYTES_MAX
