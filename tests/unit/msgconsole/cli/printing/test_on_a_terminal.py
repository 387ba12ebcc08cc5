"""What a real terminal of 80 columns shows: numbers, names and times in one piece, and what is left out is told."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

_PROGRAM = """
import json, sys
from msgconsole.cli.printing.output import print_rows
rows, columns, least = json.loads(sys.argv[1])
print_rows(rows, columns, as_json=False, empty="", least=least)
"""
_COLOURS = re.compile(r"\x1b\[[\d;]*m")
LAG = (
    "namespace",
    "group",
    "topic",
    "behind",
    "matching",
    "since",
    "drains_in",
    "redeliveries",
    "alarms",
    "dead_letters",
    "failures",
    "last_failed_header",
    "last_failed_at",
)
LAG_LEAST = ("last_failed_at", "last_failed_header", "dead_letters", "redeliveries", "failures", "matching")


def lag_row(**given: object) -> dict[str, object]:
    usual: dict[str, object] = {
        "namespace": "default",
        "group": "SG_POINTS",
        "topic": "TP_TRADE",
        "behind": 288304,
        "matching": "about 51",
        "since": "11-19 10:53",
        "drains_in": "it grows",
        "redeliveries": 0,
        "alarms": [],
        "dead_letters": 0,
        "failures": 0,
        "last_failed_header": None,
        "last_failed_at": None,
    }
    return usual | given


def shown(rows: Sequence[Mapping[str, Any]], columns: Sequence[str], least: Sequence[str]) -> tuple[list[str], str]:
    """Return the lines that a terminal of 80 columns shows, and what is said on standard error."""
    outer, inner = pty.openpty()
    fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name not in {"COLUMNS", "LINES"}}
    with subprocess.Popen(
        [sys.executable, "-c", _PROGRAM, json.dumps([rows, columns, least])],
        stdout=inner,
        stderr=subprocess.PIPE,
        text=True,
        env=environment | {"TERM": "xterm"},
    ) as process:
        os.close(inner)
        said = b""
        try:
            while more := os.read(outer, 65_536):
                said += more
        except OSError:
            # So ends what a terminal has to say, on Linux.
            pass
        finally:
            os.close(outer)
        assert process.stderr is not None
        told = process.stderr.read()
    assert process.returncode == 0, told
    return _COLOURS.sub("", said.decode()).splitlines(), told


def test_lag_of_several_namespaces_stays_in_the_terminal_with_each_number_and_name_in_one_piece() -> None:
    lines, told = shown(
        [
            lag_row(),
            lag_row(namespace="shop2", group="SG_FLAKY", topic="TP_SHOP", behind=7, failures=1),
            lag_row(group="SG_VIP", last_failed_header="vip", last_failed_at="2026-11-20T10:53:22+00:00"),
        ],
        LAG,
        LAG_LEAST,
    )

    assert max(len(line) for line in lines) <= 80
    first = next(line for line in lines if "SG_POINTS" in line)
    assert first.split()[:4] == ["default", "SG_POINTS", "TP_TRADE", "288304"]
    assert "11-19 10:53" in first
    # A row is a line.
    assert len(lines) == len([line for line in lines if "SG_" not in line]) + 3
    assert "last failed at" in told
    assert "alarms" not in told


def test_numbers_end_below_each_other() -> None:
    lines, _ = shown(
        [{"group": "SG_A", "published": 23971, "p99": 1.5}, {"group": "SG_B", "published": 3, "p99": None}],
        ("group", "published", "p99"),
        (),
    )

    ends = [line.index(number) + len(number) for line, number in ((lines[2], "23971"), (lines[3], " 3"))]
    assert ends == [lines[0].index("published") + len("published")] * 2


def test_what_may_not_be_broken_makes_the_line_longer_than_the_terminal() -> None:
    ids = [f"{place:08d}-aaaa-bbbb-cccc-0123456789ab" for place in range(3)]
    lines, told = shown(
        [{"one": ids[0], "two": ids[1], "three": ids[2], "detail": "it was read " * 4}],
        ("one", "two", "three", "detail"),
        (),
    )

    # What the terminal shows in several lines is one of ours: it can be copied.
    assert all(each in "".join(lines) for each in ids)
    assert told == ""


def test_free_text_is_what_is_broken() -> None:
    lines, told = shown(
        [{"group": "SG_POINTS", "error": "it was read " * 8 + "and refused", "at": "2026-11-20T10:53:22+00:00"}],
        ("group", "error", "at"),
        (),
    )

    assert max(len(line) for line in lines) <= 80
    assert any(line.startswith("SG_POINTS ") and line.endswith(" 2026-11-20 10:53:22") for line in lines)
    assert told == ""


@pytest.mark.parametrize("width", ["80", None])
def test_what_is_piped_has_no_blanks_at_its_ends_and_heeds_columns(width: str | None) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    rows = [{"group": "SG_A", "detail": "it was read " * 12}, {"group": "SG_B", "detail": "-"}]
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, json.dumps([rows, ["group", "detail"], []])],
        capture_output=True,
        text=True,
        check=True,
        env=environment | ({} if width is None else {"COLUMNS": width}),
    )
    lines = done.stdout.splitlines()
    assert [line for line in lines if line.endswith(" ")] == []
    assert (max(len(line) for line in lines) <= 80) is (width is not None)
