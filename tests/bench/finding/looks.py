"""What is looked for, and how long each look took."""

from __future__ import annotations

import math
import time
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from msgconsole.operations.looking.answers import Answer
from msgconsole.operations.looking.by_id import find_by_id
from msgconsole.operations.looking.finding import find_messages
from msgconsole.operations.looking.in_log import LogSearch
from msgconsole.operations.stores import Stores
from msgdb.looking.stretches import WantedMessages
from tests.bench.finding.filled_store import TOPIC
from tests.bench.finding.report import BY_ID, BY_KEY, BY_TIME

_WARM_UP: Final = 5

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


async def look_all(stores: Stores, rows: list[tuple[Any, ...]], looks: int) -> dict[str, Any]:
    """Return what each kind of look took, for so many of *rows*: id, key and time of messages that are there."""
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
