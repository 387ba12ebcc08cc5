"""Tables stay in their width, and words stay whole where they can."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from msgconsole.cli.printing.table_layout import cut, is_of_numbers, layout, left_out, wrap

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


def test_at_80_columns_free_text_is_narrowed_and_nothing_else_is() -> None:
    rows = [HEAD, ROW]
    widths = layout(rows, 80, text=[5, 6])
    assert widths[:5] == [4, 19, 18, 17, 11]
    assert wrap(ROW[5], widths[5]) == "ATTEMPTS_\nEXHAUSTED"


def test_titles_of_several_words_are_broken_before_any_text_is() -> None:
    rows = [("dead letters", "detail"), ("3", "it was read twice")]
    assert layout(rows, 26, text=[1]) == [7, 17]


def test_what_is_no_free_text_is_never_broken() -> None:
    rows = [("message id", "topic", "reason"), ("019a9f6c-7d2a-7c31-b2a4-5d1f0e3c9a10", "TP_" + "TRADE_" * 9, "x" * 90)]

    for width in (80, 40, 10):
        assert layout(rows, width, text=[2]) == [36, 57, 12]


@given(
    st.lists(st.lists(st.text("ab_ -1", max_size=30), min_size=3, max_size=3), min_size=2, max_size=5),
    st.integers(1, 120),
    st.sets(st.integers(0, 2)),
)
def test_at_any_width_only_free_text_is_narrower_than_its_cells(
    rows: list[list[str]], width: int, text: set[int]
) -> None:
    widths = layout(rows, width, text)
    for place, column_width in enumerate(widths):
        longest = max(cell_len(cell.strip()) for cell in [row[place] for row in rows[1:]])
        assert place in text or column_width >= longest


def test_columns_without_anything_to_tell_are_left_out_first_and_then_those_that_say_the_least() -> None:
    rows = [
        ("group", "behind", "redeliveries", "alarms", "failures", "matching"),
        ("SG_POINTS", "12", "3", "", "0", "about 2"),
        ("SG_VIP", "7", "0", "-", "0", "about 7"),
    ]
    least = (5, 2, 4)
    assert left_out(rows, 80, least=least) == []
    assert left_out(rows, 51, least=least) == [3]
    assert left_out(rows, 41, least=least) == [3, 4]
    assert left_out(rows, 40, least=least) == [3, 4, 5]
    # What a command does not name stays, however narrow.
    assert left_out(rows, 1, least=least) == [3, 4, 5, 2]


def test_a_column_of_numbers_is_told_from_one_that_has_other_things() -> None:
    for cells in (["1", "-", "288304"], ["about 51", "0", "not known"], ["9 s", "it grows", "-"], ["1.5", "1e-05"]):
        assert is_of_numbers(cells)
    for others in (["-", ""], ["10:53:22"], ["SG_1", "2"], ["it grows"], ["2026-11-20"], ["1 2 3"]):
        assert not is_of_numbers(others)


def test_a_word_wider_than_its_column_is_broken_and_nothing_is_lost() -> None:
    assert wrap("abcdefghij klm", 4) == "abcd\nefgh\nij\nklm"
    widths = layout([("error",), ("x" * 500,)], 80, text=[0])
    assert widths == [80]
    assert wrap("x" * 500, 80).replace("\n", "") == "x" * 500


def test_a_name_that_has_room_in_a_line_is_not_broken() -> None:
    assert wrap("refused by SG_POINTS", 15) == "refused by\nSG_POINTS"


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
