"""Runs the worker that the command line describes."""

from __future__ import annotations

import json
import sys
from collections.abc import Awaitable, Callable
from typing import Any, Final

import uvloop

from msgconsole.bench.workers import probing, publishing, subscribing
from msgconsole.bench.workers.lines import Orders, say

ROLES: Final[dict[str, Callable[[dict[str, Any], Orders], Awaitable[dict[str, Any]]]]] = {
    "publish": publishing.publish,
    "subscribe": subscribing.subscribe,
    "listen": subscribing.listen,
    "probe": probing.probe,
}


async def _work(task: dict[str, Any]) -> dict[str, Any]:
    return await ROLES[task["role"]](task, await Orders.open())


if __name__ == "__main__":
    say({"result": uvloop.run(_work(json.loads(sys.argv[1])))})
