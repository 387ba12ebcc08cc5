"""Reports for people."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from msgconsole.bench import catalogue
from msgconsole.bench.measures.results import CatchUp, RunResult, Window
from msgconsole.bench.report.report import write_report
from tests.support.bench_builders import configuration, phase, run

pytestmark = pytest.mark.slow


@pytest.fixture
def measured_run() -> RunResult:
    window = Window(seconds=10, messages_per_second=40_000, receipt_ms={"p50": 10.0, "p99": 20.0})
    result = run(
        phase(catalogue.ONE_GROUP, messages_per_second=51_234.0),
        phase(catalogue.ROWS_ONE_GROUP, rows_per_message={"message": 1.0, "cursor": 0.002}),
        phase(catalogue.HELD_SNAPSHOT, first=window, last=window),
        phase(catalogue.BACKLOG_CATCH_UP, catch_up=CatchUp(1_000_000, 20.0, 50_000.0, 25_000.0, 24_000.0)),
        phase(catalogue.HEADER_100, latency_ms={}),
        bare_copy=(100_000.0,),
    )
    result.configuration = configuration()
    return result


def test_a_report_is_a_page_a_chart_and_the_data(measured_run: RunResult, tmp_path: Path) -> None:
    written = write_report(measured_run, tmp_path / "new")
    assert [file.name for file in written] == ["made-up.md", "made-up.png", "made-up.json"]
    assert written[1].read_bytes().startswith(b"\x89PNG")
    data = json.loads(written[2].read_text())
    assert (data["commit"], data["dirty"], data["phases"][0]["name"]) == ("0123456789ab", False, catalogue.ONE_GROUP)
    assert data["targets"][0]["is_met"] is True


def test_the_page_says_which_targets_are_met(measured_run: RunResult, tmp_path: Path) -> None:
    lines = write_report(measured_run, tmp_path)[0].read_text().splitlines()
    assert "| end to end, one publisher, one group | ≥ 50,000 msg/s | 51,234 msg/s | yes |" in lines
    assert "| the same, of the bare COPY rate | ≥ 0.6 × | 0.5123 × | **no** |" in lines
    assert "| late group catches up | ≥ 50,000 msg/s | 50,000 msg/s | yes |" in lines
    assert "| 5 groups | ≥ 150,000 deliveries/s | not in this scenario |  |" in lines


def test_every_row_of_a_table_has_as_many_cells_as_its_head(measured_run: RunResult, tmp_path: Path) -> None:
    text = write_report(measured_run, tmp_path)[0].read_text()
    for block in text.split("\n\n"):
        if block.startswith("|"):
            assert len({line.count("|") for line in block.splitlines()}) == 1, block
