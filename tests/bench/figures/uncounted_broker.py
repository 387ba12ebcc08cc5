"""`python -m tests.bench.figures.uncounted_broker`: a broker that counts nothing and looks at no backlog."""

from __future__ import annotations

import asyncio

from msgbroker.engine.tally import NoTally
from msgbroker.server.deliver import hub
from msgbroker.server.figures.backlog_looks import BacklogLooks
from msgbroker.server.figures.usage import UsageCounts
from msgbroker.server.figures.usage_writer import UsageWriter
from msgconsole.cli.entry import main


async def _wait(_self: object, stop: asyncio.Event) -> None:
    await stop.wait()


def _count_nothing(_self: object, _what: object) -> None:
    """Let it pass."""


if __name__ == "__main__":
    vars(hub)["LaneTally"] = lambda *_of_what: NoTally()
    for counting in ("stored", "stored_before"):
        setattr(UsageCounts, counting, _count_nothing)
    for writer in (UsageWriter, BacklogLooks):
        setattr(writer, "run", _wait)  # noqa: B010 - a method of either
    main()
