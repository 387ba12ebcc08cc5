"""The subscriber processes: one that counts what arrives, and one that is merely there."""

from __future__ import annotations

import time
from array import array
from typing import Any

from msgbroker.client import Message, MessageCenter
from msgconsole.bench.measures.resources import percentiles
from msgconsole.bench.workers.lines import Orders, reporting
from msgconsole.bench.workers.load import EVENT_CODE, TOPIC


async def subscribe(task: dict[str, Any], orders: Orders) -> dict[str, Any]:
    """Count what arrives at each group until the driver has seen enough; return counts and latencies."""
    counts: dict[str, int] = dict.fromkeys(task["groups"], 0)
    mask: int = task["latency_mask"]
    latencies_us = array("d")
    last_at = [0.0]
    clock, clock_ns = time.time, time.time_ns

    def progress() -> dict[str, Any]:
        return {"counts": {**counts}, "last_at": last_at[0]}

    async with MessageCenter(task["addresses"]) as center:

        def listen_to(group: str) -> None:
            @center.subscriber(group=group, topic=TOPIC, event_code=EVENT_CODE)
            async def count(message: Message) -> None:
                counts[group] = number = counts[group] + 1
                if number & mask == 0:
                    latencies_us.append(clock_ns() / 1_000 - message.born_at.timestamp() * 1_000_000)
                last_at[0] = clock()

        for group in counts:
            listen_to(group)
        if task["connects_on_order"]:
            await orders.begin()
            await center.start()
        else:
            await center.start()
            await orders.begin()
        async with reporting(progress):
            await orders.next()
    latencies_ms = [latency / 1_000 for latency in latencies_us]
    return {**progress(), "latency_ms": percentiles(latencies_ms)}


async def listen(task: dict[str, Any], orders: Orders) -> dict[str, Any]:
    """Hold instances of groups that have nothing to do, until the driver says so."""

    async def ignore(_message: Message) -> None:
        """Acknowledge the message, and count nothing."""

    async with MessageCenter(task["addresses"], namespace=task["namespace"]) as center:
        for group, topics in task["groups"].items():
            for topic in topics:
                center.subscriber(group=group, topic=topic, event_code=EVENT_CODE)(ignore)
        await center.start()
        await orders.begin()
        await orders.next()
    return {}
