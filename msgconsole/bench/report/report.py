"""A run's results for people: on the terminal, and as files (JSON, Markdown, a chart) in a directory."""

from __future__ import annotations

import json
from pathlib import Path

from rich.console import Console
from rich.table import Table

from msgconsole.bench.measures.results import RunResult
from msgconsole.bench.measures.targets import judge
from msgconsole.bench.report import markdown


def print_result(console: Console, run: RunResult) -> None:
    """Print *run* as tables."""
    bare = run.bare_copy()
    of_bare = f": bare COPY {bare:,.0f} rows/s" if bare else ""
    table = Table(title=f"{run.scenario} at {run.commit}{' (changed)' if run.dirty else ''}{of_bare}")
    for column in markdown.PHASE_COLUMNS:
        table.add_column(column, justify="left" if column == "phase" else "right")
    for phase in run.phases:
        table.add_row(*markdown.phase_row(phase, bare))
    console.print(table)
    targets = Table()
    for column in markdown.TARGET_COLUMNS:
        targets.add_column(column, justify="left" if column == "what" else "right")
    for verdict in judge(run):
        if verdict.measured is not None:
            # Bold is Markdown's.
            targets.add_row(*(cell.strip("*") for cell in markdown.target_row(verdict)))
    console.print(targets)


def write_report(run: RunResult, directory: Path) -> list[Path]:
    """Write the run's JSON, Markdown and chart to *directory*, named after the scenario; return the files."""
    from msgconsole.bench.report.chart import draw

    directory.mkdir(parents=True, exist_ok=True)
    stem = directory / run.scenario
    chart, data, text = (stem.with_suffix(suffix) for suffix in (".png", ".json", ".md"))
    draw(run, chart)
    data.write_text(json.dumps(run.as_json(), indent=2) + "\n")
    text.write_text(markdown.document(run, chart.name, data.name))
    return [text, chart, data]
