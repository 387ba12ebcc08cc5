"""What a worker of this benchmark does with the open day: writes it as it goes on, and tells how far it is."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from pyspark.sql.streaming.query import StreamingQuery

from msgconsole.bench.workers.lines import Orders, reporting
from spark_etl.archive.live import LiveConfig, run_live
from spark_etl.sessions import SETTINGS, open_session
from spark_etl.source.options import LATEST
from tests.bench.archive.archiving import QUIET


async def follow(task: dict[str, Any], orders: Orders) -> dict[str, Any]:
    """Follow the log from its end on, with the source's bounds on a batch, until the driver says to stop."""
    stop = asyncio.Event()
    with open_session("bench", task["master"], {**SETTINGS, **QUIET}) as spark:
        config = LiveConfig(task["place"], task["checkpoint"], every_seconds=task["every_seconds"])
        query = await asyncio.to_thread(run_live, spark, config, {"url": task["url"], "start": LATEST})
        try:
            async with reporting(lambda: {"followed": _followed(query)}):
                await orders.begin()
                async with orders.setting(stop):
                    await stop.wait()
            batches = [_batch(json.loads(each.json)) for each in query.recentProgress if each.numInputRows]
        finally:
            await asyncio.to_thread(query.stop)
    return {"batches": batches}


def _followed(query: StreamingQuery) -> int:
    """Return up to which offset each queue was written, added up: as many messages, where all begin at 0."""
    error = query.exception()
    if error is not None:
        raise error
    progress = query.lastProgress
    if progress is None or not progress.sources[0].endOffset:
        return 0
    return sum(json.loads(progress.sources[0].endOffset)["queues"].values())


def _batch(progress: dict[str, Any]) -> dict[str, Any]:
    return {
        "messages": progress["numInputRows"],
        "seconds": round(progress["durationMs"]["triggerExecution"] / 1_000, 3),
    }
