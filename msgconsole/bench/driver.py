"""Runs a scenario: a center of its own, the workers of each phase, and the measurements."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import platform
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import IO, Any

from confdb.services import ConfigService
from confdb.store import ConfigStore
from msgbroker.contract.errors import ThingAlreadyExistsError, UnavailableError
from msgconsole.bench import bare_copy
from msgconsole.bench.samples import Usage, usage_by_role
from msgconsole.bench.scenario import Phase, Scenario
from msgconsole.bench.workers import EVENT_CODE, TOPIC
from msgconsole.local_center import LocalCenter, LocalCenterConfig
from msgdb.queues import QueueTailReader
from msgdb.store import MessageStore

NAMESPACE = "default"


class BenchFailedError(UnavailableError):
    """A phase did not do what it had to."""

    reason = "BENCH_FAILED"
    retryable = False


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
    publish_per_second: float
    """From the first publish to the last receipt."""
    latency_ms: dict[str, float]
    """Publish to handler."""
    cpu_us_per_message: dict[str, float]
    cpu_share: dict[str, float]
    """Of one core, by process."""
    rss_mib: dict[str, float]


@dataclass(slots=True)
class RunResult:
    """What a run measured, and on what."""

    scenario: str
    started_at: str
    commit: str
    machine: dict[str, Any]
    versions: dict[str, str]
    bare_copy_rows_per_second: float = 0.0
    phases: list[PhaseResult] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """Return it as plain data."""
        return asdict(self)


class Driver:
    """Runs scenarios, and says what it does."""

    def __init__(self, say: Callable[[str], None], directory: Path | None = None) -> None:
        self._say = say
        self._directory = directory

    def run(self, scenario: Scenario) -> RunResult:
        """Run *scenario* against a center of its own and return what was measured. Raises BenchFailedError."""
        result = RunResult(scenario.name, datetime.now(UTC).isoformat(), _commit(), _machine(), _versions())
        with contextlib.ExitStack() as stack:
            directory = self._directory or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="msgcenter-")))
            listen = f"127.0.0.1:{_free_port()}"
            center = stack.enter_context(LocalCenter(LocalCenterConfig(directory, listen), self._say))
            self._say("Measuring a bare COPY loop ...")
            body_bytes = scenario.phases[0].body_bytes
            result.bare_copy_rows_per_second = bare_copy.run(center.urls[1], scenario.bare_copy_rows, body_bytes)
            for number, phase in enumerate(scenario.phases):
                self._say(f"{phase.name}: {phase.messages:,} messages ...")
                measured = self._run_phase(center, listen, number, phase)
                if not phase.is_warm_up:
                    result.phases.append(measured)
        return result

    def _run_phase(self, center: LocalCenter, address: str, number: int, phase: Phase) -> PhaseResult:
        groups = asyncio.run(_register(*center.urls, number, phase))
        task = {
            "addresses": address,
            # The publisher's first message, sent to connect, arrives as well.
            "messages": phase.messages + 1,
            "seconds_max": phase.seconds_max,
            "groups": groups,
            "latency_mask": 0 if phase.publishing == "RATE" else 15,
        }
        with (
            _worker({**task, "role": "subscribe"}) as subscriber,
            _worker({**asdict(phase), **task, "role": "publish", "messages": phase.messages}) as publisher,
        ):
            subscriber.expect_ready()
            publisher.expect_ready()
            pids = {**center.pids, "publisher": publisher.pid, "subscriber": subscriber.pid}
            before = usage_by_role(pids)
            publisher.go()
            published = publisher.result()
            received = subscriber.result(lambda: usage_by_role(pids))
            after = subscriber.usage
        missing = {g: phase.messages + 1 - c for g, c in received["counts"].items() if c != phase.messages + 1}
        if missing:
            raise BenchFailedError(f"phase {phase.name!r}: messages missing or too many: {missing}")
        return _measured(phase, published, received, before, after)


class _Worker:
    """A worker process and the lines it says."""

    def __init__(self, task: dict[str, Any]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "msgconsole.bench.workers", json.dumps(task)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.pid = self._process.pid
        self.usage: dict[str, Usage] = {}

    def expect_ready(self) -> None:
        """Wait until it is ready."""
        if not self._line().get("ready"):
            raise BenchFailedError("a worker of the bench did not get ready")

    def go(self) -> None:
        """Let it begin."""
        stdin: IO[str] | None = self._process.stdin
        assert stdin is not None
        stdin.write("go\n")
        stdin.flush()

    def result(self, before_end: Callable[[], dict[str, Usage]] | None = None) -> dict[str, Any]:
        """Wait for its results."""
        line = self._line()
        if before_end is not None:
            self.usage = before_end()
        return line

    def end(self) -> None:
        """See it end."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _line(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise BenchFailedError(f"a worker of the bench ended with status {self._process.wait()}")
        said: dict[str, Any] = json.loads(line)
        return said


@contextlib.contextmanager
def _worker(task: dict[str, Any]) -> Iterator[_Worker]:
    worker = _Worker(task)
    try:
        yield worker
    finally:
        worker.end()


async def _register(confdb_url: str, msgdb_url: str, number: int, phase: Phase) -> list[str]:
    """Register the phase's groups; those of earlier phases are removed."""
    async with ConfigStore.open(confdb_url) as config_store, MessageStore.open(msgdb_url) as store:
        service = ConfigService(config_store, "bench", QueueTailReader(store))
        for step in (service.topics.create(NAMESPACE, TOPIC), service.event_codes.add(NAMESPACE, TOPIC, EVENT_CODE)):
            with contextlib.suppress(ThingAlreadyExistsError):
                await step
        for old in (await service.subscriber_groups.list(NAMESPACE)).items:
            await service.subscriber_groups.delete(NAMESPACE, old.name)
        expressions = [None] * phase.groups.direct + [phase.groups.expression] * phase.groups.header
        names = [f"SG_BENCH_{number}_{index}" for index in range(len(expressions))]
        changed_version = 0
        for name, expression in zip(names, expressions, strict=True):
            await service.subscriber_groups.create(NAMESPACE, name, unsettled_max=10_000)
            changed = await service.subscriptions.create(NAMESPACE, name, TOPIC, EVENT_CODE, expression=expression)
            changed_version = changed.version
        await service.wait_until_active(changed_version)
        return names


def _measured(
    phase: Phase,
    published: dict[str, Any],
    received: dict[str, Any],
    before: dict[str, Usage],
    after: dict[str, Usage],
) -> PhaseResult:
    seconds = received["ended_at"] - published["started_at"]
    groups = len(received["counts"])
    cpu_seconds = {role: after[role].cpu_seconds - before[role].cpu_seconds for role in after}
    return PhaseResult(
        name=phase.name,
        messages=phase.messages,
        groups=groups,
        seconds=round(seconds, 3),
        messages_per_second=round(phase.messages / seconds, 1),
        deliveries_per_second=round(phase.messages * groups / seconds, 1),
        publish_per_second=round(phase.messages / (published["ended_at"] - published["started_at"]), 1),
        latency_ms=received["latency_ms"],
        cpu_us_per_message={role: round(used * 1e6 / phase.messages, 2) for role, used in cpu_seconds.items()},
        cpu_share={role: round(used / seconds, 3) for role, used in cpu_seconds.items()},
        rss_mib={role: round(usage.rss_bytes / 2**20, 1) for role, usage in after.items()},
    )


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _commit() -> str:
    git = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False)
    return git.stdout.strip() or "unknown"


def _machine() -> dict[str, Any]:
    return {"cores": os.cpu_count(), "system": platform.platform(), "python": platform.python_version()}


def _versions() -> dict[str, str]:
    return {name: version(name) for name in ("msgcenter", "grpcio", "protobuf", "psycopg", "uvloop")}
