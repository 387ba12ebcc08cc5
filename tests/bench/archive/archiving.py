"""What a worker of this benchmark does with a day that is over: archives it, again and again, and by JDBC."""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession

from msgconsole.bench.workers.lines import Orders, say
from msgdb.names import MESSAGE, partition_name
from spark_etl.archive.config import ArchiveConfig
from spark_etl.archive.job import ArchivedDay, run
from spark_etl.sessions import SETTINGS, open_session
from tests.bench.archive import by_jdbc
from tests.bench.archive.spending import busy_seconds, cpu_seconds

QUIET: Final[Mapping[str, str]] = {"spark.log.level": "ERROR"}


async def compare(task: dict[str, Any], orders: Orders) -> dict[str, Any]:
    """Archive a day and copy it by JDBC in turns, in one session, of which the first round is the first work."""
    settings = by_jdbc.SETTINGS if task["with_jdbc"] else {}
    with open_session("bench", task["master"], {**SETTINGS, **QUIET, **settings}) as spark:
        await orders.begin()
        return await asyncio.to_thread(_compare, spark, task)


async def archive(task: dict[str, Any], orders: Orders) -> dict[str, Any]:
    """Archive a day once, or until the driver says to stop; it is begun when the driver says so."""
    stop = asyncio.Event()
    # Its tasks are processes below this one, and as patient.
    os.nice(task["nice"])
    with open_session("bench", task["master"], {**SETTINGS, **QUIET, **task["settings"]}) as spark:
        if task["warms_up"]:
            await asyncio.to_thread(_archive, spark, task)
        await orders.begin()
        archived: list[dict[str, Any]] = []
        async with orders.setting(stop):
            while not archived or (task["until_stopped"] and not stop.is_set()):
                archived.append(await asyncio.to_thread(_archive, spark, task))
        return {"archived": archived}


def _compare(spark: SparkSession, task: dict[str, Any]) -> dict[str, Any]:
    ways: dict[str, Callable[[SparkSession, dict[str, Any]], dict[str, Any]]] = {"archived": _archive}
    if task["with_jdbc"]:
        ways["by_jdbc"] = partial(_copy, by_jdbc.copy_day)
        ways["by_jdbc_checked"] = partial(_copy, by_jdbc.copy_and_check_day)
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in ways}
    for _ in range(task["rounds"] + 1):
        for name, way in ways.items():
            runs[name].append(way(spark, task))
            say({"progress": {name: runs[name][-1]}, "at": time.time()})
    return runs


def _archive(spark: SparkSession, task: dict[str, Any]) -> dict[str, Any]:
    place, day = Path(task["place"]), date.fromisoformat(task["day"])
    config = ArchiveConfig(url=task["url"], place=str(place), file_mib=task["file_mib"])
    done: list[ArchivedDay] = []
    measured = _timed(task, place, lambda: done.append(run(spark, config, day, again=True)))
    manifest = done[0].manifest
    return {**measured, "rows": manifest.rows, "files": len(manifest.files), "bytes": manifest.bytes}


def _copy(
    copy: Callable[[SparkSession, str, str, Sequence[int], Path], None], spark: SparkSession, task: dict[str, Any]
) -> dict[str, Any]:
    target = Path(task["place"])
    partition = partition_name(MESSAGE, task["day"].replace("-", ""))
    return _timed(task, target, lambda: copy(spark, task["url"], partition, task["queues"], target))


def _timed(task: dict[str, Any], target: Path, work: Callable[[], None]) -> dict[str, Any]:
    # Neither is to wait for what was written before it.
    os.sync()
    cpu_before, busy_before, started_at = cpu_seconds(task["postgres_pid"]), busy_seconds(), time.time()
    work()
    ended_at, busy_after, cpu_after = time.time(), busy_seconds(), cpu_seconds(task["postgres_pid"])
    spent = {kind: round(after - cpu_before.get(kind, 0.0), 3) for kind, after in cpu_after.items()}
    others = max(0.0, busy_after - busy_before - sum(spent.values()))
    shutil.rmtree(target)
    return {
        "started_at": started_at,
        "ended_at": ended_at,
        "cpu_seconds": spent,
        "others_cpu_seconds": round(others, 3),
    }
