"""CPU and memory of the processes of a run."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

import psutil

_SAMPLE_SECONDS: Final = 0.2


@dataclass(frozen=True, slots=True)
class Usage:
    """How much CPU and memory some processes and their children used."""

    cpu_seconds: float
    rss_bytes: int


def usage_of(pids: tuple[int, ...]) -> Usage:
    """Return what the processes and their children have used so far; children that have ended count, too."""
    cpu_seconds = 0.0
    rss_bytes = 0
    for member in _family(pids):
        try:
            times = member.cpu_times()
            cpu_seconds += times.user + times.system
            if member.pid in pids:
                # A backend whose connection was closed has its time here.
                cpu_seconds += times.children_user + times.children_system
            rss_bytes += member.memory_info().rss
        except psutil.NoSuchProcess:
            continue
    return Usage(cpu_seconds, rss_bytes)


def usage_by_role(pids: Mapping[str, tuple[int, ...]]) -> dict[str, Usage]:
    """Return the usage of the processes of each role."""
    return {role: usage_of(members) for role, members in pids.items()}


class MemoryPeak:
    """Samples the memory of some processes in a thread while it is entered, and keeps the highest sum."""

    def __init__(self, *pids: int) -> None:
        # Found once: walking over all processes of the machine, five times a second, would be a load of its own.
        self._family = _family(pids)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="memory-peak", daemon=True)
        self.rss_bytes = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while True:
            self.rss_bytes = max(self.rss_bytes, sum(_rss(member) for member in self._family))
            if self._stop.wait(_SAMPLE_SECONDS):
                return


def _rss(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.NoSuchProcess:
        return 0


def _family(pids: tuple[int, ...]) -> list[psutil.Process]:
    members: dict[int, psutil.Process] = {}
    for pid in pids:
        try:
            process = psutil.Process(pid)
            members |= {member.pid: member for member in (process, *process.children(recursive=True))}
        except psutil.NoSuchProcess:
            continue
    return [*members.values()]


def percentile(ordered: list[float], share: float) -> float:
    """Return the value below which *share* of the ordered values are; 0 where there are none."""
    if not ordered:
        return 0.0
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def percentiles(values_ms: list[float]) -> dict[str, float]:
    """Return the usual percentiles of latencies; empty where there are none."""
    if not values_ms:
        return {}
    ordered = sorted(values_ms)
    shares = (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p999", 0.999), ("max", 1.0))
    return {name: round(percentile(ordered, share), 3) for name, share in shares}
