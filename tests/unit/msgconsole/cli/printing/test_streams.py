"""Whatever standard output is, a command ends with a status that is true, and without a traceback."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

from msgbroker.contract.errors import OutputFailedError
from msgconsole.cli import main as main_module
from msgconsole.cli.printing import output, streams

_TEXT = "支付 ✓ \udcff"


@pytest.fixture
def readerless(monkeypatch: pytest.MonkeyPatch) -> Iterator[IO[str]]:
    """A standard output whose reader has gone."""
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as pipe:
        monkeypatch.setattr(sys, "stdout", pipe)
        yield pipe


@pytest.mark.usefixtures("readerless")
def test_a_reader_that_has_gone_keeps_no_command_from_its_work() -> None:
    output.print_line("Topic TP_TRADE is registered.")
    output.print_table(["name"], [["TP_TRADE"]])
    output.print_json({"name": "TP_TRADE"})


def test_a_full_disk_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    with Path("/dev/full").open("w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        with pytest.raises(OutputFailedError, match="standard output cannot be written: No space left on device"):
            output.print_line("Topic TP_TRADE is registered.")


@pytest.mark.parametrize("encoding", ["utf-8", "gbk", "ascii", "latin-1"])
def test_text_that_the_encoding_does_not_have_is_escaped(monkeypatch: pytest.MonkeyPatch, encoding: str) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding))
    streams.prepare()
    expected = _TEXT.encode(encoding, "backslashreplace")
    output.print_line(_TEXT)
    assert raw.getvalue() == expected + b"\n"
    output.print_table(["description"], [[_TEXT]])
    output.print_thing({"description": _TEXT}, as_json=False)
    assert raw.getvalue().count(expected) == 3
    raw.truncate(0)
    raw.seek(0)
    output.print_json({"description": _TEXT})
    assert json.loads(raw.getvalue().decode(encoding)) == {"description": _TEXT}


def _run_with_closed(descriptors: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    closed = " ".join(f"{descriptor}>&-" for descriptor in descriptors)
    return subprocess.run(
        ["/bin/sh", "-c", f'exec "$@" {closed}', "sh", sys.executable, *arguments],
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_closed_standard_output_is_refused_before_anything_is_done() -> None:
    done = _run_with_closed("1", "-m", "msgconsole.cli", "topic", "create", "TP_TRADE")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("standard output is closed: redirect it to /dev/null")
    assert done.stderr.endswith("(OUTPUT_FAILED)\n")


def test_nothing_that_is_opened_later_takes_the_place_of_a_closed_stream() -> None:
    program = (
        "import os; from msgconsole.cli.printing import streams; streams.prepare(); print(os.open('/dev/null', 0))"
    )
    assert int(_run_with_closed("02", "-c", program).stdout) > 2


@pytest.mark.parametrize(
    "error, said",
    [
        (PermissionError(13, "Permission denied", "/srv/.msgcenter"), "Permission denied: /srv/.msgcenter"),
        (BlockingIOError(11, "Resource temporarily unavailable"), "Resource temporarily unavailable"),
    ],
)
def test_what_the_system_refuses_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: OSError, said: str
) -> None:
    def refuse(_arguments: object) -> None:
        raise error

    monkeypatch.setattr(main_module, "build_app", refuse)
    with pytest.raises(SystemExit) as exited:
        main_module.main()
    assert (exited.value.code, capsys.readouterr().err) == (1, f"{said} (SYSTEM_ERROR)\n")


def test_ctrl_c_while_a_command_is_imported_is_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(_arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(main_module, "build_app", interrupt)
    with pytest.raises(SystemExit) as exited:
        main_module.main()
    assert exited.value.code == 130
