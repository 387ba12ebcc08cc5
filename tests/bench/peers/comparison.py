"""Measures the systems in turns, and keeps the median of each."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from msgconsole.bench.phases.worker_process import WorkerProcess
from tests.bench.peers.catalogue import AIMS, peers
from tests.bench.peers.peer import Peer, PeerMissingError, Work

BODY_BYTES: Final = 1_024
_SECONDS_MAX: Final = 120.0
_WARM_UP_SHARE: Final = 0.1
_WORKER: Final = "tests.bench.peers.worker"


@dataclass(slots=True)
class Compared:
    """A system and its rates, in messages a second, publish to acknowledged."""

    name: str
    note: str
    aim: float | None
    """Our rate ought to be so many times its rate."""
    rates: list[float] = field(default_factory=list)
    missing: str = ""
    """Why it was not measured."""

    @property
    def median(self) -> float:
        """The median of its rates; 0 where it has none."""
        return statistics.median(self.rates) if self.rates else 0.0


def compare(
    wanted: Sequence[str], rounds: int, scale: float, directory: Path, say: Callable[[str], None]
) -> dict[str, Compared]:
    """Measure the *wanted* systems in turns, *rounds* times; one that is not installed is left out and says why."""
    known = peers()
    results = {key: Compared(known[key].name, known[key].note, AIMS.get(key)) for key in wanted}
    for number in range(rounds):
        for key in wanted:
            result = results[key]
            if result.missing:
                continue
            try:
                rate = _measure(key, known[key], directory / key, number, scale)
            except PeerMissingError as error:
                result.missing = str(error)
                say(f"{result.name}: skipped, {error}")
            else:
                result.rates.append(round(rate, 1))
                say(f"{result.name}: {rate:,.0f} msg/s")
    return results


def _measure(key: str, peer: Peer, directory: Path, number: int, scale: float) -> float:
    directory.mkdir(parents=True, exist_ok=True)
    messages = max(100, int(peer.messages * scale))
    with peer.serving(directory) as url:
        _carry_out(key, peer, url, Work(f"warm{number}", max(100, int(messages * _WARM_UP_SHARE)), BODY_BYTES))
        seconds = _carry_out(key, peer, url, Work(f"work{number}", messages, BODY_BYTES))
    return messages / seconds


def _carry_out(key: str, peer: Peer, url: str, work: Work) -> float:
    """Return the seconds from the first publish until all is confirmed, consumed and acknowledged."""
    asyncio.run(peer.prepare(url, work))
    task = {"peer": key, "url": url, "queue": work.queue, "messages": work.messages, "body_bytes": work.body_bytes}
    deadline = time.monotonic() + _SECONDS_MAX
    with ExitStack() as stack:
        consumer = stack.enter_context(WorkerProcess("consume", task, _WORKER))
        publisher = stack.enter_context(WorkerProcess("publish", task, _WORKER))
        for worker in (consumer, publisher):
            worker.wait_until_ready()
        for worker in (consumer, publisher):
            worker.tell()
        published, consumed = (worker.result(deadline - time.monotonic()) for worker in (publisher, consumer))
    ended_at: float = max(published["ended_at"], consumed["ended_at"])
    started_at: float = published["started_at"]
    return ended_at - started_at
