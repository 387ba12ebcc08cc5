"""Results to judge."""

from __future__ import annotations

from typing import Any

from msgconsole.bench.measures.results import ConfigurationResult, PhaseResult, RunResult


def phase(name: str, **given: Any) -> PhaseResult:
    """Return a phase that measured little."""
    measured: dict[str, Any] = {
        "messages": 1_000,
        "groups": 1,
        "seconds": 1.0,
        "messages_per_second": 1_000.0,
        "deliveries_per_second": 1_000.0,
        "published_per_second": 1_000.0,
        "evaluations_per_second": 0.0,
        "latency_ms": {"p50": 1.0, "p99": 2.0},
        "receipt_ms": {},
        "cpu_us_per_message": {"postgres": 10.0, "broker": 15.0, "publisher": 5.0, "subscriber": 5.0},
        "cpu_share": {"postgres": 0.5, "broker": 0.9, "publisher": 0.3, "subscriber": 0.3},
        "broker_rss_peak_mib": 100.0,
        "rss_mib": {"broker": 90.0},
    }
    return PhaseResult(name=name, **{**measured, **given})


def run(*phases: PhaseResult, bare_copy: tuple[float, ...] = ()) -> RunResult:
    """Return a run of these phases."""
    return RunResult(
        scenario="made-up",
        started_at="2030-01-01T12:00:00+00:00",
        commit="0123456789ab",
        dirty=False,
        machine={"cores": 2},
        versions={"msgcenter": "0"},
        settings={"postgres": {"fsync": "on"}, "broker": "defaults", "client": "defaults"},
        bare_copy_rows_per_second=[*bare_copy],
        phases=[*phases],
    )


def configuration(**given: Any) -> ConfigurationResult:
    """Return what a broker with a large configuration did."""
    measured: dict[str, Any] = {
        "topics": 5_000,
        "subscriptions": 10_000,
        "live_subscriptions": 200,
        "start_seconds": 2.0,
        "change_visible_seconds": [0.3, 0.4],
        "change_active_seconds": [0.4, 0.5],
        "idle_cpu_share": 0.01,
        "broker_rss_peak_mib": 150.0,
    }
    return ConfigurationResult(**{**measured, **given})
