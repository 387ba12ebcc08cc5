"""JSON that is laid out is the same JSON, to the last digit."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from msgconsole.cli.printing.json_layout import lay_out

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(values, st.sampled_from([None, 0, 3]), st.booleans())
def test_whatever_is_laid_out_reads_as_before(value: object, indent: int | None, escaped: bool) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=escaped)

    laid_out = lay_out(text)

    assert laid_out is not None
    assert json.loads(laid_out) == value
    # Line by line it is as everybody lays it out.
    assert laid_out == json.dumps(value, indent=2, ensure_ascii=escaped)


@given(st.text())
def test_what_is_no_json_is_told(text: str) -> None:
    try:
        json.loads(text, parse_int=str, parse_float=str)
    except ValueError:
        assert lay_out(text) is None


@pytest.mark.parametrize("text", ["NaN", "[Infinity]", "", "{", "[" * 100_000, "\ufeff1"])
def test_what_only_looks_like_json_is_none(text: str) -> None:
    assert lay_out(text) is None


def test_no_digit_changes_and_nothing_that_is_there_twice_goes() -> None:
    digits = "9" * 10_000

    assert (
        lay_out(f'{{"a": {digits}, "a":1.10, "b": 1E400 }}') == f'{{\n  "a": {digits},\n  "a": 1.10,\n  "b": 1E400\n}}'
    )
