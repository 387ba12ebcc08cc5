"""Whether targets are met."""

from __future__ import annotations

import pytest

from msgconsole.bench import catalogue
from msgconsole.bench.measures.results import RunResult, Window
from msgconsole.bench.measures.targets import Verdict, cores_projection, judge, ratios
from tests.support.bench_builders import configuration, phase, run


def verdict_on(what: str, of: RunResult) -> Verdict:
    return next(verdict for verdict in judge(of) if verdict.what == what)


@pytest.mark.parametrize("rate, is_met", [(50_000.0, True), (49_999.0, False)])
def test_a_rate_meets_its_target_from_the_target_on(rate: float, is_met: bool) -> None:
    of = run(phase(catalogue.ONE_GROUP, messages_per_second=rate))
    assert verdict_on("end to end, one publisher, one group", of).is_met is is_met


@pytest.mark.parametrize("p99, is_met", [(10.0, True), (10.1, False)])
def test_a_latency_meets_its_target_up_to_the_target(p99: float, is_met: bool) -> None:
    of = run(phase(catalogue.LATENCY, latency_ms={"p50": 1.0, "p99": p99}))
    assert verdict_on("publish to handler at 1,000/s, p99", of).is_met is is_met


def test_what_was_not_measured_is_neither_met_nor_missed() -> None:
    assert {verdict.is_met for verdict in judge(run())} == {None}


def test_of_a_repeated_phase_the_median_counts() -> None:
    rates = (10_000.0, 60_000.0, 70_000.0)
    of = run(
        *(phase(catalogue.ONE_GROUP, messages_per_second=rate) for rate in rates), bare_copy=(100_000, 80_000, 90_000)
    )
    assert ratios(of)["one group / bare COPY"] == pytest.approx(60 / 90, abs=1e-3)


def test_memory_is_the_highest_of_all_phases_but_the_one_with_two_brokers() -> None:
    of = run(
        phase(catalogue.ONE_GROUP, broker_rss_peak_mib=100.0),
        phase(catalogue.WORKERS_2, broker_rss_peak_mib=400.0),
    )
    of.configuration = configuration(broker_rss_peak_mib=200.0)
    assert verdict_on("broker memory, peak of all phases", of).measured == pytest.approx(209.7, abs=0.1)


def test_the_slowest_change_decides() -> None:
    of = run()
    of.configuration = configuration(change_visible_seconds=[0.2, 1.5, 0.3])
    assert verdict_on("large configuration: slowest change visible", of).is_met is False


def test_a_held_snapshot_is_judged_by_its_end_against_its_start() -> None:
    first = Window(seconds=10, messages_per_second=40_000, receipt_ms={"p50": 10.0, "p99": 20.0})
    last = Window(seconds=10, messages_per_second=30_000, receipt_ms={"p50": 12.0, "p99": 20.0})
    found = ratios(run(phase(catalogue.HELD_SNAPSHOT, first=first, last=last)))
    assert found["held snapshot, rate at its end / at its start"] == 0.75
    assert found["held snapshot, receipt p50 at its end / at its start"] == 1.2


def test_more_cores_are_projected_from_the_cpu_of_broker_and_postgres() -> None:
    assert cores_projection(run(phase(catalogue.ONE_GROUP)), 16) == pytest.approx(16e6 / 25)
