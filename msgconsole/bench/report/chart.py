"""A run's chart. Needs matplotlib, from the extra `bench`."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from msgbroker.contract.errors import ChartNotPossibleError
from msgconsole.bench.measures.results import RunResult

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw(run: RunResult, file: Path) -> None:
    """Draw the rates of the run's phases and what CPU a message costs, as a PNG."""
    names = list(dict.fromkeys(phase.name for phase in run.phases))
    figure = _figure(rows=len(names))
    rates, costs = figure.subplots(1, 2, sharey=True)
    delivered = [run.median(name, lambda phase: phase.deliveries_per_second) or 0.0 for name in names]
    published = [run.median(name, lambda phase: phase.messages_per_second) or 0.0 for name in names]
    rates.barh(names, delivered, color="#9ecae1", label="deliveries/s")
    rates.barh(names, published, height=0.4, color="#08519c", label="messages/s")
    bare = run.bare_copy()
    if bare:
        rates.axvline(bare, color="#d94801", linestyle="--", label="bare COPY, rows/s")
    rates.set_title("per second")
    rates.invert_yaxis()
    rates.legend(fontsize="small")
    left = [0.0] * len(names)
    for role in dict.fromkeys(role for phase in run.phases for role in phase.cpu_us_per_message):
        used = [
            statistics.median(phase.cpu_us_per_message.get(role, 0.0) for phase in run.named(name)) for name in names
        ]
        costs.barh(names, used, left=left, label=role)
        left = [start + more for start, more in zip(left, used, strict=True)]
    costs.set_title("CPU per message, µs (the longest are cut off)")
    # Unary calls and a hundred groups cost many times what the others do.
    costs.set_xlim(0, min(max(left), 4 * statistics.median(left)))
    costs.legend(fontsize="small")
    figure.suptitle(f"{run.scenario}, {run.started_at[:10]}, commit {run.commit}")
    figure.savefig(file, dpi=110)


def draw_bars(values: Mapping[str, float], title: str, file: Path) -> None:
    """Draw one bar for each value, as a PNG."""
    figure = _figure(rows=len(values))
    bars = figure.subplots()
    drawn = bars.barh([*values], [*values.values()], color="#08519c")
    bars.bar_label(drawn, fmt="{:,.0f}", padding=4)
    bars.margins(x=0.12)
    bars.invert_yaxis()
    bars.set_title(title)
    figure.savefig(file, dpi=110)


def _figure(rows: int) -> Figure:
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ChartNotPossibleError("matplotlib is not installed: pip install 'msgcenter[bench]'") from error
    # No display is needed, and none is asked for.
    mpl.use("Agg")
    return Figure(figsize=(11, 1.5 + 0.45 * rows), layout="constrained")
