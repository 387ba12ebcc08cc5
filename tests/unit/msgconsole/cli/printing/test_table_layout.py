"""Tables stay in their width, and words stay whole where they can."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from msgconsole.cli.printing.table_layout import GAP, cut, layout, wrap

HEAD = ("id", "died at", "group", "topic", "event code", "reason", "last error")
ROW = (
    "1234",
    "2026-11-18 11:08:17",
    "DEMO_POINTS_0AB12C",
    "DEMO_TRADE_0AB12C",
    "EC_REFUNDED",
    "ATTEMPTS_EXHAUSTED",
    "DemoHandlerError: 13",
)


def test_what_fits_is_not_broken() -> None:
    widths = layout([HEAD, ROW], 240)
    assert [wrap(text, width) for text, width in zip(ROW, widths, strict=True)] == list(ROW)


def test_at_80_columns_names_break_between_their_parts() -> None:
    widths = layout([HEAD, ROW], 80)
    assert sum(widths) + GAP * (len(widths) - 1) <= 80
    wrapped = [wrap(text, width) for text, width in zip(ROW, widths, strict=True)]
    assert wrapped[1:4] == ["2026-11-18\n11:08:17", "DEMO_\nPOINTS_\n0AB12C", "DEMO_\nTRADE_\n0AB12C"]
    assert wrapped[5] == "ATTEMPTS_\nEXHAUSTED"


def test_what_people_copy_is_never_broken() -> None:
    rows = [("message id", "topic", "key"), ("019a9f6c-7d2a-7c31-b2a4-5d1f0e3c9a10", "TP_" + "TRADE_" * 9, "order-1")]

    for width in (80, 40, 10):
        assert layout(rows, width, whole=[0])[0] == 36
    assert sum(layout(rows, 80, whole=[0])) + 2 * GAP <= 80


def test_a_word_wider_than_its_column_is_broken_and_nothing_is_lost() -> None:
    assert wrap("abcdefghij klm", 4) == "abcd\nefgh\nij\nklm"
    widths = layout([("name",), ("x" * 500,)], 80)
    assert widths == [80]
    assert wrap("x" * 500, 80).replace("\n", "") == "x" * 500


def test_a_gap_wider_than_its_column_ends_the_line_and_takes_no_word_with_it() -> None:
    assert wrap("abc" + " " * 12 + "def", 6) == "abc\ndef"
    assert wrap("abc" + " " * 12 + "def", 20) == "abc" + " " * 12 + "def"


def test_a_column_is_as_wide_as_a_terminal_shows_its_text() -> None:
    assert layout([("name", "描述"), ("TP", "支付成功后")], 80) == [4, 10]
    assert wrap("支付成功后通知", 5) == "支付\n成功\n后通\n知"


@given(st.lists(st.text(st.sampled_from("ab_- \u3000支付✓e\u0301\u200d\ufe0f👍"), max_size=40)), st.integers(2, 12))
def test_whatever_the_text_nothing_is_lost_and_no_line_is_too_wide(words: list[str], width: int) -> None:
    text = " ".join(words)
    wrapped = wrap(text, width)
    assert "".join(wrapped.split()) == "".join(text.split())
    assert max(cell_len(line) for line in wrapped.split("\n")) <= width


def test_a_long_text_is_wrapped_in_no_time() -> None:
    lines = wrap("支x" * 500_000, 80).split("\n")
    assert (len(lines), {cell_len(line) for line in lines[:-1]}) == (18_868, {79, 80})


def test_an_empty_cell_is_an_empty_line() -> None:
    assert wrap("", 10) == ""


def test_a_long_text_is_cut_by_the_width_it_has_on_a_screen() -> None:
    assert cut("KeyError: 'number'", 18) == "KeyError: 'number'"
    assert cut("KeyError: 'number'", 17) == "KeyError: 'num..."
    assert cut("订单没有编号", 12) == "订单没有编号"
    assert cut("订单没有编号", 11) == "订单没有..."
    assert cut("Traceback:\n  line 1\n  line 2", 80) == "Traceback: line 1 line 2"


@given(st.text(), st.integers(5, 40))
def test_what_is_cut_is_one_line_that_fits_and_begins_as_the_text_does(text: str, width: int) -> None:
    shown = cut(text, width)

    assert cell_len(shown) <= width
    assert len(shown.splitlines()) <= 1
    assert " ".join(text.split()).startswith(shown.removesuffix("..."))
