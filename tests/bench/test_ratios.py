"""The regression guard: how fast it is compared with PostgreSQL itself, and with less to do. Never an absolute time.

Short phases in turns, and the median of each: what else the machine does meets all of them alike. A ratio that is still
missed after the usual number of rounds gets some more before it counts.
"""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path

import pytest

from msgconsole.bench import catalogue
from msgconsole.bench.measures.results import RunResult
from msgconsole.bench.measures.targets import ratios
from msgconsole.bench.phases import bare_copy
from msgconsole.bench.phases.center import BenchCenter
from msgconsole.bench.phases.runner import PhaseRunner
from msgconsole.bench.scenario import Phase
from tests.bench.figures.comparison import Pair, loaded_in_turns, median_rate

# Far below what a quiet machine shows (see docs/benchmarks): what falls below these is no noise.
RATIOS_MIN = {
    "one group / bare COPY": 0.25,
    "five groups / one group, deliveries": 1.3,
    "HEADER / DIRECT, same messages": 0.5,
    "traced at rate 0.01 / not traced": 0.7,
    "traced at rate 1 / not traced": 0.4,
}
RATIOS_MAX = {"beside a redrive / alone, publish to handler p99": 4.0}
COUNTED_MIN = 0.8
ROUNDS = 3
ROUNDS_MAX = 6
MESSAGES = 20_000


@pytest.mark.timeout(300)
def test_speed_keeps_its_ratios_to_a_bare_copy_and_between_kinds_of_groups() -> None:
    run = RunResult("ratios", "", "", dirty=False, machine={}, versions={})
    with tempfile.TemporaryDirectory(prefix="msgcenter-ratios-") as directory, _center(Path(directory)) as center:
        runner = PhaseRunner(center)
        runner.run(catalogue.warm_up(5_000))
        for number in range(1, ROUNDS_MAX + 1):
            _run_round(center, runner, run)
            if number >= ROUNDS and not _missed(run):
                break

    assert _missed(run) == {}, run


@pytest.mark.timeout(300)
def test_counting_what_each_minute_brought_leaves_the_rate_as_it_is(tmp_path: Path) -> None:
    pairs: list[Pair] = []
    with loaded_in_turns(tmp_path, MESSAGES) as both:
        for pair in itertools.islice(both, 2 * ROUNDS_MAX):
            pairs.append(pair)
            if len(pairs) >= 2 * ROUNDS and median_rate(pairs) >= COUNTED_MIN:
                break

    assert median_rate(pairs) >= COUNTED_MIN, [pair.rate for pair in pairs]


def _center(directory: Path) -> BenchCenter:
    return BenchCenter(directory, lambda _: None)


def _run_round(center: BenchCenter, runner: PhaseRunner, run: RunResult) -> None:
    phases: list[Phase] = [
        catalogue.one_group(MESSAGES),
        catalogue.five_groups(MESSAGES // 2),
        catalogue.with_headers(MESSAGES // 2),
        catalogue.header(MESSAGES // 2),
        *catalogue.traced(MESSAGES // 2, rounds=1),
        *catalogue.redrive(MESSAGES // 20, rounds=1),
    ]
    run.bare_copy_rows_per_second.append(bare_copy.run(center.msgdb_url, MESSAGES, phases[0].body_bytes))
    run.phases.extend(runner.run(phase) for phase in phases)


def _missed(run: RunResult) -> dict[str, float]:
    measured = ratios(run)
    too_low = {name: measured[name] for name, at_least in RATIOS_MIN.items() if measured[name] < at_least}
    return too_low | {name: measured[name] for name, at_most in RATIOS_MAX.items() if measured[name] > at_most}
