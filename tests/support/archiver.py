"""A driver that archives a day, and ends or stands still on its way: a program for a process of its own.

What is put in the way is put there in its process alone, and in its tasks.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, NoReturn
from unittest.mock import patch

from msgbroker.contract.errors import MessageCenterError
from msgdb.archive import claims
from spark_etl.archive import job
from spark_etl.archive.config import ArchiveConfig
from spark_etl.archive.parts import PartInputs, WrittenPart, write_part
from spark_etl.archive.planning import PartPlan
from spark_etl.files import places
from spark_etl.files.manifest import to_json
from spark_etl.sessions import SETTINGS, open_session
from tests.support.eventually import eventually_blocking
from tests.support.processes import LoggedProcess, start_program
from tests.support.spark_cluster import SparkCluster

_ROOT = Path(__file__).parents[2]
_PROGRAM = "from tests.support.archiver import main; main()"
_SETTINGS = {
    **SETTINGS,
    "spark.driver.memory": "512m",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    "spark.log.level": "ERROR",
}
LEASE_SECONDS = 3.0
_HOUR_NS = 3_600_000_000_000
_STAYS_SECONDS = 100
_INTERRUPTED = "INTERRUPTED"


@dataclass(slots=True)
class Archiver:
    """A driver that runs."""

    logged: LoggedProcess

    @classmethod
    def start(
        cls, config: ArchiveConfig, day: date, way: str, log_file: Path, cluster: SparkCluster | None = None
    ) -> Archiver:
        """Archive *day*, with what `WAYS` says of *way*; on a cluster, with the place as it is named beside it."""
        given = {"MSGDB": config.url, "PYTHONPATH": str(_ROOT)}
        environment = {**os.environ, **given} if cluster is None else cluster.environment({**given, "ON_CLUSTER": "1"})
        process = start_program(_PROGRAM, log_file, config.place, f"{day}", way, environment=environment)
        return cls(LoggedProcess(process, log_file))

    @property
    def pid(self) -> int:
        """Of the driver's process; its Java, and the workers of that, are other ones."""
        return self.logged.process.pid

    def outcome(self, seconds: float = 60) -> str:
        """Return what it came to: the reason of an error, or that it was killed or has archived."""
        code = self.logged.process.wait(seconds)
        if code == -signal.SIGKILL:
            return "KILLED"
        *_, last = [line for line in self.logged.log.splitlines() if line.startswith("{")] or [f"{code}"]
        return str(json.loads(last)["outcome"])


def main() -> None:
    """Archive a day as the arguments say."""
    place, day, way = sys.argv[1:]
    master: str | None = "local[2]"
    if "ON_CLUSTER" in os.environ:
        os.chdir(Path(place).parent)
        place, master = Path(place).name, None
    config = ArchiveConfig(os.environ["MSGDB"], place, file_mib=1, lease_seconds=LEASE_SECONDS, holder=way)
    with open_session(way, master, _SETTINGS) as spark:
        WAYS[way]()
        try:
            job.run(spark, config, date.fromisoformat(day))
            outcome = "ARCHIVED"
        except MessageCenterError as error:
            outcome = error.reason
        except KeyboardInterrupt:
            outcome = _INTERRUPTED
        print(json.dumps({"outcome": outcome}), flush=True)  # noqa: T201 - who started it reads it


def started_tasks(place: str) -> list[Path]:
    """Return what tasks that stay have written by now: their processes' ids are in the names."""
    return list(Path(place).glob("*/*/*/*.half"))


def let_go(place: str) -> None:
    """Let tasks that stay go on."""
    (Path(place) / "go").touch()


def write_part_late(inputs: PartInputs, plan: PartPlan) -> WrittenPart:
    """Write a part, in the middle of which the task stays until it is let go."""
    place = Path(inputs.place_url)
    if plan.number > 0:
        (place / inputs.directory / f"part-{plan.number:05}-{os.getpid()}.half").write_bytes(b"PAR1")
        eventually_blocking((place / "go").exists, _STAYS_SECONDS)
    return write_part(inputs, plan)


def _die(*_: object, **__: object) -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("it is over")


async def _die_instead_of_marking(*_: object) -> None:
    await asyncio.to_thread(_die)


def _kill_before_manifest() -> None:
    _put(job, "write_manifest", _die)


def _kill_in_manifest() -> None:
    _put(places, "to_json", lambda manifest: to_json(manifest)[:300])
    _put(
        places.Place,
        "settle",
        lambda place, path: _die() if "_manifest" in path and path.endswith(".unfinished") else None,
    )


def _kill_before_mark() -> None:
    _put(claims, "mark_verified", _die_instead_of_marking)


def _kill_after_mark() -> None:
    # What is made of it once the transaction is over.
    _put(job, "ArchivedDay", _die)


def _stay_in_tasks() -> None:
    _put(job, "write_part", write_part_late)


def _stop_before_manifest() -> None:
    """Stand still, with a clock that is ahead of others'."""
    clock = time.time_ns
    _put(time, "time_ns", lambda: clock() + _HOUR_NS)

    def stopped(*arguments: Any) -> str:
        os.kill(os.getpid(), signal.SIGSTOP)
        return places.write_manifest(*arguments)

    _put(job, "write_manifest", stopped)


def _put(owner: object, name: str, stand_in: object) -> None:
    """Put something in the place of what *owner* has, for as long as this process lives."""
    patch.object(owner, name, stand_in).start()


WAYS: Mapping[str, Callable[[], None]] = {
    "killed before the manifest": _kill_before_manifest,
    "killed in the manifest": _kill_in_manifest,
    "killed before the mark": _kill_before_mark,
    "killed after the mark": _kill_after_mark,
    "tasks that stay": _stay_in_tasks,
    "stopped before the manifest": _stop_before_manifest,
}
