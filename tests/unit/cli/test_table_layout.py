"""Tables stay in their width, and words stay whole where they can."""

from __future__ import annotations

from msgconsole.cli.table_layout import GAP, layout, wrap

HEAD = ("id", "died at", "group", "topic", "event code", "reason", "last error")
ROW = (
    "1234",
    "2026-11-18 11:08:17",
    "DEMO_POINTS_0AB12C",
    "DEMO_TRADE_0AB12C",
    "EC_REFUNDED",
    "ATTEMPTS_EXHAUSTED",
    "DemoFailedError: 13",
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


def test_a_word_wider_than_its_column_is_broken_and_nothing_is_lost() -> None:
    assert wrap("abcdefghij klm", 4) == "abcd\nefgh\nij\nklm"
    widths = layout([("name",), ("x" * 500,)], 80)
    assert widths == [80]
    assert wrap("x" * 500, 80).replace("\n", "") == "x" * 500


def test_an_empty_cell_is_an_empty_line() -> None:
    assert wrap("", 10) == ""
