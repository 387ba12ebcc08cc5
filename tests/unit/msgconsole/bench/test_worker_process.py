"""Worker processes that do not do what they should."""

from __future__ import annotations

from pathlib import Path

import pytest

from msgbroker.contract.errors import BenchFailedError
from msgconsole.bench.phases.worker_process import WorkerProcess

TALKING = """
import json, sys
print(json.dumps({"ready": True}), flush=True)
sys.stdin.readline()
print(json.dumps({"progress": {"n": 1}, "at": 5.0}), flush=True)
print(json.dumps({"result": {"n": 2}}), flush=True)
"""


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return tmp_path / "made_up_worker.py"


def test_a_worker_is_told_to_begin_and_says_how_far_it_is_and_its_result(program: Path) -> None:
    program.write_text(TALKING)
    with WorkerProcess("talk", {}, "made_up_worker") as worker:
        worker.wait_until_ready()
        worker.tell()
        assert worker.result(10.0) == {"n": 2}
        assert (worker.latest, [*worker.history]) == ({"n": 1}, [(5.0, {"n": 1})])


def test_a_worker_that_ends_early_fails_the_phase(program: Path) -> None:
    program.write_text("raise SystemExit(3)")
    with WorkerProcess("die", {}, "made_up_worker") as worker, pytest.raises(BenchFailedError, match="status 3"):
        worker.wait_until_ready()


def test_a_worker_that_is_not_done_in_time_fails_the_phase(program: Path) -> None:
    program.write_text(TALKING)
    with WorkerProcess("talk", {}, "made_up_worker") as worker:
        worker.wait_until_ready()
        with pytest.raises(BenchFailedError, match="not done within"):
            worker.result(0.05)
