"""Messages that were found, as commands print them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

import typer

from msgconsole.cli.printing.incomplete import tell_why_not
from msgconsole.cli.printing.output import plain, print_json, print_rows
from msgconsole.operations.looking.answers import Answer
from msgdb.log.found import FoundMessage
from msgdb.postgres.binary_rows import datetime_of

_COLUMNS: Final = ("message_id", "stored_at", "topic", "event_code", "key")


def record_of(message: FoundMessage) -> dict[str, Any]:
    """Return all fields of a message but its body, by the names that all commands have for them."""
    record = message._asdict()
    times = {name: datetime_of(record.pop(f"{name}_us")) for name in ("stored_at", "born_at")}
    return {"message_id": UUID(bytes=record.pop("message_id")), **record, **times}


def tell_answer(answer: Answer, topic: str | None, *, as_json: bool, empty: str) -> None:
    """Print what was found, of a *topic* or of all; whether it is complete, and how to go on where it is not.

    That comes on standard error, or in the JSON.
    """
    records = [record_of(message) | _copy_record(message, answer) for message in answer.found]
    if as_json:
        print_json(
            {
                "messages": plain(records),
                "is_complete": answer.is_complete,
                "why_not": list(answer.why_not),
                "after": None if answer.after is None else str(answer.after),
                "looked_at": answer.looked_at,
            }
        )
        return
    print_rows(
        [_row(record) for record in records],
        _columns(records, topic),
        as_json=False,
        empty=empty,
        least=["event_code"],
    )
    tell_why_not(answer.why_not)
    if answer.after is not None:
        typer.echo(f"Go on with --after {answer.after}.", err=True)


def _copy_record(message: FoundMessage, answer: Answer) -> dict[str, str | None]:
    """Return for which group a message was stored once more, and why; of what its publisher stored, nothing."""
    if message.target_group is None:
        return {"for_group": None, "copy": None}
    group = answer.group_names.get(message.target_group, f"(deleted: {message.target_group})")
    return {"for_group": group, "copy": "redriven" if message.redrives else "replayed"}


def _row(record: dict[str, Any]) -> dict[str, Any]:
    """Return a message as the table has it."""
    return record if record["copy"] is None else record | {"copy": f"{record['copy']} to {record['for_group']}"}


def _columns(records: Sequence[dict[str, Any]], topic: str | None) -> list[str]:
    """Return the columns: in 80 there is room for no more. An id is what all other commands are given."""
    if any(record["copy"] is not None for record in records):
        # The same message several times: what tells them apart matters more than what all of them have.
        differing = [name for name in ("topic", "event_code", "key") if len({record[name] for record in records}) > 1]
        return ["message_id", "stored_at", *differing, "copy"]
    return [column for column in _COLUMNS if column != "topic" or topic is None]
