"""How large a run of this benchmark is, and what its workers are told in common."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from msgconsole.bench.phases.worker_process import WorkerProcess
from spark_etl.archive.config import FILE_MIB_DEFAULT

MASTER: Final = "local[2]"
_WORKER: Final = "tests.bench.archive.worker"


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured."""

    messages: int = 2_000_000
    """Of the day that is archived in turns with JDBC."""
    rounds: int = 5
    many_messages: int = 10_000_000
    """Of the day that is archived in little memory."""
    beside_messages: int = 500_000
    """Of the day that is archived beside a broker, again and again."""
    published: int = 500_000
    """What goes through that broker in a phase."""
    beside_rounds: int = 3
    followed_first: int = 400_000
    """What is published before, and written as the open day, for it to be warm."""
    follow_seconds: float = 30.0
    """How long a broker is published to while the open day is written."""
    file_mib: int = FILE_MIB_DEFAULT


def day_before_today(days: int) -> date:
    """Return a day that is over, in UTC."""
    return datetime.now(UTC).date() - timedelta(days=days)


def worker(role: str, url: str, postgres_pid: int, directory: Path, sizes: Sizes, **more: Any) -> WorkerProcess:
    """Start a worker with a Spark session of its own, which leaves what it writes below *directory*."""
    task = {
        "master": MASTER,
        "url": url,
        "postgres_pid": postgres_pid,
        "place": str(directory / "archive"),
        "file_mib": sizes.file_mib,
        **more,
    }
    return WorkerProcess(role, task, _WORKER)
