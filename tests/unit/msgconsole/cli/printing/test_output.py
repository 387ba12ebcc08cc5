"""What commands print."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from uuid import UUID

import pytest
from rich.console import Console

from msgconsole.cli.printing import output


class Colour(StrEnum):
    RED = "RED"


@dataclass
class Thing:
    name: str
    seen_at: datetime
    colour: Colour
    ids: tuple[UUID, ...]


THING = Thing("x", datetime(2026, 1, 2, tzinfo=UTC), Colour.RED, (UUID(int=1),))


def test_json_holds_times_enums_and_ids_as_text(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_rows([THING], ("name",), as_json=True, empty="")
    assert json.loads(capsys.readouterr().out) == [
        {
            "name": "x",
            "seen_at": "2026-01-02T00:00:00+00:00",
            "colour": "RED",
            "ids": ["00000000-0000-0000-0000-000000000001"],
        }
    ]


def test_an_empty_list_is_a_sentence_for_people_and_a_list_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_rows([], ("name",), as_json=False, empty="No things.")
    output.print_rows([], ("name",), as_json=True, empty="No things.")
    assert capsys.readouterr().out == "No things.\n[]\n"


def test_times_in_tables_are_short(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_rows([THING], ("seen_at",), as_json=False, empty="")
    assert capsys.readouterr().out.splitlines()[-1].strip() == "2026-01-02 00:00:00"


@pytest.mark.parametrize("width", [70, 80, 100])
def test_a_table_loses_nothing_in_a_narrow_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setattr(output, "console", lambda: Console(width=width))
    output.print_table(
        ["group", "reason", "last error", "time"],
        [["DEMO_POINTS_0AB12C", "ATTEMPTS_EXHAUSTED", "x" * 70, "2026-11-18 11:08:17"]],
    )
    out = capsys.readouterr().out
    assert "…" not in out
    assert out.count("x") == 70
    assert max(len(line) for line in out.splitlines()) <= width


@pytest.mark.parametrize("width", [1, 7, 20, 80, 1_000])
def test_no_table_loses_wide_characters_or_a_word_at_any_width(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setattr(output, "console", lambda: Console(width=width))
    description = "支付成功后通知积分服务 and" + " " * 30 + "then\tends"
    output.print_table(["name", "description", "count"], [["TP_TRADE", description, "4"]])
    output.print_thing({"name": "TP_TRADE", "description": description, "count": 4}, as_json=False)
    out = capsys.readouterr().out
    shown = "".join(sorted("".join(out.split()).replace("─", "")))
    cells = "namedescriptioncountTP_TRADE支付成功后通知积分服务andthenends4"
    assert shown == "".join(sorted(cells * 2))


def test_a_long_word_of_one_thing_is_shown_whole(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "console", lambda: Console(width=40))
    output.print_thing({"id": 7, "body": "x" * 500}, as_json=False)
    out = capsys.readouterr().out
    assert out.count("x") == 500
    assert max(len(line) for line in out.splitlines()) <= 40


def test_what_a_terminal_would_obey_is_shown_instead(capsys: pytest.CaptureFixture[str]) -> None:
    hostile = "\x1b[2Jred\x07\x9b\r!"
    output.print_table(["name"], [[hostile]])
    output.print_thing({"name": hostile}, as_json=False)
    out = capsys.readouterr().out
    assert out.count("\\x1b[2Jred\\x07\\x9b\\x0d!") == 2


def test_nothing_that_turns_the_line_around_or_ends_it_is_shown_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    hostile = "a\u202eb\u2066c\u2028d\u200fe"
    output.print_table(["key"], [[hostile]])
    output.print_thing({"key": hostile}, as_json=False)
    output.print_line(hostile)
    out = capsys.readouterr().out
    assert out.count("a\\u202eb\\u2066c\\u2028d\\u200fe") == 3


def test_the_names_of_headers_are_shown_as_their_values_are(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_thing({"headers": {"\x1b[2J\nx_group": "SG_VIP"}}, as_json=False)
    assert capsys.readouterr().out == "headers: \\x1b[2J\\nx_group  SG_VIP\n"


def test_a_key_of_two_lines_makes_no_second_row(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"key": "order-1\nSG_FORGED", "last_error": "first\nsecond"}]
    output.print_rows(rows, ("key", "last_error"), as_json=False, empty="")
    lines = [line.split() for line in capsys.readouterr().out.splitlines()[2:]]
    assert lines == [["order-1\\nSG_FORGED", "first"], ["second"]]


def test_json_has_nothing_that_a_terminal_would_obey_and_reads_as_it_was(capsys: pytest.CaptureFixture[str]) -> None:
    hostile = "\x1b[2J\x9b2J\x7f\u202e\u2028\u2066订单\U0001f600"
    output.print_json({hostile: hostile})
    out = capsys.readouterr().out
    assert json.loads(out) == {hostile: hostile}
    assert "订单\U0001f600" in out
    assert not set(hostile[:-3]) & set(out) - set("[2J")


def test_of_one_thing_times_are_exact_fields_have_lines_and_what_is_not_there_is_a_dash(
    capsys: pytest.CaptureFixture[str],
) -> None:
    at = datetime(2026, 11, 20, 10, 53, 22, 706811, tzinfo=UTC)
    thing = {"at": at, "spec": {"wanted": {"error": "timeout"}, "last_id": 61}, "note": "", "queues": [], "headers": {}}
    output.print_thing(thing, as_json=False)
    lines = [line.split(maxsplit=2) for line in capsys.readouterr().out.splitlines()]
    assert lines == [
        ["at", "2026-11-20", "10:53:22.706811 UTC"],
        ["spec:", "wanted", "error=timeout"],
        ["spec:", "last_id", "61"],
        ["note", "-"],
        ["queues", "-"],
        ["headers", "-"],
    ]


def test_what_is_not_there_is_a_dash_in_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_rows([{"name": "x", "alarms": [], "note": None}], ("name", "alarms", "note"), as_json=False, empty="")
    assert capsys.readouterr().out.splitlines()[-1].split() == ["x", "-", "-"]


def test_what_has_no_json_form_is_our_mistake() -> None:
    with pytest.raises(TypeError, match="object has no JSON form"):
        output.plain(object())
