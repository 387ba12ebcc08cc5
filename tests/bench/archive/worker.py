"""A process with a Spark session of its own: `python -m tests.bench.archive.worker TASK`."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable
from typing import Any, Final

import structlog

from msgconsole.bench.workers.lines import Orders, say
from tests.bench.archive import archiving, following

ROLES: Final[dict[str, Callable[[dict[str, Any], Orders], Awaitable[dict[str, Any]]]]] = {
    "archive": archiving.archive,
    "compare": archiving.compare,
    "follow": following.follow,
}


async def _work(task: dict[str, Any]) -> dict[str, Any]:
    return await ROLES[task["role"]](task, await Orders.open())


if __name__ == "__main__":
    # The driver reads what is said here, line by line; Java and logs are to say what they have to say elsewhere.
    sys.stdout = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    say({"result": asyncio.run(_work(json.loads(sys.argv[1])))})
