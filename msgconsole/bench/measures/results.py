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
    """How many messages a second were delivered to one group."""
    receipt_ms: dict[str, float]
    """How long the probe waited for receipts; empty without one."""


@dataclass(frozen=True, slots=True)
class CatchUp:
    """How a late group got to the end of its queues."""

    backlog: int
    seconds: float
    messages_per_second: float
    """How many messages a second, old and new, were delivered to the late group."""
    published_per_second: float
    """How many messages a second were published meanwhile."""
    others_per_second: float
    """How many messages a second were delivered meanwhile to a group that was not late."""


@dataclass(frozen=True, slots=True)
class PhaseResult:
    """What one phase measured."""

    name: str
    messages: int
    groups: int
    seconds: float
    """How long the phase took, from the first publish to the last delivery."""
    messages_per_second: float
    deliveries_per_second: float
    published_per_second: float
    """How many messages a second were published, from the first publish to the last receipt."""
    evaluations_per_second: float
    """How many HEADER expressions were evaluated a second."""
    latency_ms: dict[str, float]
    """How long it took from publish to handler, by percentile."""
    receipt_ms: dict[str, float]
    """How long it took from publish to receipt: for callers that await, and for the probe."""
    cpu_us_per_message: dict[str, float]
    cpu_share: dict[str, float]
    """How much of one core each process took."""
    broker_rss_peak_mib: float
    rss_mib: dict[str, float]
    """How much memory each process held at the end."""
    rows_per_message: dict[str, float] = field(default_factory=dict)
    """How many rows were inserted, updated and deleted per message, by table; empty where it was not counted."""
    first: Window | None = None
    """How fast the first fifth of a phase of some length was."""
    last: Window | None = None
    """How fast the last fifth was."""
    catch_up: CatchUp | None = None


@dataclass(frozen=True, slots=True)
class ConfigurationResult:
    """How a broker does with a large configuration."""

    topics: int
    subscriptions: int
    live_subscriptions: int
    start_seconds: float
    """How long a broker took from the start of its process until it served."""
    change_visible_seconds: list[float]
    """How long each change took from its commit until the broker acted by it."""
    change_active_seconds: list[float]
    """How long each change took from its commit until it was reported active."""
    idle_cpu_share: float
    """How much of one core the broker took with the live subscriptions connected and no traffic."""
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
