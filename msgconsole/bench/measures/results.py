"""What was measured: plain data, written as JSON."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Window:
    """A part of a phase: how fast it was then."""

    seconds: float
    messages_per_second: float
    """Deliveries to one group."""
    receipt_ms: dict[str, float]
    """Publish to receipt, of the probe; empty without one."""


@dataclass(frozen=True, slots=True)
class CatchUp:
    """How a late group got to the end of its queues."""

    backlog: int
    seconds: float
    messages_per_second: float
    """Deliveries to the late group, of old and new messages."""
    published_per_second: float
    """Meanwhile."""
    others_per_second: float
    """Deliveries to a group that was not late, meanwhile."""


@dataclass(frozen=True, slots=True)
class PhaseResult:
    """What one phase measured."""

    name: str
    messages: int
    groups: int
    seconds: float
    """From the first publish to the last delivery."""
    messages_per_second: float
    deliveries_per_second: float
    published_per_second: float
    """From the first publish to the last receipt."""
    evaluations_per_second: float
    """Of HEADER expressions."""
    latency_ms: dict[str, float]
    """Publish to handler."""
    receipt_ms: dict[str, float]
    """Publish to receipt: of callers that await, and of the probe."""
    cpu_us_per_message: dict[str, float]
    cpu_share: dict[str, float]
    """Of one core, by process."""
    broker_rss_peak_mib: float
    rss_mib: dict[str, float]
    """At the end, by process."""
    rows_per_message: dict[str, float] = field(default_factory=dict)
    """Inserted, updated and deleted, by table; empty where it was not counted."""
    first: Window | None = None
    """The first fifth of a phase of some length, ..."""
    last: Window | None = None
    """... and the last."""
    catch_up: CatchUp | None = None


@dataclass(frozen=True, slots=True)
class ConfigurationResult:
    """How a broker does with a large configuration."""

    topics: int
    subscriptions: int
    live_subscriptions: int
    start_seconds: float
    """From the start of its process until it serves."""
    change_visible_seconds: list[float]
    """From the commit of a change until the broker acts by it."""
    change_active_seconds: list[float]
    """From the commit of a change until it is reported active."""
    idle_cpu_share: float
    """Of one core, with the live subscriptions connected and no traffic."""
    broker_rss_peak_mib: float


@dataclass(slots=True)
class RunResult:
    """What a run measured, and on what."""

    scenario: str
    started_at: str
    commit: str
    dirty: bool
    machine: dict[str, Any]
    versions: dict[str, str]
    settings: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    bare_copy_rows_per_second: list[float] = field(default_factory=list)
    phases: list[PhaseResult] = field(default_factory=list)
    configuration: ConfigurationResult | None = None

    def named(self, name: str) -> list[PhaseResult]:
        """Return the phases of that name."""
        return [phase for phase in self.phases if phase.name == name]

    def median(self, name: str, measure: Callable[[PhaseResult], float]) -> float | None:
        """Return the median of *measure* over the phases of that name; None where there is none."""
        values = [measure(phase) for phase in self.named(name)]
        return statistics.median(values) if values else None

    def bare_copy(self) -> float | None:
        """Return the median rate of the bare COPY loop."""
        rates = self.bare_copy_rows_per_second
        return statistics.median(rates) if rates else None

    def as_json(self) -> dict[str, Any]:
        """Return it as plain data, with ratios and targets."""
        from msgconsole.bench.measures.targets import judge, ratios

        return {
            **asdict(self),
            "ratios": ratios(self),
            "targets": [{**asdict(verdict), "is_met": verdict.is_met} for verdict in judge(self)],
        }
