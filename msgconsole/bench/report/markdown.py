"""A run's results as a Markdown page: targets, ratios, phases, and on what they were measured."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from msgconsole.bench.measures.results import ConfigurationResult, PhaseResult, RunResult
from msgconsole.bench.measures.targets import Verdict, cores_projection, judge, ratios

PHASE_COLUMNS: Final = (
    "phase", "messages", "msg/s", "of bare COPY", "deliveries/s", "p50 ms", "p99 ms", "CPU µs/msg", "broker MiB"
)  # fmt: skip
TARGET_COLUMNS: Final = ("what", "target", "measured", "met")

_PHASES: Final = (
    "A phase that was repeated is there several times; the targets take the median. Latency is from publish to handler."
    " CPU is that of broker, PostgreSQL, publishers and subscribers, in this order, then of whoever else took part."
)


def document(run: RunResult, chart: str, data: str) -> str:
    """Return the page; *chart* and *data* are files beside it."""
    parts = [
        f"# Benchmark: {run.scenario}",
        _when(run, data),
        _bare_copy(run),
        f"![Messages and deliveries per second by phase]({chart})",
        "## Targets",
        table(TARGET_COLUMNS, [target_row(verdict) for verdict in judge(run)]),
        "## Ratios",
        table(("ratio", "value"), [(name, f"{ratio:.2f}") for name, ratio in ratios(run).items()]),
        "## Phases",
        _PHASES,
        table(PHASE_COLUMNS, [phase_row(phase, run.bare_copy()) for phase in run.phases]),
        *_details(run),
        "## Measured on",
        _surroundings(run),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def phase_row(phase: PhaseResult, bare: float | None) -> tuple[str, ...]:
    """Return the cells of a phase, for PHASE_COLUMNS."""
    order = {"broker": 0, "postgres": 1, "publisher": 2, "subscriber": 3}
    cpu = sorted(phase.cpu_us_per_message.items(), key=lambda item: order.get(item[0], 9))
    return (
        phase.name,
        f"{phase.messages:,}",
        f"{phase.messages_per_second:,.0f}",
        f"{phase.messages_per_second / bare:.2f}" if bare else "",
        f"{phase.deliveries_per_second:,.0f}",
        f"{phase.latency_ms['p50']:.2f}" if phase.latency_ms else "",
        f"{phase.latency_ms['p99']:.2f}" if phase.latency_ms else "",
        " + ".join(f"{used:.1f}" for _, used in cpu),
        f"{phase.broker_rss_peak_mib:,.0f}",
    )


def target_row(verdict: Verdict) -> tuple[str, ...]:
    """Return the cells of a target, for TARGET_COLUMNS."""
    bounds = [("≥", verdict.at_least), ("≤", verdict.at_most)]
    target = " and ".join(f"{sign} {_number(bound)}" for sign, bound in bounds if bound is not None)
    if verdict.measured is None:
        return verdict.what, f"{target} {verdict.unit}", "not in this scenario", ""
    met = "yes" if verdict.is_met else "**no**"
    return verdict.what, f"{target} {verdict.unit}", f"{_number(verdict.measured)} {verdict.unit}", met


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.4g}"


def _when(run: RunResult, data: str) -> str:
    sources = f"commit {run.commit}{' with local changes' if run.dirty else ''}"
    at = run.started_at[:16].replace("T", " ")
    return f"{at} UTC, {sources}, {run.seconds / 60:.1f} minutes. All that was measured is in [{data}]({data})."


def _bare_copy(run: RunResult) -> str:
    bare = run.bare_copy()
    if not bare:
        return ""
    rates = ", ".join(f"{rate:,.0f}" for rate in run.bare_copy_rows_per_second)
    return (
        f"A bare binary COPY loop into the same indexed table in the same run: {bare:,.0f} rows/s (median of {rates})."
    )


def _details(run: RunResult) -> list[str]:
    parts: list[str] = []
    for phase in run.phases:
        if phase.rows_per_message:
            written = ", ".join(f"{name} {rows:.4f}" for name, rows in phase.rows_per_message.items())
            parts.append(f"- {phase.name}, per message: {written}.")
        if phase.receipt_ms:
            parts.append(f"- {phase.name}, publish to receipt: {_latency(phase.receipt_ms)}.")
        if phase.first and phase.last and phase.first.receipt_ms:
            parts.append(
                f"- {phase.name}: {phase.first.messages_per_second:,.0f} msg/s in its first"
                f" {phase.first.seconds:.0f} s, {phase.last.messages_per_second:,.0f} in its last; publish to receipt"
                f" {_latency(phase.first.receipt_ms)} at first, {_latency(phase.last.receipt_ms)} at last."
            )
        if phase.catch_up:
            parts.append(
                f"- {phase.name}: {phase.catch_up.backlog:,} messages behind, caught up in"
                f" {phase.catch_up.seconds:.1f} s at {phase.catch_up.messages_per_second:,.0f} msg/s; meanwhile"
                f" {phase.catch_up.published_per_second:,.0f} msg/s were published, and another group got"
                f" {phase.catch_up.others_per_second:,.0f} msg/s."
            )
    if run.configuration is not None:
        parts.append(_configuration(run.configuration))
    projected = cores_projection(run, 16)
    if projected is not None:
        parts.append(
            f"- By CPU per message of broker and PostgreSQL, 16 cores would do {projected:,.0f} msg/s (publishers and"
            " subscribers elsewhere, work spread evenly over broker processes, nothing but CPU in the way)."
        )
    return ["## In detail", "\n".join(parts)] if parts else []


def _configuration(configuration: ConfigurationResult) -> str:
    visible, active = (
        ", ".join(f"{seconds:.2f}" for seconds in measured)
        for measured in (configuration.change_visible_seconds, configuration.change_active_seconds)
    )
    return (
        f"- {configuration.topics:,} topics, {configuration.subscriptions:,} subscriptions,"
        f" {configuration.live_subscriptions:,} of them live: the broker starts in {configuration.start_seconds:.1f} s;"
        f" changes were visible after {visible} s and reported active after {active} s; idle it uses"
        f" {configuration.idle_cpu_share:.1%} of a core; {configuration.broker_rss_peak_mib:,.0f} MiB."
    )


def _latency(latency_ms: dict[str, float]) -> str:
    return f"p50 {latency_ms['p50']:.2f} ms, p99 {latency_ms['p99']:.2f} ms"


def _surroundings(run: RunResult) -> str:
    described = {**run.machine, **run.versions, **run.settings["postgres"]}
    lines = [f"- {name}: {value}" for name, value in described.items()]
    lines.append(f"- settings of the broker: {run.settings['broker']}; of the client: {run.settings['client']}")
    return "\n".join(lines)
