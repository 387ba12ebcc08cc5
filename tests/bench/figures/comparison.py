"""The same load in turns, on a center whose broker counts and on one whose broker does not."""

from __future__ import annotations

import contextlib
import statistics
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from msgconsole.bench import catalogue
from msgconsole.bench.measures.results import PhaseResult
from msgconsole.bench.phases.center import BenchCenter
from msgconsole.bench.phases.runner import PhaseRunner
from msgconsole.bench.scenario import Phase

_UNCOUNTED: Final = (sys.executable, "-m", "tests.bench.figures.uncounted_broker", "broker")


@dataclass(frozen=True, slots=True)
class Pair:
    """One load, carried out twice."""

    counted: PhaseResult
    uncounted: PhaseResult

    @property
    def rate(self) -> float:
        """What is left of the rate where it is counted."""
        return self.counted.messages_per_second / self.uncounted.messages_per_second

    @property
    def broker_cpu(self) -> float:
        """How much CPU the broker took where it is counted, as a multiple."""
        return self.counted.cpu_us_per_message["broker"] / self.uncounted.cpu_us_per_message["broker"]


@contextlib.contextmanager
def loaded_in_turns(directory: Path, messages: int) -> Iterator[Iterator[Pair]]:
    """Give pairs, as many as are asked for, of the same load on both; the center that has no load is idle."""
    with (
        BenchCenter(directory / "counted", lambda _: None) as counted,
        BenchCenter(directory / "uncounted", lambda _: None, command=_UNCOUNTED) as uncounted,
    ):
        runners = PhaseRunner(counted), PhaseRunner(uncounted)
        for runner in runners:
            runner.run(catalogue.warm_up(5_000))
        yield _pairs(*runners, catalogue.one_group(messages))


def _pairs(counted: PhaseRunner, uncounted: PhaseRunner, phase: Phase) -> Iterator[Pair]:
    while True:
        first = counted.run(phase)
        yield Pair(first, uncounted.run(phase))
        # Whoever comes first meets a colder machine: so in another order each time.
        first = uncounted.run(phase)
        yield Pair(counted.run(phase), first)


def median_rate(pairs: list[Pair]) -> float:
    """Return what is left of the rate where it is counted, in the middle of all pairs."""
    return statistics.median(pair.rate for pair in pairs)


def median_broker_cpu(pairs: list[Pair]) -> float:
    """Return how much CPU the broker took where it is counted, as a multiple, in the middle of all pairs."""
    return statistics.median(pair.broker_cpu for pair in pairs)
