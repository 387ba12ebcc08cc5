"""Runs a scenario step by step against a center of its own. It prints nothing: *say* is told what happens."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

from msgconsole.bench.measures import surroundings
from msgconsole.bench.measures.results import RunResult
from msgconsole.bench.phases import bare_copy, dear_neighbour, large_configuration
from msgconsole.bench.phases.center import BenchCenter
from msgconsole.bench.phases.runner import PhaseRunner
from msgconsole.bench.scenario import (
    BareCopy,
    DearNeighbour,
    FreshStart,
    LargeConfiguration,
    Phase,
    Scenario,
    Step,
)


class Driver:
    """Runs scenarios, and says what it does."""

    def __init__(self, say: Callable[[str], None], directory: Path | None = None) -> None:
        """Make a driver. *directory* keeps the databases; without it they are gone after the run."""
        self._say = say
        self._directory = directory

    def run(self, scenario: Scenario) -> RunResult:
        """Run *scenario* and return what was measured. Raises BenchFailedError."""
        began_at = time.monotonic()
        commit, dirty = surroundings.commit()
        result = RunResult(
            scenario.name,
            datetime.now(UTC).isoformat(timespec="seconds"),
            commit,
            dirty,
            surroundings.machine(),
            surroundings.versions(),
        )
        for number, steps in enumerate(_by_center(scenario.steps)):
            with ExitStack() as stack:
                if self._directory is None:
                    directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="msgcenter-bench-")))
                else:
                    directory = self._directory / f"center-{number}"
                    directory.mkdir(parents=True, exist_ok=True)
                center = stack.enter_context(BenchCenter(directory, self._say))
                result.settings = surroundings.settings(center)
                runner = PhaseRunner(center)
                for step in steps:
                    self._run_step(step, center, runner, result, stack)
        result.seconds = round(time.monotonic() - began_at, 1)
        return result

    def _run_step(
        self, step: Step, center: BenchCenter, runner: PhaseRunner, result: RunResult, stack: ExitStack
    ) -> None:
        match step:
            case BareCopy():
                rows_per_second = bare_copy.run(center.msgdb_url, step.rows, step.body_bytes)
                self._say(f"bare COPY: {rows_per_second:,.0f} rows/s")
                result.bare_copy_rows_per_second.append(round(rows_per_second, 1))
            case LargeConfiguration():
                listener, configuration = large_configuration.measure(center, step)
                stack.enter_context(listener)
                runner.background["listener"] = (listener.pid,)
                result.configuration = configuration
                self._say(f"large configuration: {configuration}")
            case DearNeighbour():
                neighbour = stack.enter_context(dear_neighbour.connect(center, step))
                runner.background["neighbour"] = (neighbour.pid,)
                self._say("a neighbour reads its backlog by an expression that takes long")
            case Phase():
                measured = runner.run(step)
                self._say(
                    f"{step.name}: {measured.messages:,} messages at {measured.messages_per_second:,.0f}/s"
                    f" in {measured.seconds:.1f} s"
                )
                if not step.is_warm_up:
                    result.phases.append(measured)


def _by_center(steps: Iterable[Step]) -> list[list[Step]]:
    """Return the steps of each center of a scenario."""
    parts: list[list[Step]] = [[]]
    for step in steps:
        if isinstance(step, FreshStart):
            parts.append([])
        else:
            parts[-1].append(step)
    return parts
