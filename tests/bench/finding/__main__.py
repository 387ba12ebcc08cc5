"""`python -m tests.bench.finding`: fill a store, look for messages, print a page, and write the report."""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import random
import sys
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import psycopg

from msgconsole.bench.measures import surroundings
from msgconsole.operations.looking.answers import Answer
from msgconsole.operations.looking.by_id import find_by_id
from msgconsole.operations.looking.finding import find_messages
from msgconsole.operations.looking.in_log import LogSearch
from msgconsole.operations.stores import Stores
from msgdb.looking.stretches import WantedMessages
from tests.bench.finding.filled_store import TOPIC, filled
from tests.bench.finding.report import ALONE, BESIDE, BY_ID, BY_KEY, BY_TIME, document

_WARM_UP: Final = 5
_LOAD_ROWS: Final = 200
_SAMPLE: Final = "SELECT message_id, key, stored_at FROM message TABLESAMPLE SYSTEM (0.1) REPEATABLE (%s) LIMIT %s"
_LAST_QUEUE: Final = "SELECT max(queue_id) + 1000 FROM queue"
# A publisher that does not pause, as PostgreSQL sees one: rows of its own queue, a commit for each two hundred.
_LOAD: Final = """
INSERT INTO message (queue_id, queue_offset, stored_at, message_id, namespace, topic, event_code, key, body, born_at,
                     stress)
SELECT %(queue_id)s, %(first)s + n, clock_timestamp(), gen_random_uuid(), 'default', 'TP_LOAD', 'EC_LOAD',
       'load-' || n, convert_to(repeat('x', 1000), 'UTF8'), clock_timestamp(), false
FROM generate_series(1, %(count)s) AS n
"""

Look = Callable[[Stores, tuple[UUID, str, datetime]], Awaitable[Answer]]


def _search(key: str | None = None, **said: Any) -> LogSearch:
    headers = said.pop("headers", {})
    wanted = WantedMessages(key=key, event_code=said.pop("event_code", None), headers=headers)
    return LogSearch(namespace="default", topic=TOPIC, wanted=wanted, **said)


def _within_the_hour(at: datetime) -> dict[str, Any]:
    return {"stored_from": at - timedelta(minutes=30), "stored_before": at + timedelta(minutes=30)}


LOOKS: Final[dict[str, Look]] = {
    BY_ID: lambda stores, row: find_by_id(stores, "default", row[0]),
    BY_KEY: lambda stores, row: find_messages(stores, _search(row[1])),
    BY_TIME: lambda stores, row: find_messages(stores, _search(**_within_the_hour(row[2]))),
    "the same, oldest first": lambda stores, row: find_messages(
        stores, _search(newest_first=False, **_within_the_hour(row[2]))
    ),
    "by topic, event code and time": lambda stores, row: find_messages(
        stores, _search(event_code="EC_3", **_within_the_hour(row[2]))
    ),
    "by a header that nothing has, 100,000 looked at": lambda stores, row: find_messages(
        stores, _search(headers={"region": "nowhere"}, stored_before=row[2])
    ),
}


def main() -> None:
    """Measure what the command line asks for."""
    options = _options()
    with tempfile.TemporaryDirectory(prefix="msgcenter-finding-") as directory:
        measured = asyncio.run(_measure(Path(directory), options))
    page = document(measured)
    if options.report is not None:
        (options.report / "finding.json").write_text(json.dumps(measured, indent=2) + "\n")
        (options.report / "finding.md").write_text(page)
    sys.stdout.write(page)


async def _measure(directory: Path, options: argparse.Namespace) -> dict[str, Any]:
    began = time.monotonic()
    commit, dirty = surroundings.commit()
    measured: dict[str, Any] = {
        "started_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit,
        "dirty": dirty,
        "machine": surroundings.machine(),
        "sizes": {name: value for name, value in vars(options).items() if name != "report"},
    }
    async with filled(directory, options.messages, options.days, options.body_bytes) as (stores, url):
        measured["filled_in_seconds"] = round(time.monotonic() - began, 1)
        with psycopg.connect(url) as connection:
            rows = connection.execute(_SAMPLE, (random.randrange(1 << 20), 10 * options.looks)).fetchall()
        random.shuffle(rows)
        measured[ALONE] = await _look_all(stores, rows, options.looks)
        with _publishing(url) as stored:
            measured[BESIDE] = await _look_all(stores, rows[::-1], options.looks)
            measured["published meanwhile"] = stored[0]
    return measured


async def _look_all(stores: Stores, rows: list[tuple[Any, ...]], looks: int) -> dict[str, Any]:
    measured = {}
    for name, look in LOOKS.items():
        seconds = []
        for row in rows[: looks + _WARM_UP]:
            began = time.perf_counter()
            answer = await look(stores, (row[0], row[1], row[2]))
            seconds.append(time.perf_counter() - began)
            assert answer.found or answer.looked_at, name
        measured[name] = _percentiles(seconds[_WARM_UP:])
    return measured


def _percentiles(seconds: list[float]) -> dict[str, float]:
    ordered = sorted(seconds)

    def at(share: float) -> float:
        return round(1_000 * ordered[min(len(ordered) - 1, math.ceil(share * len(ordered)) - 1)], 1)

    return {"p50_ms": at(0.5), "p95_ms": at(0.95), "max_ms": at(1.0), "looks": len(ordered)}


@contextmanager
def _publishing(url: str) -> Iterator[list[int]]:
    """Store messages without a pause while the block lasts; how many they are is in what is given."""
    stop, stored = threading.Event(), [0]

    def publish() -> None:
        with psycopg.connect(url, autocommit=True) as connection:
            (queue_id,) = connection.execute(_LAST_QUEUE).fetchone() or (0,)
            while not stop.is_set():
                connection.execute(_LOAD, {"queue_id": queue_id, "first": stored[0], "count": _LOAD_ROWS})
                stored[0] += _LOAD_ROWS

    thread = threading.Thread(target=publish)
    thread.start()
    try:
        yield stored
    finally:
        stop.set()
        thread.join()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.finding", description=__doc__)
    parser.add_argument("--messages", type=int, default=10_000_000)
    parser.add_argument("--days", type=int, default=6)
    parser.add_argument("--body-bytes", type=int, default=1_000)
    parser.add_argument("--looks", type=int, default=200, help="how often each is looked for")
    parser.add_argument("--report", type=Path, help="write finding.md and finding.json to this directory")
    return parser.parse_args()


if __name__ == "__main__":
    main()
