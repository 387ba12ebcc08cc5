"""`msgcenter demo`: show what it does, against a running center."""

from __future__ import annotations

import asyncio
import logging
from typing import Annotated

import typer
from rich import box
from rich.table import Table
from rich.text import Text

from confdb.services import ConfigService
from confdb.store import ConfigStore
from msgconsole.cli import places
from msgconsole.cli.main import EXIT_REFUSED
from msgconsole.cli.options import AsJson, Broker
from msgconsole.cli.output import console, plain, print_json, print_line
from msgconsole.cli.service import actor
from msgconsole.demo_run import GroupResult, play
from msgdb.queues import QueueTailReader
from msgdb.store import MessageStore


def command(
    broker: Broker = None,
    keep: Annotated[bool, typer.Option("--keep", help="Leave topic and groups behind, to look at them.")] = False,
    as_json: AsJson = False,
) -> None:
    """Register a topic and four groups, publish, and show who received what, what was retried and dead-lettered.

    Ends with status 0 only if every count is right. Cleans up after itself.

    Example: msgcenter demo --keep
    """
    # Handlers of the demo fail on purpose: their tracebacks would only confuse.
    logging.getLogger("msgbroker.client").setLevel(logging.ERROR)

    def say(sentence: str) -> None:
        typer.echo(sentence, err=as_json)

    async def run() -> list[GroupResult]:
        async with ConfigStore.open(places.confdb_url()) as config, MessageStore.open(places.msgdb_url()) as store:
            service = ConfigService(config, actor(), QueueTailReader(store))
            return await play(service, store, places.broker_address(broker), say, keep=keep)

    results = asyncio.run(run())
    is_right = all(result.is_right for result in results)
    if as_json:
        groups = [plain(result) | {"is_right": result.is_right} for result in results]
        print_json({"is_right": is_right, "groups": groups})
    else:
        _print_table(results)
        print_line("Every count is right." if is_right else "Some counts are WRONG: see the table.")
    if not is_right:
        raise typer.Exit(EXIT_REFUSED)


def _print_table(results: list[GroupResult]) -> None:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in ("group", "wants", "received", "of them stress", "retries", "dead letters", ""):
        table.add_column(column, overflow="fold")
    for result in results:
        counted, expected = result.counted, result.expected
        table.add_row(
            Text(result.group),
            Text(result.subscription),
            _against(counted.handled, expected.handled),
            _against(counted.stress, expected.stress),
            _against(counted.retried, expected.retried),
            _against(counted.dead_letters, expected.dead_letters),
            "right" if result.is_right else "WRONG",
        )
    console().print(table)


def _against(counted: int, expected: int) -> str:
    return str(counted) if counted == expected else f"{counted} (not {expected})"
