"""How far a Spark job is: a bar in a terminal, a line now and then anywhere else."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Final, Self

from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from msgconsole.cli.printing.output import console, print_line

_LINE_SECONDS_MIN: Final = 10.0
"""How long the lines of one step are apart, at least: they end up in log files."""
_SPEED_SECONDS_MIN: Final = 1.0
"""How long a step must have taken for a speed that says something."""


class SparkJobProgress:
    """Shows what a Spark job tells, for as long as it is entered. Nothing where *is_quiet*."""

    def __init__(self, what: str, *, is_quiet: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self._what = what
        self._clock = clock
        self._is_quiet = is_quiet
        self._bar: Progress | None = None
        self._task = TaskID(0)
        self._step = ""
        self._step_since = 0.0
        self._line_at = -math.inf

    def __enter__(self) -> Self:
        if not self._is_quiet and sys.stdout.isatty():
            columns = (
                TextColumn("{task.description}", markup=False),
                BarColumn(),
                TextColumn("{task.fields[counted]}"),
                TimeElapsedColumn(),
            )
            self._bar = Progress(*columns, console=console(), transient=True)
            self._task = self._bar.add_task(f"{self._what}: starting Spark", total=None, counted="")
            self._bar.start()
        elif not self._is_quiet:
            print_line(f"{self._what}: starting Spark ...")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def show(self, told: Mapping[str, Any]) -> None:
        """Show what the job tells: `spark_etl.archive.progress.Progress`, as JSON has it."""
        step = f"{told['of'] or self._what}: {told['step']}"
        if step != self._step:
            self._step, self._step_since, self._line_at = step, self._clock(), -math.inf
        counted = self._counted(told["parts_done"], told["parts"], told["rows"])
        if self._bar is not None:
            done, total = told["parts_done"], told["parts"] or None
            self._bar.update(self._task, description=step, completed=done, total=total, counted=counted)
        elif not self._is_quiet and self._clock() - self._line_at >= _LINE_SECONDS_MIN:
            self._line_at = self._clock()
            print_line(f"{step}: {counted}" if counted else f"{step} ...")

    def _counted(self, done: int, total: int, rows: int) -> str:
        """Return what is done of a step that has parts, and how fast since it began."""
        seconds = self._clock() - self._step_since
        if not total:
            return ""
        if not done or seconds < _SPEED_SECONDS_MIN:
            return f"{done:,} of {total:,} files"
        return f"{done:,} of {total:,} files, {rows * done / total / seconds:,.0f} rows/s"
