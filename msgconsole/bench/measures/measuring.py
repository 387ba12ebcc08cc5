"""From what was observed in a phase to what it measured. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from msgconsole.bench.measures.resources import Usage, percentiles
from msgconsole.bench.measures.results import CatchUp, PhaseResult, Window
from msgconsole.bench.measures.timeline import History, Point, rate, reached_at, series
from msgconsole.bench.phases.registration import LATE_GROUP, Registered
from msgconsole.bench.scenario import Phase

_WINDOWS_FROM_SECONDS: Final = 10.0
"""From how long on a phase is divided: a shorter one has no beginning and end to compare."""
_RAMP_SECONDS: Final = 2.0
_WINDOW_SHARE: Final = 0.2


@dataclass(slots=True)
class Observed:
    """What a phase was seen to do."""

    groups: Registered
    backlog: int
    """How many messages the late group had not got when the phase began."""
    publishing: list[dict[str, Any]] = field(default_factory=list)
    probing: list[dict[str, Any]] = field(default_factory=list)
    receiving: list[dict[str, Any]] = field(default_factory=list)
    late_receiving: list[dict[str, Any]] = field(default_factory=list)
    publisher_histories: list[History] = field(default_factory=list)
    subscriber_histories: list[History] = field(default_factory=list)
    late_histories: list[History] = field(default_factory=list)
    before: dict[str, Usage] = field(default_factory=dict)
    after: dict[str, Usage] = field(default_factory=dict)
    broker_rss_peak: int = 0
    rows: dict[str, float] = field(default_factory=dict)

    @property
    def published(self) -> int:
        """Messages of all publishers, those included with which they connected."""
        return sum(result["published"] for result in (*self.publishing, *self.probing))

    def expected(self) -> dict[str, int]:
        """Return how many messages each group that is not late must get."""
        matching = sum(result["matching"] for result in self.publishing) + sum(r["published"] for r in self.probing)
        return {**dict.fromkeys(self.groups.direct, self.published), **dict.fromkeys(self.groups.header, matching)}

    def too_many(self) -> dict[str, int]:
        """Return, by group, how many messages came that should not have."""
        arrived = _totals(self.receiving)
        wanted = self.expected()
        if self.late_receiving:
            wanted[LATE_GROUP] = self.backlog + self.published
            arrived |= _totals(self.late_receiving)
        return {group: arrived[group] - count for group, count in wanted.items() if arrived[group] > count}


def measured(phase: Phase, observed: Observed) -> PhaseResult:
    """Return the result of *phase*, from what was observed."""
    started_at = min(result["started_at"] for result in observed.publishing)
    published_at = max(result["ended_at"] for result in observed.publishing)
    ended_at = max([result["last_at"] for result in observed.receiving] or [published_at])
    seconds = ended_at - started_at
    messages = sum(result["published"] - 1 for result in observed.publishing)
    deliveries = sum(observed.expected().values())
    cpu_seconds = {role: now.cpu_seconds - observed.before[role].cpu_seconds for role, now in observed.after.items()}
    first, last = _windows(observed, started_at, published_at)
    return PhaseResult(
        name=phase.name,
        messages=messages,
        groups=len(observed.groups.names),
        seconds=round(seconds, 3),
        messages_per_second=round(messages / seconds, 1),
        deliveries_per_second=round(deliveries / seconds, 1),
        published_per_second=round(messages / (published_at - started_at), 1),
        evaluations_per_second=round(messages * len(observed.groups.header) / seconds, 1),
        latency_ms=_slowest([result["latency_ms"] for result in observed.receiving]),
        receipt_ms=_receipts(observed),
        cpu_us_per_message={role: round(used * 1e6 / messages, 2) for role, used in cpu_seconds.items()},
        cpu_share={role: round(used / seconds, 3) for role, used in cpu_seconds.items()},
        broker_rss_peak_mib=round(observed.broker_rss_peak / 2**20, 1),
        rss_mib={role: round(usage.rss_bytes / 2**20, 1) for role, usage in observed.after.items()},
        rows_per_message=observed.rows,
        first=first,
        last=last,
        catch_up=_catch_up(observed, started_at) if observed.late_histories else None,
    )


def _totals(receiving: list[dict[str, Any]]) -> dict[str, int]:
    totals: dict[str, int] = {}
    for result in receiving:
        for group, count in result["counts"].items():
            totals[group] = totals.get(group, 0) + count
    return totals


def _slowest(latencies: list[dict[str, float]]) -> dict[str, float]:
    """Of several workers' percentiles the worst: they cannot be added up."""
    names = {name for latency in latencies for name in latency}
    ordered = ("p50", "p90", "p99", "p999", "max")
    return {name: max(latency.get(name, 0.0) for latency in latencies) for name in ordered if name in names}


def _receipts(observed: Observed) -> dict[str, float]:
    if observed.probing:
        return percentiles([milliseconds for result in observed.probing for _, milliseconds in result["measured"]])
    return _slowest([result["receipt_ms"] for result in observed.publishing])


def _windows(observed: Observed, started_at: float, published_at: float) -> tuple[Window | None, Window | None]:
    if published_at - started_at < _WINDOWS_FROM_SECONDS or not observed.groups.names:
        return None, None
    points = _arrivals(observed.subscriber_histories, observed.groups.names[0])
    length = (published_at - started_at - _RAMP_SECONDS) * _WINDOW_SHARE
    begin = started_at + _RAMP_SECONDS
    return _window(observed, points, begin, begin + length), _window(
        observed, points, published_at - length, published_at
    )


def _window(observed: Observed, points: list[Point], start: float, end: float) -> Window:
    probed = [ms for result in observed.probing for at, ms in result["measured"] if start <= at < end]
    return Window(round(end - start, 3), round(rate(points, start, end), 1), percentiles(probed))


def _catch_up(observed: Observed, started_at: float) -> CatchUp:
    late = _arrivals(observed.late_histories, LATE_GROUP)
    others = _arrivals(observed.subscriber_histories, observed.groups.names[0])
    published = series(observed.publisher_histories, lambda progress: float(progress["published"]))
    # It may have begun before the publishers: as soon as it was connected.
    begin = min(started_at, late[0][0])
    end = reached_at(late, observed.backlog) or late[-1][0]
    return CatchUp(
        backlog=observed.backlog,
        seconds=round(end - begin, 3),
        messages_per_second=round(rate(late, begin, end), 1),
        published_per_second=round(rate(published, started_at, end), 1),
        others_per_second=round(rate(others, started_at, end), 1),
    )


def _arrivals(histories: list[History], group: str) -> list[Point]:
    return series(histories, lambda progress: float(progress["counts"][group]))
