"""The targets, what was measured for each, and whether it is met; and the ratios that carry over to other machines."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from msgconsole.bench import catalogue
from msgconsole.bench.measures.results import PhaseResult, RunResult
from msgdb.jobs.records import RATE_DEFAULT
from msgdb.names import TRACE_EVENT

_BACKLOG_RATIO_MIN: Final = 0.95


@dataclass(frozen=True, slots=True)
class Verdict:
    """A target and what became of it. `measured` None: the scenario has no phase for it."""

    what: str
    unit: str
    at_least: float | None
    at_most: float | None
    measured: float | None

    @property
    def is_met(self) -> bool | None:
        """Whether the target is met; None where it was not measured."""
        if self.measured is None:
            return None
        low_enough = self.at_most is None or self.measured <= self.at_most
        return low_enough and (self.at_least is None or self.measured >= self.at_least)


@dataclass(frozen=True, slots=True)
class _Target:
    what: str
    unit: str
    measure: Callable[[RunResult], float | None]
    at_least: float | None = None
    at_most: float | None = None


def ratios(run: RunResult) -> dict[str, float]:
    """Return every ratio that the run has the phases for."""
    found = {name: measure(run) for name, measure in _RATIOS.items()}
    return {name: round(ratio, 3) for name, ratio in found.items() if ratio is not None}


def judge(run: RunResult) -> list[Verdict]:
    """Return the targets in their order, with what was measured."""
    return [
        Verdict(target.what, target.unit, target.at_least, target.at_most, target.measure(run)) for target in _TARGETS
    ]


def cores_projection(run: RunResult, cores: int) -> float | None:
    """Return the messages a second that *cores* cores would do if nothing but CPU limits them.

    Of broker and PostgreSQL alone: at that size, publishers and subscribers are elsewhere. One topic, one group.
    """
    name = catalogue.WORKERS_2 if run.named(catalogue.WORKERS_2) else catalogue.ONE_GROUP
    used_us = run.median(name, lambda phase: phase.cpu_us_per_message["broker"] + phase.cpu_us_per_message["postgres"])
    return None if used_us is None else cores * 1e6 / used_us


def _rate(phase: PhaseResult) -> float:
    return phase.messages_per_second


def _deliveries(phase: PhaseResult) -> float:
    return phase.deliveries_per_second


def _published(phase: PhaseResult) -> float:
    return phase.published_per_second


def _receipt_p99(phase: PhaseResult) -> float:
    return phase.receipt_ms["p99"]


def _latency_p99(phase: PhaseResult) -> float:
    return phase.latency_ms["p99"]


def _rows_for_delivery(phase: PhaseResult) -> float:
    # A trace is a sample, which has a target of its own.
    return sum(rows for table, rows in phase.rows_per_message.items() if table != TRACE_EVENT)


def _median(name: str, measure: Callable[[PhaseResult], float]) -> Callable[[RunResult], float | None]:
    return lambda run: run.median(name, measure)


def _quotient(
    above: Callable[[RunResult], float | None], below: Callable[[RunResult], float | None]
) -> Callable[[RunResult], float | None]:
    def ratio(run: RunResult) -> float | None:
        upper, lower = above(run), below(run)
        return None if upper is None or not lower else upper / lower

    return ratio


def _of_bare_copy(run: RunResult) -> float | None:
    rate, bare = run.median(catalogue.ONE_GROUP, _rate), run.bare_copy()
    return None if rate is None or not bare else rate / bare


def _catching_up(run: RunResult) -> float | None:
    return run.median(
        catalogue.BACKLOG_CATCH_UP, lambda phase: phase.catch_up.messages_per_second if phase.catch_up else 0.0
    )


def _published_meanwhile(run: RunResult) -> float | None:
    return run.median(
        catalogue.BACKLOG_CATCH_UP, lambda phase: phase.catch_up.published_per_second if phase.catch_up else 0.0
    )


def _held_rate(run: RunResult) -> float | None:
    return run.median(
        catalogue.HELD_SNAPSHOT,
        lambda phase: (
            phase.last.messages_per_second / phase.first.messages_per_second if phase.first and phase.last else 0.0
        ),
    )


def _held_receipt(run: RunResult) -> float | None:
    return run.median(
        catalogue.HELD_SNAPSHOT,
        lambda phase: (
            phase.last.receipt_ms["p50"] / phase.first.receipt_ms["p50"] if phase.first and phase.last else 0.0
        ),
    )


def _memory(run: RunResult) -> float | None:
    # Megabytes, as the target has it; with two workers it is the sum of both.
    peaks = [phase.broker_rss_peak_mib for phase in run.phases if phase.name != catalogue.WORKERS_2]
    if run.configuration is not None:
        peaks.append(run.configuration.broker_rss_peak_mib)
    return max(peaks) * 2**20 / 1e6 if peaks else None


_RATIOS: Final[dict[str, Callable[[RunResult], float | None]]] = {
    "one group / bare COPY": _of_bare_copy,
    "five groups / one group, deliveries": _quotient(
        _median(catalogue.FIVE_GROUPS, _deliveries), _median(catalogue.ONE_GROUP, _deliveries)
    ),
    "HEADER / DIRECT, same messages": _quotient(
        _median(catalogue.HEADER, _rate), _median(catalogue.ONE_GROUP_HEADERS, _rate)
    ),
    "HEADER / DIRECT, messages without headers": _quotient(
        _median(catalogue.HEADER, _rate), _median(catalogue.ONE_GROUP, _rate)
    ),
    "backlog there / none, published": _quotient(
        _median(catalogue.BACKLOG_THERE, _published), _median(catalogue.BACKLOG_EMPTY, _published)
    ),
    "backlog there / none, delivered": _quotient(
        _median(catalogue.BACKLOG_THERE, _rate), _median(catalogue.BACKLOG_EMPTY, _rate)
    ),
    "published while the late group catches up / no backlog": _quotient(
        _published_meanwhile, _median(catalogue.BACKLOG_EMPTY, _published)
    ),
    "held snapshot, rate at its end / at its start": _held_rate,
    "held snapshot, receipt p50 at its end / at its start": _held_receipt,
    "2 workers / 1 worker": _quotient(_median(catalogue.WORKERS_2, _rate), _median(catalogue.WORKERS_1, _rate)),
    "beside a dear neighbour / alone, receipt p99": _quotient(
        _median(catalogue.ONE_CALLER_BESIDE, _receipt_p99), _median(catalogue.ONE_CALLER, _receipt_p99)
    ),
    "beside a redrive / alone, publish to handler p99": _quotient(
        _median(catalogue.LIVE_BESIDE, _latency_p99), _median(catalogue.LIVE, _latency_p99)
    ),
    "traced at rate 0.01 / not traced": _quotient(
        _median(catalogue.TRACED_AS_USUAL, _rate), _median(catalogue.TRACED_NOT, _rate)
    ),
    "traced at rate 1 / not traced": _quotient(
        _median(catalogue.TRACED_ALL, _rate), _median(catalogue.TRACED_NOT, _rate)
    ),
    "hot topic in a large configuration / one group": _quotient(
        _median(catalogue.HOT_TOPIC, _rate), _median(catalogue.ONE_GROUP, _rate)
    ),
}

_TARGETS: Final = (
    _Target("end to end, one publisher, one group", "msg/s", _median(catalogue.ONE_GROUP, _rate), at_least=50_000),
    _Target("the same, of the bare COPY rate", "×", _of_bare_copy, at_least=0.6),
    _Target("5 groups", "deliveries/s", _median(catalogue.FIVE_GROUPS, _deliveries), at_least=150_000),
    _Target("64 callers that await each publish", "msg/s", _median(catalogue.AWAITING, _published), at_least=10_000),
    _Target("64 plain unary gRPC callers", "calls/s", _median(catalogue.UNARY, _published), at_least=5_000),
    _Target(
        "publish to handler at 1,000/s, p50", "ms", _median(catalogue.LATENCY, lambda p: p.latency_ms["p50"]), at_most=2
    ),
    _Target(
        "publish to handler at 1,000/s, p99",
        "ms",
        _median(catalogue.LATENCY, lambda p: p.latency_ms["p99"]),
        at_most=10,
    ),
    _Target(
        "rows written per message, one group",
        "rows",
        _median(catalogue.ROWS_ONE_GROUP, _rows_for_delivery),
        at_most=1.05,
    ),
    _Target(
        "rows written per message, five groups",
        "rows",
        _median(catalogue.ROWS_FIVE_GROUPS, _rows_for_delivery),
        at_most=1.05,
    ),
    _Target(
        "rows of the trace per message, five groups, as usual",
        "rows",
        _median(catalogue.ROWS_FIVE_GROUPS, lambda p: p.rows_per_message.get(TRACE_EVENT, 0.0)),
        at_most=0.1,
    ),
    _Target("traced at rate 0.01, of not traced", "×", _RATIOS["traced at rate 0.01 / not traced"], at_least=0.97),
    _Target("traced at rate 1, of not traced", "×", _RATIOS["traced at rate 1 / not traced"], at_least=0.6),
    _Target("HEADER group, three terms, of DIRECT", "×", _RATIOS["HEADER / DIRECT, same messages"], at_least=0.8),
    _Target(
        "100 HEADER groups on one topic",
        "evaluations/s",
        _median(catalogue.HEADER_100, lambda p: p.evaluations_per_second),
        at_least=200_000,
    ),
    _Target("backlog there: publishing, of none", "×", _RATIOS["backlog there / none, published"], at_least=0.95),
    _Target("backlog there: tail delivery, of none", "×", _RATIOS["backlog there / none, delivered"], at_least=0.95),
    _Target("late group catches up", "msg/s", _catching_up, at_least=50_000),
    _Target(
        "publishing meanwhile, of no backlog",
        "×",
        _RATIOS["published while the late group catches up / no backlog"],
        at_least=0.5,
    ),
    _Target("held snapshot: rate at its end, of its start", "×", _held_rate, at_least=0.95),
    _Target("held snapshot: publish to receipt at its end, of its start", "×", _held_receipt, at_most=1.1),
    _Target(
        "large configuration: start",
        "s",
        lambda r: r.configuration.start_seconds if r.configuration else None,
        at_most=5,
    ),
    _Target(
        "large configuration: slowest change visible",
        "s",
        lambda r: max(r.configuration.change_visible_seconds) if r.configuration else None,
        at_most=1,
    ),
    _Target(
        "large configuration: idle CPU, of a core",
        "×",
        lambda r: r.configuration.idle_cpu_share if r.configuration else None,
        at_most=0.02,
    ),
    _Target(
        "large configuration: hot topic, of a small one",
        "×",
        _RATIOS["hot topic in a large configuration / one group"],
        at_least=_BACKLOG_RATIO_MIN,
    ),
    _Target(
        "publish beside a dear expression of another tenant, p99 of alone",
        "×",
        _RATIOS["beside a dear neighbour / alone, receipt p99"],
        at_most=1.5,
    ),
    _Target(
        f"publish to handler at 500/s beside a redrive at {RATE_DEFAULT:,g}/s, p99 of alone",
        "×",
        _RATIOS["beside a redrive / alone, publish to handler p99"],
        at_most=1.5,
    ),
    _Target("broker memory, peak of all phases", "MB", _memory, at_most=300),
    _Target("2 workers, of 1", "×", _RATIOS["2 workers / 1 worker"], at_least=1),
)
