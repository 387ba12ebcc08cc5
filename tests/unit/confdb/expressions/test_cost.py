"""What an expression can cost, by its structure: what is cheap, what is not, and what is said of it."""

from __future__ import annotations

import pytest

from confdb.expressions.checked import Call, Constant, Loop, MapOf, Name, NotDecodedError, Select, decode
from confdb.expressions.compiled import _environment, compile_expression, cost_of_expression
from confdb.expressions.pattern_size import pattern_size
from msgbroker.contract import limits

CHEAP = [
    'headers.region == "hz" && int(headers.amount) > 100',
    '"region" in headers && headers.region in ["hz", "sh", "bj"]',
    'headers.exists(name, name.startsWith("x-") && headers[name] != "")',
    'headers.exists(name, headers[name].contains("order"))',
    'headers.all(name, name in ["a", "b", "c", "d", "e", "f"] || headers[name] == "")',
    'headers.exists(name, ["x-", "y-", "z-"].exists(prefix, name.startsWith(prefix)))',
    'size(headers.filter(name, name.startsWith("x-"))) > 3',
    'headers.path.matches("^/api/(orders|refunds)/[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$")',
    'headers.mail.matches("(?i)^[a-z0-9._%+-]+@[a-z0-9.-]+$")',
    'headers.exists(name, headers[name].matches("^paid"))',
    'timestamp(headers.at) > timestamp("2020-01-01T00:00:00Z")',
    'headers.a + headers.b == "ab" ? headers.c == "c" : has(headers.d)',
    "headers.a.contains(headers.b)",
]  # fmt: skip
NESTED = "a macro inside of another"
PATTERN = "shorter pattern"
FROM_MESSAGE = "write the pattern"
OTHER = "name the headers"
DEAR = [
    ("headers.exists(a, headers.exists(b, a == b))", NESTED),
    ("headers.all(a, headers.all(b, headers.all(c, a + b != c)))", NESTED),
    ('headers.exists(a, headers.map(b, a + b).exists(c, c == "x"))', NESTED),
    ('headers.map(a, headers.filter(b, b > a)) == [["x"]]', NESTED),
    ("headers.a.matches(headers.b)", FROM_MESSAGE),
    ('headers.a.matches("^" + "a")', FROM_MESSAGE),
    ('headers.a.matches("[a-z]{1000}")', PATTERN),
    ('headers.a.matches("((a{10}){10}){10}")', PATTERN),
    ('headers.a.matches("(x?){500}x{500}")', PATTERN),
    (r'headers.a.matches("\\pL")', PATTERN),
    ('headers.exists(name, headers[name].matches("[a-z]{200}"))', PATTERN),
    ("[headers.a]" + ".map(x, x + x)" * 20 + '[0] == ""', OTHER),
    ("size([[1, 2]]" + ".map(x, x + x)" * 14 + "[0]) == 1", OTHER),
    ("[" + ",".join("1" * 900) + "].map(x, x) == []", OTHER),
    ("[" + ",".join("1" * 900) + "].all(x, size(headers.a) == x)", OTHER),
    ("headers.all(name, " + " && ".join(f'headers.a != "{n}"' for n in range(120)) + ")", OTHER),
]


@pytest.mark.parametrize("text", CHEAP)
def test_what_people_write_is_far_from_the_limit(text: str) -> None:
    assert cost_of_expression(text).steps <= limits.EXPRESSION_COST_MAX / 2


@pytest.mark.parametrize("text, advice", DEAR, ids=[text[:60] for text, _ in DEAR])
def test_what_grows_beyond_measure_costs_more_than_the_limit_and_is_told_what_to_write_instead(
    text: str, advice: str
) -> None:
    cost = cost_of_expression(text)

    assert cost.steps > limits.EXPRESSION_COST_MAX
    assert advice in cost.advice


@pytest.mark.parametrize(
    "cheaper, dearer, times",
    [
        ("headers.exists(a, true)", "headers.exists(a, headers.exists(b, true))", 30),
        ('headers.a == "x"', 'headers.exists(a, headers.a == "x")', 30),
        ('headers.a.contains("x")', 'headers.exists(a, headers.a.contains("x"))', 50),
        ('["a", "b"].exists(a, a == "x")', '["a", "b", "c", "d"].exists(a, a == "x")', 1.5),
        ("[headers.a].map(x, x + x)[0] == headers.b", "[headers.a].map(x, x + x).map(x, x + x)[0] == headers.b", 1.1),
        ('headers.a.matches("[a-z]{10}")', 'headers.a.matches("[a-z]{100}")', 5),
    ],
)
def test_what_runs_more_often_costs_as_much_more(cheaper: str, dearer: str, times: float) -> None:
    assert cost_of_expression(dearer).steps >= times * cost_of_expression(cheaper).steps


def test_the_texts_of_all_headers_together_count_once_and_not_for_each_header() -> None:
    of_each = cost_of_expression('headers.exists(name, headers[name].contains("order"))').steps
    of_one_named = cost_of_expression('headers.exists(name, headers.a.contains("order"))').steps

    assert of_one_named > 20 * of_each


def test_what_is_picked_from_a_list_may_be_the_largest_of_it() -> None:
    picked = 'headers.map(name, headers[name])[0].contains("order")'
    of_all = 'headers.map(name, headers[name]).exists(value, value.contains("order"))'

    assert cost_of_expression(picked).steps >= 0.8 * cost_of_expression(of_all).steps


@pytest.mark.parametrize("depth", [1, 5, 9])
def test_however_deep_an_expression_is_it_is_looked_at_once(depth: int) -> None:
    text = "[1].exists(a, " * depth + "true" + ")" * depth

    assert cost_of_expression(text).steps < 50 * depth


def test_the_patterns_of_an_expression_are_known_the_largest_first() -> None:
    cost = cost_of_expression(
        'headers.a.matches("^x$") || headers.exists(k, k.matches("a{100}")) || headers.b.matches("^x$")'
    )

    assert cost.patterns == ("a{100}", "^x$")


def test_an_expression_that_costs_too_much_still_compiles() -> None:
    matches = compile_expression("headers.exists(a, headers.exists(b, a == b))")

    assert matches({"x": "1"}) is True


def test_what_the_compiler_made_is_taken_apart_exactly() -> None:
    compiled = _environment().compile('headers.all(k, {"a": 1}[k] == size(headers.b)) || has(headers.c)')

    either = decode(compiled.serialize())

    assert isinstance(either, Call)
    assert either.function == "_||_"
    loop, test = either.arguments
    assert test == Select(Name("headers"), "c", is_test=True)
    assert isinstance(loop, Loop)
    assert (loop.variable, loop.over) == ("k", Name("headers"))
    assert isinstance(loop.step, Call)
    equal = loop.step.arguments[1]
    picked = Call("_[_]", (MapOf((Constant(b"a"),), (Constant(None),)), Name("k")))
    assert equal == Call("_==_", (picked, Call("size", (Select(Name("headers"), "b", is_test=False),))))


@pytest.mark.parametrize(
    "serialized",
    [b"", b"\x12", b"\x12\x7f", b"\x12\x02\x22\x00", b"\x12\x04\x22\x02\x52\x00", b"\x0f" * 9, b"\xff" * 9],
)
def test_what_is_not_in_the_known_form_is_said_to_be_so(serialized: bytes) -> None:
    with pytest.raises(NotDecodedError):
        decode(serialized)


def test_an_expression_that_cannot_be_looked_into_is_taken_for_one_that_costs_too_much(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(serialized: bytes) -> None:
        raise NotDecodedError("has a field of wire type 3")

    monkeypatch.setattr("confdb.expressions.compiled.decode", fails)

    assert cost_of_expression('headers.never_seen_before == "1"').steps > limits.EXPRESSION_COST_MAX


@pytest.mark.parametrize(
    "pattern, instructions, positions",
    [
        ("", 0, 0),
        ("abc", 3, 3),
        ("a{10}", 10, 10),
        ("(ab){10}", 40, 20),
        ("(?:ab){2,5}", 25, 25),
        ("((a{10}){10}){10}", 1220, 1000),
        ("a|b", 3, 5),
        ("x{", 2, 2),
        ("(?i)ab", 10, 2),
        ("(?P<name>a)", 3, 1),
        (r"\d\w\.", 5, 3),
        (r"\pL\p{Greek}", 8_000, 2),
        ("[a-z]", 1, 1),
        ("[]a]", 1, 1),
        ("[[:alpha:]]", 2, 1),
        ("[^a]", 8, 1),
        ("中", 4, 1),
        ("((((", 8, 0),
        ("))))", 4, 4),
        ("a{999999999}" * 3, 10**9, 10**9),
        # What is quoted is literal; what repeats behind it is the last letter.
        (r"\Q(a|b)\E", 5, 5),
        (r"\Qab\E{10}", 11, 11),
        (r"\Q[\E(?:a){10}\Q]\E", 32, 12),
        (r"(\Q)\E{10}", 12, 10),
        (r"\Q中\\E*", 6, 5),
        (r"a\Q\E{10}", 10, 10),
        (r"\Q{10}", 4, 4),
        (r"\x{2028}{10}\x41\101", 48, 12),
    ],
)
def test_a_pattern_is_as_large_as_what_it_repeats(pattern: str, instructions: int, positions: int) -> None:
    size = pattern_size(pattern)

    assert (size.instructions, size.positions) == (instructions, positions)
