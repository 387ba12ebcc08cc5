"""Carries out one phase: its workers, its end, and what was measured. Tests with faults use it, too."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Self

from msgbroker.contract.errors import BenchFailedError
from msgconsole.bench.measures import row_counts
from msgconsole.bench.measures.measuring import Observed, measured
from msgconsole.bench.measures.resources import MemoryPeak, usage_by_role
from msgconsole.bench.measures.results import PhaseResult
from msgconsole.bench.phases.center import BenchCenter
from msgconsole.bench.phases.held_snapshot import held_snapshot
from msgconsole.bench.phases.redrive import redriving
from msgconsole.bench.phases.registration import LATE_GROUP, Registered, Registration
from msgconsole.bench.phases.worker_process import WorkerProcess
from msgconsole.bench.scenario import LateGroup, Phase, Publishing

_POLL_SECONDS: Final = 0.02


@dataclass(slots=True)
class _Workers:
    publishers: list[WorkerProcess]
    subscribers: list[WorkerProcess]
    late: list[WorkerProcess]
    probes: list[WorkerProcess]

    @classmethod
    def start(cls, phase: Phase, address: str, groups: Registered, stack: ExitStack) -> Self:
        """Start the workers of *phase*; *stack* ends them."""
        task = {**asdict(phase), "addresses": address}
        mask = 0 if phase.publishing is Publishing.RATE else 15
        share = -(-phase.messages // phase.publishers)
        listening = {**task, "groups": groups.names, "latency_mask": mask, "connects_on_order": False}
        catching_up = {**listening, "groups": [LATE_GROUP], "connects_on_order": True}

        def started(role: str, task: dict[str, Any], count: int) -> list[WorkerProcess]:
            return [stack.enter_context(WorkerProcess(role, task)) for _ in range(count)]

        workers = cls(
            # Subscribers first: they are the last to end, too.
            subscribers=started("subscribe", listening, phase.subscribers if groups.names else 0),
            late=started("subscribe", catching_up, phase.late is LateGroup.CATCHES_UP),
            publishers=started("publish", {**task, "messages": share}, phase.publishers),
            probes=started("probe", {**task, "messages": 0}, int(phase.probes)),
        )
        for worker in workers.all:
            worker.wait_until_ready()
        # What they wait for next is their end.
        for worker in workers.subscribers:
            worker.tell()
        return workers

    @property
    def all(self) -> list[WorkerProcess]:
        """Every worker."""
        return [*self.subscribers, *self.late, *self.publishers, *self.probes]

    @property
    def pids(self) -> dict[str, tuple[int, ...]]:
        """The process ids of the workers, by what they do."""
        roles = {
            "publisher": self.publishers,
            "subscriber": self.subscribers,
            "late subscriber": self.late,
            "probe": self.probes,
        }
        return {role: tuple(worker.pid for worker in workers) for role, workers in roles.items() if workers}

    def arrived(self, workers: Sequence[WorkerProcess], group: str) -> int:
        """Return how many messages *group* has got."""
        return sum(worker.latest.get("counts", {}).get(group, 0) for worker in workers)

    def check(self) -> None:
        """Raise BenchFailedError if a worker has failed."""
        for worker in self.all:
            worker.check()


@dataclass(slots=True)
class PhaseRunner:
    """Runs phases against *center*."""

    center: BenchCenter
    background: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Processes that run beside the phases, and are accounted for, by what they are."""
    _registration: Registration = field(init=False)
    _backlog: int = 0
    """How many messages the late group has not got."""

    def __post_init__(self) -> None:
        self._registration = Registration(self.center)

    def run(self, phase: Phase, during: Callable[[BenchCenter], None] | None = None) -> PhaseResult:
        """Carry out *phase* and return what was measured; *during* is called when the load has begun.

        Raises BenchFailedError where a message did not arrive, or came twice without leave.
        """
        self.center.use_workers(phase.workers)
        groups = self._registration.prepare(phase)
        if phase.late is LateGroup.NONE:
            self._backlog = 0
        rows_before = row_counts.read_settled(self.center.msgdb_url) if phase.counts_rows else {}
        observed = Observed(groups=groups, backlog=self._backlog)
        with ExitStack() as stack:
            if phase.holds_snapshot:
                stack.enter_context(held_snapshot(self.center.msgdb_url))
            if phase.redriven:
                stack.enter_context(redriving(self.center, phase.redriven, phase.body_bytes))
            workers = _Workers.start(phase, self.center.address, groups, stack)
            with MemoryPeak(*self.center.pids["broker"]) as peak:
                self._load(phase, workers, observed, during)
            observed.broker_rss_peak = peak.rss_bytes
            self._finish(phase, workers, observed)
        if phase.counts_rows:
            rows_after = row_counts.read_settled(self.center.msgdb_url)
            observed.rows = row_counts.per_message(rows_before, rows_after, observed.published)
        if phase.late is not LateGroup.NONE:
            self._backlog = 0 if phase.late is LateGroup.CATCHES_UP else self._backlog + observed.published
        return measured(phase, observed)

    def _load(
        self,
        phase: Phase,
        workers: _Workers,
        observed: Observed,
        during: Callable[[BenchCenter], None] | None,
    ) -> None:
        pids = {**self.center.pids, **workers.pids, **self.background}
        observed.before = usage_by_role(pids)
        deadline = time.monotonic() + phase.seconds_max
        for worker in (*workers.probes, *workers.publishers, *workers.late):
            worker.tell()
        if during is not None:
            during(self.center)
        if workers.late:
            self._wait(
                lambda: workers.arrived(workers.late, LATE_GROUP) >= observed.backlog, workers, deadline, "catching up"
            )
            for worker in workers.publishers:
                worker.tell()
        observed.publishing = [worker.result(deadline - time.monotonic()) for worker in workers.publishers]
        for worker in workers.probes:
            worker.tell()
        observed.probing = [worker.result(deadline - time.monotonic()) for worker in workers.probes]
        expected = observed.expected()
        late_expected = observed.backlog + observed.published
        self._wait(
            lambda: (
                all(workers.arrived(workers.subscribers, group) >= count for group, count in expected.items())
                and (not workers.late or workers.arrived(workers.late, LATE_GROUP) >= late_expected)
            ),
            workers,
            deadline,
            "waiting for the last messages",
        )
        observed.after = usage_by_role(pids)

    def _wait(self, is_over: Callable[[], bool], workers: _Workers, deadline: float, what: str) -> None:
        while not is_over():
            workers.check()
            if time.monotonic() > deadline:
                counts = [worker.latest.get("counts") for worker in (*workers.subscribers, *workers.late)]
                raise BenchFailedError(f"not done in time, while {what}: {counts}")
            time.sleep(_POLL_SECONDS)

    def _finish(self, phase: Phase, workers: _Workers, observed: Observed) -> None:
        for worker in (*workers.subscribers, *workers.late):
            worker.tell()
        observed.receiving = [worker.result(30.0) for worker in workers.subscribers]
        observed.late_receiving = [worker.result(30.0) for worker in workers.late]
        observed.publisher_histories = [tuple(worker.history) for worker in workers.publishers]
        observed.subscriber_histories = [tuple(worker.history) for worker in workers.subscribers]
        observed.late_histories = [tuple(worker.history) for worker in workers.late]
        wrong = observed.too_many()
        if wrong and not phase.duplicates_allowed:
            raise BenchFailedError(f"phase {phase.name!r}: messages came twice: {wrong}")
