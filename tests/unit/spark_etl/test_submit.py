"""What the program tells: lines of JSON, to somebody who may have stopped reading, or gone."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import suppress

import pytest

from spark_etl.archive.progress import Progress, Step
from spark_etl.submit import _say, _teller

_PROGRESS = Progress(Step.WRITING, 3, 12, 480_000)


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """Return the two ends of a pipe; a test may close them."""
    ends = os.pipe()
    yield ends
    for end in ends:
        with suppress(OSError):
            os.close(end)


def test_how_far_it_is_is_a_line_of_json(pipe: tuple[int, int]) -> None:
    reading, writing = pipe
    _teller(writing)(_PROGRESS)
    told = json.loads(os.read(reading, 4_096))
    assert told == {
        "progress": {"step": "writing and verifying", "parts_done": 3, "parts": 12, "rows": 480_000, "of": ""}
    }


def test_a_listener_that_does_not_read_holds_up_nothing(pipe: tuple[int, int]) -> None:
    reading, writing = pipe
    tell = _teller(writing)
    # Far more than a pipe holds.
    for _ in range(5_000):
        tell(_PROGRESS)
    *whole, rest = os.read(reading, 1 << 20).split(b"\n")
    assert (rest, {json.loads(line)["progress"]["parts"] for line in whole}) == (b"", {12})


def test_a_listener_that_is_gone_is_no_error(pipe: tuple[int, int]) -> None:
    reading, writing = pipe
    os.close(reading)
    _teller(writing)(_PROGRESS)
    _say(writing, {"archived": []})


def test_without_a_listener_the_result_goes_to_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    _say(None, {"archived": []})
    assert capsys.readouterr().out == '{"archived": []}\n'
