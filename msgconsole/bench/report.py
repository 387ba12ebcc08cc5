"""A run's results for people: tables for the terminal, Markdown for `docs/benchmarks/`."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from msgconsole.bench.driver import PhaseResult, RunResult


def print_result(console: Console, result: RunResult) -> None:
    """Print *result* as tables."""
    bare = result.bare_copy_rows_per_second
    table = Table(title=f"{result.scenario} at {result.commit}: bare COPY {bare:,.0f} rows/s")
    for column in ("phase", "msg/s", "of bare COPY", "deliveries/s", "p50 ms", "p99 ms", "CPU µs/msg", "broker MiB"):
        table.add_column(column, justify="left" if column == "phase" else "right")
    for phase in result.phases:
        table.add_row(*_row(phase, bare))
    console.print(table)


def as_markdown(result: RunResult) -> str:
    """Return *result* as a Markdown section."""
    bare = result.bare_copy_rows_per_second
    lines = [
        f"## {result.scenario}, {result.started_at[:16]} UTC, commit {result.commit}",
        "",
        f"Machine: {result.machine}. Versions: {result.versions}.",
        f"Bare COPY loop into the same table in the same run: {bare:,.0f} rows/s.",
        "",
        "| phase | msg/s | of bare COPY | deliveries/s | p50 ms | p99 ms | CPU µs/msg by process | broker RSS MiB |",
        "|---|---|---|---|---|---|---|---|",
        *("| " + " | ".join(_row(phase, bare)) + " |" for phase in result.phases),
        "",
    ]
    return "\n".join(lines)


def _row(phase: PhaseResult, bare: float) -> tuple[str, ...]:
    cpu = ", ".join(f"{role} {used:.1f}" for role, used in phase.cpu_us_per_message.items())
    return (
        phase.name,
        f"{phase.messages_per_second:,.0f}",
        f"{phase.messages_per_second / bare:.2f}" if bare else "",
        f"{phase.deliveries_per_second:,.0f}",
        f"{phase.latency_ms['p50']:.2f}",
        f"{phase.latency_ms['p99']:.2f}",
        cpu,
        f"{phase.rss_mib.get('broker', 0):,.0f}",
    )
