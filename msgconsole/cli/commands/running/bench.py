"""`msgcenter bench`: how fast it is here."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from msgbroker.contract.errors import BenchFailedError
from msgconsole.bench.catalogue import baseline
from msgconsole.bench.driver import Driver
from msgconsole.bench.report.report import print_result, write_report
from msgconsole.bench.scenario import Scenario
from msgconsole.cli.exit_status import EXIT_INTERRUPTED
from msgconsole.cli.printing import output, streams
from msgconsole.cli.typed.options import AsJson
from msgconsole.local.stopping import StoppedBySignals


def command(
    scenario: Annotated[
        Path | None, typer.Argument(help="A Python file that defines SCENARIO. Default: 1 group, 5 groups, latency.")
    ] = None,
    scale: Annotated[float, typer.Option("--scale", min=0.001, max=100, help="Of the default's messages.")] = 1.0,
    directory: Annotated[
        Path | None, typer.Option("--directory", help="Where the database goes. Default: a temporary directory.")
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option("--report", help="Write JSON, Markdown and a chart to this directory (needs msgcenter[bench])."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Measure messages per second and latency, with a PostgreSQL and a broker of its own (fsync on).

    Publisher, broker, PostgreSQL and subscribers share this machine. Rates are also given as a share of a bare COPY
    loop into the same table in the same run, which tells more than a number of one machine.

    Example: msgcenter bench --scale 0.1 --json
    """
    console = Console(stderr=True, highlight=False)
    driver = Driver(lambda text: console.print(text, soft_wrap=True), directory)
    result = None
    # A kill, too, takes along what was started.
    with StoppedBySignals():
        result = driver.run(_load(scenario) if scenario else baseline(scale))
    if result is None:
        raise typer.Exit(EXIT_INTERRUPTED)
    if as_json:
        output.print_json(result.as_json())
    else:
        target = output.console()
        with target.capture() as captured:
            print_result(target, result)
        streams.print_text(captured.get())
    if report is not None:
        for file in write_report(result, report):
            console.print(f"Written: {file}")


def _load(path: Path) -> Scenario:
    if not path.is_file():
        raise BenchFailedError(f"there is no scenario file {path}")
    scenario = runpy.run_path(str(path)).get("SCENARIO")
    if not isinstance(scenario, Scenario):
        raise BenchFailedError(f"{path} does not define SCENARIO as a Scenario")
    return scenario
