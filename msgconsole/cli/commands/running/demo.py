"""`msgcenter demo`: show what it does, against a running center."""

from __future__ import annotations

import asyncio
import logging
from typing import Annotated

import typer

from confdb.services import ConfigService
from msgconsole.cli.carrying_out.service import actor
from msgconsole.cli.exit_status import EXIT_REFUSED
from msgconsole.cli.printing.output import plain, print_json, print_line, print_table
from msgconsole.cli.typed.options import AsJson, Broker
from msgconsole.demo.run import GroupResult, play
from msgconsole.local import places
from msgconsole.local.databases import open_config_store, open_message_store
from msgdb.log.queues import QueueTailReader


def command(
    broker: Broker = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave topic, groups and dead letters, to look at them.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Register a topic and four groups, publish, and show who received what, what was retried and dead-lettered.

    Ends with status 0 only if every count is right. Cleans up after itself, dead letters included; only the
    messages stay until their days have passed.

    Example: msgcenter demo --keep
    """
    # Handlers of the demo fail on purpose: their tracebacks would only confuse.
    logging.getLogger("msgbroker.client").setLevel(logging.ERROR)

    def say(sentence: str) -> None:
        if as_json:
            typer.echo(sentence, err=True)
        else:
            print_line(sentence)

    async def run() -> list[GroupResult]:
        async with (
            open_config_store(places.confdb_url()) as config,
            open_message_store(places.msgdb_url()) as store,
        ):
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
    head = ("group", "wants", "received", "of them stress", "retries", "dead letters", "result")
    rows = [
        (
            result.group,
            result.subscription,
            _against(result.counted.handled, result.expected.handled),
            _against(result.counted.stress, result.expected.stress),
            _against(result.counted.retried, result.expected.retried),
            _against(result.counted.dead_letters, result.expected.dead_letters),
            "right" if result.is_right else "WRONG",
        )
        for result in results
    ]
    print_table(head, rows)


def _against(counted: int, expected: int) -> str:
    return str(counted) if counted == expected else f"{counted} (not {expected})"
