"""CPU and memory of an archive's processes, by what they are: Java, the Python workers, the driver, PostgreSQL."""

from __future__ import annotations

import os
import threading
from collections import Counter
from types import TracebackType
from typing import Final, Self

import psutil

from msgconsole.bench.measures.resources import usage_of

_SAMPLE_SECONDS: Final = 0.5
_JAVA: Final = "Java"
_WORKERS: Final = "Python workers"
_DRIVER: Final = "driver"


def cpu_seconds(postgres_pid: int) -> dict[str, float]:
    """Return the CPU seconds of this process, of those below it, and of PostgreSQL so far."""
    spent = {"PostgreSQL": usage_of((postgres_pid,)).cpu_seconds}
    for kind, process in _family(os.getpid()):
        times = process.cpu_times()
        spent[kind] = spent.get(kind, 0.0) + times.user + times.system
    return spent


def busy_seconds() -> float:
    """Return the CPU seconds of all processes of the machine so far: what is not ours is others'."""
    times = psutil.cpu_times()
    return float(times.user + times.nice + times.system + times.irq + times.softirq)


class MemoryPeaks:
    """Samples the memory of a job's processes while it is entered; pages that several share count for each."""

    def __init__(self, driver_pid: int) -> None:
        self._driver_pid = driver_pid
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="memory-peaks", daemon=True)
        self.bytes: Counter[str] = Counter()
        """The highest sum of each kind of process."""
        self.largest_worker = 0
        """The most that one Python worker had."""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(_SAMPLE_SECONDS):
            now: Counter[str] = Counter()
            for kind, process in _family(self._driver_pid):
                try:
                    rss_bytes = process.memory_info().rss
                except psutil.NoSuchProcess:
                    continue
                now[kind] += rss_bytes
                if kind == _WORKERS:
                    self.largest_worker = max(self.largest_worker, rss_bytes)
            self.bytes |= now


def _family(driver_pid: int) -> list[tuple[str, psutil.Process]]:
    driver = psutil.Process(driver_pid)
    return [(_DRIVER, driver), *((_kind(each), each) for each in driver.children(recursive=True))]


def _kind(process: psutil.Process) -> str:
    try:
        return _JAVA if process.name() == "java" else _WORKERS
    except psutil.NoSuchProcess:
        return _WORKERS
