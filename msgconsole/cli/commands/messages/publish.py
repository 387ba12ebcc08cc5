"""`msgcenter publish`: publish a message."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Annotated

import typer

from msgbroker.client import MessageCenter, OutgoingMessage, Receipt
from msgbroker.contract.errors import MessageCenterError
from msgconsole.cli.exit_status import EXIT_REFUSED
from msgconsole.cli.printing.output import print_json, print_line
from msgconsole.cli.typed.options import DEFAULT_NAMESPACE, AsJson, Broker, Namespace, read_headers
from msgconsole.local import places


def command(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic's name.")],
    event_code: Annotated[str, typer.Argument(metavar="EVENT_CODE", help="The event code's name.")],
    body: Annotated[
        str | None, typer.Argument(metavar="BODY", help="The body; without it, or with `-`, stdin.")
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--file", exists=True, dir_okay=False, help="Read the body from this file.")
    ] = None,
    header: Annotated[list[str] | None, typer.Option("--header", help="name=value; may be repeated.")] = None,
    key: Annotated[str, typer.Option("--key", help="What the message is about, e.g. an order id.")] = "",
    ordering_key: Annotated[
        str, typer.Option("--ordering-key", help="Messages with the same one stay in order. Default: the key.")
    ] = "",
    count: Annotated[int, typer.Option("--count", min=1, max=1_000_000, help="Publish it so many times.")] = 1,
    publisher_group: Annotated[str, typer.Option("--publisher-group", help="In whose name.")] = "",
    timeout_seconds: Annotated[
        float, typer.Option("--timeout-seconds", min=0.1, help="Give up when it is not stored within this time.")
    ] = 10.0,
    broker: Broker = None,
    namespace: Namespace = DEFAULT_NAMESPACE,
    as_json: AsJson = False,
) -> None:
    """Publish a message and print its receipt: it is stored.

    Without BODY and --file the body is read from stdin.

    Example: msgcenter publish TP_TRADE EC_PAID '{"order": 1}' --header region=hz --key order-1
    """
    message = OutgoingMessage(
        topic, event_code, _body(body, file), headers=read_headers(header), key=key, ordering_key=ordering_key
    )

    async def run() -> list[Receipt | MessageCenterError]:
        address = places.broker_address(broker)
        async with MessageCenter(
            address,
            namespace=namespace,
            publisher_group=publisher_group,
            publish_timeout_seconds=timeout_seconds,
            on_unavailable="raise",
        ) as center:
            return await center.publish_many(message for _ in range(count))

    answers = asyncio.run(run())
    receipts = [answer for answer in answers if isinstance(answer, Receipt)]
    refusals = [answer for answer in answers if isinstance(answer, MessageCenterError)]
    _print_receipts(receipts, as_json=as_json)
    if refusals and count == 1:
        raise refusals[0]
    if refusals:
        typer.echo(f"{len(refusals)} of {count} are not stored; the first: {refusals[0].message}", err=True)
        raise typer.Exit(EXIT_REFUSED)


def _print_receipts(receipts: list[Receipt], *, as_json: bool) -> None:
    if as_json:
        print_json([_record(receipt) for receipt in receipts])
    elif len(receipts) == 1:
        receipt = receipts[0]
        print_line(f"Stored as {receipt.message_id} in queue {receipt.queue_id} at offset {receipt.queue_offset}.")
    elif receipts:
        print_line(f"{len(receipts)} messages are stored: {receipts[0].message_id} to {receipts[-1].message_id}.")


def _record(receipt: Receipt) -> dict[str, object]:
    return {
        "message_id": receipt.message_id,
        "queue_id": receipt.queue_id,
        "queue_offset": receipt.queue_offset,
        "stored_at": receipt.stored_at,
    }


def _body(body: str | None, file: Path | None) -> bytes:
    if body is not None and file is not None:
        message = "give the body as an argument or by --file, not both"
        raise typer.BadParameter(message, param_hint="--file")
    if file is not None:
        return file.read_bytes()
    if body == "-":
        return sys.stdin.buffer.read()
    if body is None:
        return _body_of_pipe()
    # What the shell gave that is not UTF-8 goes out as it came.
    return body.encode(errors="surrogateescape")


def _body_of_pipe() -> bytes:
    """Return what is piped in. Nothing at all is a mistake, more often than a message."""
    piped = b"" if sys.stdin is None or sys.stdin.isatty() else sys.stdin.buffer.read()
    if not piped:
        message = "there is none: give it as an argument, by --file or by a pipe ('' is an empty body)"
        raise typer.BadParameter(message, param_hint="BODY")
    return piped
