"""Reads of headers that may be missing: what is guarded never fails, and what is not warned of surprises nobody."""

from __future__ import annotations

from contextlib import suppress
from typing import TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from confdb.expressions.checked import decode
from confdb.expressions.compiled import _program, compile_expression, missing_header, warnings_about
from confdb.expressions.header_reads import unguarded_reads
from confdb.routes import ExpressionFailedError

PLAIN = [
    'headers.region == "hz"',
    'headers.region == "hz" && int(headers.amount) > 100',
    'headers["x-region"] in ["hz", "sh"]',
    'headers.region.startsWith("h") || headers.vip == "1"',
    'headers.path.matches("^/api/v[0-9]+/orders$")',
    "100.0 <= double(headers.amount)",
    'timestamp(headers.at) > timestamp("2020-01-01T00:00:00Z")',
    '["hz", "sh"].exists(region, headers.region == region)',
    '"vip" in headers ? headers.vip == "1" : headers.region == "hz"',
]
GUARDED = [
    '"region" in headers && headers.region != "hz"',
    'headers.region != "hz" && "region" in headers',
    'has(headers.region) && headers.region != "hz"',
    '!("region" in headers) || headers.region != "hz"',
    '!has(headers.region) || !(headers.region == "hz")',
    '"region" in headers ? headers.region != "hz" : true',
    '!("region" in headers) ? true : headers.region != "hz"',
    '("a" in headers && "b" in headers) && (headers.a != "1" || headers.b != "2")',
    'headers.exists(k, headers[k] != "hz")',
    '["a", "b"].all(k, !(k in headers) || headers[k] != "hz")',
    "true",
]
SURPRISING = [
    ('headers.region != "hz"', "headers.region"),
    ('!(headers.region == "hz")', "headers.region"),
    ('headers["x-region"] != "hz"', 'headers["x-region"]'),
    ('headers.region == ""', "headers.region"),
    ("size(headers.region) < 3", "headers.region"),
    ("int(headers.retries) < 3", "headers.retries"),
    ('(headers.region == "hz") == false', "headers.region"),
    ('headers.vip == "1" ? true : true', "headers.vip"),
    ('headers.a in ["1", headers.b]', "headers.b"),
    ('"a" in headers || headers.a != "1"', "headers.a"),
    ('"b" in headers && headers.a != "1"', "headers.a"),
    ('("a" in headers || "b" in headers) && headers.a != "1"', "headers.a"),
    ('headers.exists(k, ["a"].exists(k, headers[k] != "1"))', "headers[...]"),
    ('["a"].exists(headers, .headers.region != headers)', "headers.region"),
    ('dyn(headers).region == "hz"', "headers.region"),
    ('headers.exists_one(k, headers.region == "hz")', "headers.region"),
]


@pytest.mark.parametrize("text", [*PLAIN, *GUARDED])
def test_nobody_is_warned_of_what_matches_as_everybody_means_it(text: str) -> None:
    assert warnings_about(text) == ()


@pytest.mark.parametrize("text", GUARDED)
def test_a_header_that_is_asked_for_is_not_read_unguarded(text: str) -> None:
    assert unguarded_reads(decode(_program(text).serialize())) == ()


@pytest.mark.parametrize("text, read", SURPRISING)
def test_a_read_that_changes_its_meaning_without_the_header_is_warned_of(text: str, read: str) -> None:
    (warning,) = warnings_about(text)

    assert f"reads {read} without asking" in warning


def test_a_warning_says_what_to_write_and_is_bounded() -> None:
    (warning,) = warnings_about(" && ".join(f'headers.{name} != "1"' for name in "abcdefg"))

    assert "headers.a, headers.b, headers.c, headers.d, headers.e, 2 more without" in warning
    assert '`"a" in headers && ...`' in warning
    assert '`!("a" in headers) || ...`' in warning


@pytest.mark.parametrize("header", ["region", "x-region", "a'b", 'a"b', "中", 'a : "b'])
def test_the_header_that_was_missing_is_told_by_the_failure(header: str) -> None:
    quoted = header.replace('"', '\\"')
    with pytest.raises(ExpressionFailedError) as failure:
        compile_expression(f'headers["{quoted}"] == "1"')({"b": "1"})

    assert missing_header(failure.value.problem) == header
    assert missing_header(failure.value.problem[:-1]) == header, "what is cut off tells as well"


def test_another_failure_is_of_no_header() -> None:
    with pytest.raises(ExpressionFailedError) as failure:
        compile_expression("int(headers.a) > 1")({"a": "much"})

    assert missing_header(failure.value.problem) is None


# --- against the real thing -------------------------------------------------------------------------------------

Tree: TypeAlias = tuple[str, tuple["Tree", ...]]
"""The text of an expression with places for its parts, and those."""

NAMES = "abc"
QUESTIONS = [f'"{name}" in headers' for name in NAMES] + [f"has(headers.{name})" for name in NAMES]
COMPARISONS = [
    text
    for name in NAMES
    for text in (
        f'headers.{name} == "1"',
        f'headers["{name}"] != "1"',
        f'headers.{name} in ["1", "2"]',
        f"int(headers.{name}) > 1",
        f"int(headers.{name}) < 2",
        f'headers.{name}.startsWith("2")',
        f'headers.{name} == ""',
    )
]
MACROS = [
    'headers.exists(k, headers[k] == "2")',
    'headers.all(k, headers[k] != "2")',
    'headers.all(k, headers.a == "1")',
    'headers.exists(k, headers.b != "1" && k == "a")',
    '["a", "b"].all(k, k in headers && headers[k] != "1")',
    '["a", "b"].exists(k, headers[k] == "1")',
    'headers.exists_one(k, headers.c == "1")',
    "true",
]
JOINED = ["({}) && ({})", "({}) || ({})", "!({})", "({}) ? ({}) : ({})", "({}) == ({})"]


def _joined(parts: st.SearchStrategy[Tree]) -> st.SearchStrategy[Tree]:
    return st.sampled_from(JOINED).flatmap(
        lambda join: st.tuples(st.just(join), st.tuples(*[parts] * join.count("{}")))
    )


LEAVES = st.one_of(st.sampled_from(QUESTIONS), st.sampled_from(COMPARISONS), st.sampled_from(MACROS))
TREES: st.SearchStrategy[Tree] = st.recursive(st.tuples(LEAVES, st.just(())), _joined, max_leaves=8)
HEADERS = st.dictionaries(st.sampled_from(NAMES), st.sampled_from(["1", "2", "x", ""]))


def text_of(tree: Tree) -> str:
    """Return the expression."""
    form, parts = tree
    return form.format(*map(text_of, parts)) if parts else form


def missed_header(text: str, headers: dict[str, str]) -> str | None:
    """Return the header for want of which *text* fails on *headers*, if that is so."""
    try:
        compile_expression(text)(headers)
    except ExpressionFailedError as error:
        return missing_header(error.problem)
    return None


def is_matched(text: str, headers: dict[str, str]) -> bool:
    """Return whether *text* selects a message with *headers*."""
    with suppress(ExpressionFailedError):
        return compile_expression(text)(headers)
    return False


def is_meant(tree: Tree, headers: dict[str, str]) -> bool:
    """Return whether *headers* are meant, if what cannot be compared is just false."""
    form, parts = tree
    if not parts:
        return is_matched(form, headers)
    match form:
        case "({}) && ({})":
            return all(is_meant(part, headers) for part in parts)
        case "({}) || ({})":
            return any(is_meant(part, headers) for part in parts)
        case "!({})":
            return not is_meant(parts[0], headers)
        case "({}) == ({})":
            return is_meant(parts[0], headers) == is_meant(parts[1], headers)
    return is_meant(parts[1] if is_meant(parts[0], headers) else parts[2], headers)


@given(TREES, HEADERS)
def test_what_is_guarded_never_fails_for_want_of_a_header(tree: Tree, headers: dict[str, str]) -> None:
    text = text_of(tree)
    unguarded = {read.header for read in unguarded_reads(decode(_program(text).serialize()))}

    missed = missed_header(text, headers)

    assert missed is None or unguarded & {missed, None}


@given(TREES, HEADERS)
def test_without_a_warning_a_comparison_with_a_missing_header_is_just_false(
    tree: Tree, headers: dict[str, str]
) -> None:
    text = text_of(tree)
    headers = {name: value for name, value in headers.items() if value.isdigit()}

    assert warnings_about(text) or is_matched(text, headers) == is_meant(tree, headers)
