"""The probe: how long one awaited publish takes, a few times a second, beside a load."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Final

from msgbroker.client import MessageCenter
from msgconsole.bench.workers.lines import Orders
from msgconsole.bench.workers.load import EVENT_CODE, TOPIC, Load

_INTERVAL_SECONDS: Final = 0.1


async def probe(task: dict[str, Any], orders: Orders) -> dict[str, Any]:
    """Publish and await, until the driver says so; return (time, milliseconds) of each."""
    load = Load(task)
    stop = asyncio.Event()
    measured: list[tuple[float, float]] = []
    async with MessageCenter(task["addresses"]) as center:
        key, headers = load.first
        body = bytes(task["body_bytes"])
        await center.publish(TOPIC, EVENT_CODE, body, headers=headers, key=key)
        await orders.begin()
        async with orders.setting(stop):
            while not stop.is_set():
                asked_at = time.time()
                await center.publish(TOPIC, EVENT_CODE, body, headers=headers)
                measured.append((asked_at, (time.time() - asked_at) * 1_000))
                await asyncio.sleep(_INTERVAL_SECONDS)
    return {"measured": measured, "published": load.published + len(measured)}
