"""How far a Spark job is: a line now and then where no terminal is, and nothing where nobody is to read it."""

from __future__ import annotations

from typing import Any

import pytest

from msgconsole.cli.printing.progress import SparkJobProgress

WHAT = "message of 2026-11-17"


class Clock:
    """A clock that stands still until it is told otherwise."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def told(step: str, done: int = 0, parts: int = 0, rows: int = 0, of: str = "") -> dict[str, Any]:
    return {"step": step, "parts_done": done, "parts": parts, "rows": rows, "of": of}


def test_each_step_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    with SparkJobProgress(WHAT, is_quiet=False) as progress:
        progress.show(told("claiming the day"))
        progress.show(told("claiming the day"))
        progress.show(told("writing", 0, 12, 480_000))
    assert capsys.readouterr().out.splitlines() == [
        f"{WHAT}: starting Spark ...",
        f"{WHAT}: claiming the day ...",
        f"{WHAT}: writing: 0 of 12 files",
    ]


def test_a_long_step_is_told_again_every_ten_seconds_with_its_speed(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    with SparkJobProgress(WHAT, is_quiet=False, clock=clock) as progress:
        for done in range(7):
            progress.show(told("writing", done, 12, 480_000))
            clock.now += 4.0
    assert capsys.readouterr().out.splitlines()[1:] == [
        f"{WHAT}: writing: 0 of 12 files",
        f"{WHAT}: writing: 3 of 12 files, 10,000 rows/s",
        f"{WHAT}: writing: 6 of 12 files, 10,000 rows/s",
    ]


def test_of_several_days_each_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with SparkJobProgress("days that wait", is_quiet=False) as progress:
        for day in ("2026-11-16", "2026-11-17"):
            progress.show(told("claiming the day", of=f"message of {day}"))
    assert capsys.readouterr().out.splitlines()[1:] == [
        "message of 2026-11-16: claiming the day ...",
        "message of 2026-11-17: claiming the day ...",
    ]


def test_for_programs_nothing_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    with SparkJobProgress(WHAT, is_quiet=True) as progress:
        progress.show(told("writing", 1, 2, 100))
    assert capsys.readouterr().out == ""


def test_in_a_terminal_it_is_a_bar_that_goes_when_the_job_is_over(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    with SparkJobProgress(WHAT, is_quiet=False) as progress:
        progress.show(told("writing", 3, 12, 480_000))
    shown = capsys.readouterr().out
    assert "3 of 12 files" in shown
    # What the bar took up is cleared.
    assert shown.endswith("\x1b[2K")


def test_in_a_terminal_nothing_that_is_quoted_is_taken_for_a_style(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    with SparkJobProgress("days of [/archive]", is_quiet=False) as progress:
        progress.show(told("writing", 3, 12, 480_000))
        progress.show(told("[/archive]", 3, 12, 480_000))
    assert "[/archive]" in capsys.readouterr().out
