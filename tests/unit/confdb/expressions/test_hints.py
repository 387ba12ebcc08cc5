"""Mistakes in an expression are answered with what was meant."""

from __future__ import annotations

import pytest

from confdb.expressions.compiled import compile_expression
from msgbroker.contract.errors import InvalidExpressionError


@pytest.mark.parametrize(
    "text, meant",
    [
        ('headers.region = "hz"', "did you mean `==`?"),
        ('headers.region ="hz"', "did you mean `==`?"),
        ('headers.region === "hz"', "did you mean `==`?"),
        ('headers.a == "1" & headers.b == "2"', "did you mean `&&`?"),
        ('headers.a == "1" and headers.b == "2"', "did you mean `&&`?"),
        ('headers.a == "1" OR headers.b == "2"', "did you mean `||`?"),
        ('headers.a <> "1"', "did you mean `!=`?"),
        ('region == "hz"', 'headers are read as headers.region, and text is written "region"'),
        ("headers.region == hz", 'text is written "hz"'),
        ('order.region == "hz"', "headers are read as headers.NAME"),
        ('header.region == "hz"', "did you mean headers.region?"),
        ('Headers.region == "hz"', "did you mean headers.region?"),
        ('headers.x-stress-test == "true"', 'did you mean headers["x-stress-test"]?'),
        ("headers.amount > 100", "a number is read as int(headers.NAME)"),
        ("100 <= headers.amount", "a number is read as int(headers.NAME)"),
    ],
)
def test_a_mistake_is_answered_with_what_was_meant(text: str, meant: str) -> None:
    with pytest.raises(InvalidExpressionError) as refusal:
        compile_expression(text)

    assert refusal.value.message.endswith(meant)
    assert refusal.value.message.startswith("expression: line 1, column ")


@pytest.mark.parametrize("text", ['headers.region.startswith("h")', 'lower(headers.region) == "hz"'])
def test_a_function_that_does_not_exist_is_not_taken_for_a_header(text: str) -> None:
    with pytest.raises(InvalidExpressionError, match="undeclared reference") as refusal:
        compile_expression(text)

    assert "headers are read as" not in refusal.value.message
