"""A publisher or consumer process: `python -m tests.bench.peers.worker TASK`."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import uvloop

from msgconsole.bench.workers.lines import Orders, say
from tests.bench.peers.catalogue import peers
from tests.bench.peers.peer import Work


async def _work(task: dict[str, Any]) -> dict[str, Any]:
    peer = peers()[task["peer"]]
    work = Work(task["queue"], task["messages"], task["body_bytes"])
    clock = _Clock(await Orders.open())
    await {"publish": peer.publish, "consume": peer.consume}[task["role"]](task["url"], work, clock)
    clock.end()
    return {"started_at": clock.started_at, "ended_at": clock.ended_at}


class _Clock:
    def __init__(self, orders: Orders) -> None:
        self._orders = orders
        self.started_at = self.ended_at = 0.0

    async def begin(self) -> None:
        await self._orders.begin()
        self.started_at = time.time()

    def end(self) -> None:
        self.ended_at = self.ended_at or time.time()


if __name__ == "__main__":
    say({"result": uvloop.run(_work(json.loads(sys.argv[1])))})
