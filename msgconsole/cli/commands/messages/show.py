"""`msgcenter message show` and `body`: all there is of one message, and its body as it was published."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from msgbroker.contract.errors import ThingNotFoundError
from msgconsole.cli.carrying_out.acting import act
from msgconsole.cli.commands.messages.find import read_id
from msgconsole.cli.printing.found import record_of
from msgconsole.cli.printing.incomplete import tell_why_not
from msgconsole.cli.printing.json_layout import lay_out
from msgconsole.cli.printing.output import plain, print_json, print_line, print_rows, print_thing, visible
from msgconsole.cli.printing.streams import print_bytes
from msgconsole.cli.typed.options import DEFAULT_NAMESPACE, AsJson, Namespace
from msgconsole.operations.looking.by_id import ShownMessage, find_body, find_shown
from msgdb.looking.deaths import DEATHS_MAX, Death
from msgdb.postgres.binary_rows import datetime_of

MessageId = Annotated[str, typer.Argument(metavar="MESSAGE_ID", help="The message's id.")]
_AGAIN: Final = ("stored_at", "for_group", "redrives", "queue_id", "queue_offset")
_DEATHS: Final = ("dead_letter", "group", "died_at", "attempts", "reason", "last_error", "redriven_at")
_HEX_WIDTH: Final = 16


class BodyForm(StrEnum):
    """How a body is printed."""

    AUTO = "auto"
    TEXT = "text"
    JSON = "json"
    HEX = "hex"
    RAW = "raw"


def show(message_id: MessageId, namespace: Namespace = DEFAULT_NAMESPACE, as_json: AsJson = False) -> None:
    """Show a message: all of its fields, where it lies, where it was stored once more, and its dead letters.

    `message body` prints its body.

    Example: msgcenter message show 019a9f6c-7d2a-7c31-b2a4-5d1f0e3c9a10
    """
    shown, why_not = act(lambda stores: find_shown(stores, namespace, read_id(message_id)))
    if shown is None:
        raise _not_there(message_id, namespace, why_not)
    record = record_of(shown.message)
    again = [_again_record(shown, place) for place in range(len(shown.again))]
    deaths = [_death_record(shown, death) for death in shown.deaths]
    if as_json:
        print_json(plain(record) | {"stored_again": plain(again), "dead_letters": plain(deaths)})
    else:
        print_thing(record, as_json=False)
        _tell(again, _AGAIN, "Stored once more:")
        _tell(deaths, _DEATHS, "Dead letters:")
    if shown.again_is_cut:
        tell_why_not([f"it was stored more than {len(again):,} times"])
    if len(deaths) >= DEATHS_MAX:
        tell_why_not([f"there may be more than {len(deaths):,} dead letters of it"])


def body(
    message_id: MessageId,
    form: Annotated[
        BodyForm,
        typer.Option("--as", help="auto: JSON on several lines, else text, else hex. raw: its bytes, untouched."),
    ] = BodyForm.AUTO,
    out: Annotated[
        Path | None, typer.Option("--out", help="Write its bytes, untouched, to this file, which is not there yet.")
    ] = None,
    namespace: Namespace = DEFAULT_NAMESPACE,
) -> None:
    """Print a message's body: JSON is laid out, and not a digit of it changed.

    Example: msgcenter message body 019a9f6c-7d2a-7c31-b2a4-5d1f0e3c9a10 --as hex
    """
    content, why_not = act(lambda stores: find_body(stores, namespace, read_id(message_id)))
    if content is None:
        raise _not_there(message_id, namespace, why_not)
    if out is not None:
        with out.open("xb") as file:
            file.write(content)
        print_line(f"{len(content):,} bytes are in {out}.")
    elif form is BodyForm.RAW:
        print_bytes(content)
    else:
        print_line(body_text(content, form))


def body_text(content: bytes, form: BodyForm) -> str:
    """Return a body for people, in that form. Raises typer.BadParameter where it has no such form."""
    if form is BodyForm.HEX:
        return _hex(content)
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        if form is BodyForm.AUTO:
            return _hex(content)
        raise typer.BadParameter("the body is no text: see it with --as hex", param_hint="--as") from error
    laid_out = None if form is BodyForm.TEXT else lay_out(text)
    if laid_out is None and form is BodyForm.JSON:
        raise typer.BadParameter("the body is no JSON: see it with --as text", param_hint="--as")
    return visible(text if laid_out is None else laid_out)


def _hex(content: bytes) -> str:
    lines = (content[at : at + _HEX_WIDTH] for at in range(0, len(content), _HEX_WIDTH))
    return "\n".join(f"{number * _HEX_WIDTH:08x}  {line.hex(' ')}" for number, line in enumerate(lines))


def _not_there(message_id: str, namespace: str, why_not: tuple[str, ...]) -> ThingNotFoundError:
    tell_why_not(why_not)
    return ThingNotFoundError("message", message_id, namespace=namespace)


def _again_record(shown: ShownMessage, place: int) -> dict[str, Any]:
    message = shown.again[place]
    group_id = message.target_group
    group = None if group_id is None else shown.group_names.get(group_id, f"(deleted: {group_id})")
    return {
        "stored_at": datetime_of(message.stored_at_us),
        "for_group": group,
        "redrives": message.redrives,
        "queue_id": message.queue_id,
        "queue_offset": message.queue_offset,
    }


def _death_record(shown: ShownMessage, death: Death) -> dict[str, Any]:
    redriven_at_us = death.redriven_at_us
    return {
        "dead_letter": death.dead_letter_id,
        "group": shown.group_names.get(death.group_id, f"{death.group} (deleted: {death.group_id})"),
        "died_at": datetime_of(death.died_at_us),
        "attempts": death.attempts,
        "reason": death.reason,
        "last_error": death.last_error,
        "redriven_at": None if redriven_at_us is None else datetime_of(redriven_at_us),
    }


def _tell(records: list[dict[str, Any]], columns: tuple[str, ...], title: str) -> None:
    if records:
        print_line(f"\n{title}")
        print_rows(records, columns, as_json=False, empty="", long=["last_error"])
