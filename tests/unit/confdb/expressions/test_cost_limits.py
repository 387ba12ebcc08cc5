"""What an expression may cost when it is registered; no test here depends on how fast the machine is."""

from __future__ import annotations

import pytest

from confdb.expressions.compiled import compile_expression
from confdb.expressions.cost_limits import (
    check_cost,
    check_expression,
    cpu_seconds,
    hardest_texts,
    largest_messages,
)
from confdb.routes import HeaderPredicate
from msgbroker.contract import limits
from msgbroker.contract.errors import ExpressionTooCostlyError, InvalidExpressionError

NESTED = "headers.exists(a, headers.exists(b, a == b))"
ORDINARY = 'headers.region == "hz" && int(headers.amount) > 100'


class Stopwatch:
    """Says of each evaluation what the test wants; the last word stays."""

    def __init__(self, *seconds: float) -> None:
        self.seconds = list(seconds)
        self.tried: list[dict[str, str]] = []

    def __call__(self, _: HeaderPredicate, headers: dict[str, str]) -> float:
        self.tried.append(headers)
        return self.seconds.pop(0) if len(self.seconds) > 1 else self.seconds[0]


def test_what_costs_too_much_by_its_structure_is_refused_before_it_is_ever_evaluated() -> None:
    stopwatch = Stopwatch(0.0)

    with pytest.raises(ExpressionTooCostlyError) as refusal:
        check_cost(NESTED, stopwatch)

    assert stopwatch.tried == []
    assert (refusal.value.reason, refusal.value.status) == ("EXPRESSION_TOO_COSTLY", "INVALID_ARGUMENT")
    assert f"{limits.EXPRESSION_COST_MAX:,} at most" in refusal.value.message
    assert refusal.value.cost.endswith(" steps")
    assert "name the headers" in refusal.value.message


def test_what_takes_too_long_when_it_is_tried_is_refused_with_what_it_took() -> None:
    with pytest.raises(ExpressionTooCostlyError, match=r"costs up to 42\.0 ms on a message; 5 ms at most: name"):
        check_cost(ORDINARY, Stopwatch(0.042))


def test_what_took_too_long_only_once_is_not_refused() -> None:
    check_cost(ORDINARY, Stopwatch(0.042, 0.000_005))


def test_a_pattern_that_hides_among_literals_is_counted_as_what_it_is() -> None:
    hidden = "|".join("(?:a|b)*a(?:a?b?){1000}" + letter for letter in "cdef")

    with pytest.raises(ExpressionTooCostlyError, match="steps"):
        check_expression(rf'headers.kind == "x7" && headers.a.matches("^Z\\Q[\\E(?:{hidden})$\\Q]\\E")')


def test_a_pattern_is_tried_though_no_message_that_is_made_up_comes_to_it() -> None:
    stopwatch = Stopwatch(0.0)

    check_cost('headers.kind == "x7" && headers.a.matches("a[ab]{20}c")', stopwatch)

    tried = [message for message in stopwatch.tried if message.get("pattern") == "a[ab]{20}c"]
    assert {"a", "b"} in [set(message["text"]) for message in tried]
    assert {len(message["text"].encode()) for message in tried} == {limits.HEADERS_BYTES_MAX}


def test_a_pattern_that_takes_too_long_by_itself_is_refused() -> None:
    def takes_long(_: HeaderPredicate, headers: dict[str, str]) -> float:
        return 0.042 if "pattern" in headers else 0.0

    with pytest.raises(
        ExpressionTooCostlyError, match=r"costs up to 42\.0 ms on a message; 5 ms at most: use a shorter"
    ):
        check_cost('headers.kind == "x7" && headers.a.matches("q.{140}w")', takes_long)


def test_however_many_patterns_there_are_trying_them_has_an_end() -> None:
    patterns = [f"{letter}[a-z]{letter}" for letter in "abcdefghijklmnopqrstuvwxyz"]

    assert 0 < len(list(hardest_texts(patterns))) <= 32
    assert list(hardest_texts(["", "^$", r"\d{10}", "."])) == []


def test_trying_ends_soon_even_where_each_message_takes_almost_what_it_may() -> None:
    stopwatch = Stopwatch(limits.EXPRESSION_SECONDS_MAX * 0.9)

    check_cost(" || ".join(f'headers.h{number} == "x"' for number in range(30)), stopwatch)

    assert len(stopwatch.tried) <= 5


def test_what_an_evaluation_takes_is_counted_by_the_thread_itself() -> None:
    seconds = cpu_seconds(compile_expression(ORDINARY), {"region": "hz", "amount": "120"})

    assert 0.0 <= seconds < 60.0
    assert cpu_seconds(compile_expression(ORDINARY), {}) >= 0.0


@pytest.mark.parametrize(
    "text",
    [
        "true",
        ORDINARY,
        'headers["region"] == "hz"',
        'headers["键"] == "值"',
        'headers.a.matches("(q?){20}") || headers.b == "é"',
        " || ".join(f'headers.h{number} == "{number}"' for number in range(80)),
    ],
)
def test_the_messages_that_are_tried_are_such_as_may_be_published_and_the_largest_of_them(text: str) -> None:
    messages = list(largest_messages(text))

    sizes = [sum(len(name.encode()) + len(value.encode()) for name, value in each.items()) for each in messages]
    assert 0 < len(messages) <= 32
    assert all(len(each) <= limits.HEADERS_MAX for each in messages)
    assert all(size <= limits.HEADERS_BYTES_MAX for size in sizes)
    assert max(sizes) > limits.HEADERS_BYTES_MAX - 64
    assert max(len(each) for each in messages) == limits.HEADERS_MAX


def test_the_headers_that_an_expression_names_are_in_the_messages_that_are_tried() -> None:
    for message in largest_messages('headers.region == "hz" && headers["amount"] == "1"'):
        assert {"region", "amount"} <= message.keys()


def test_what_may_be_registered_comes_back_compiled_and_is_tried_once() -> None:
    matches = check_expression(ORDINARY)

    assert matches({"region": "hz", "amount": "101"}) is True
    assert check_expression(ORDINARY) is matches


def test_what_does_not_compile_is_refused_with_its_position() -> None:
    with pytest.raises(InvalidExpressionError, match="line 1, column 18"):
        check_expression("headers.region ==")
