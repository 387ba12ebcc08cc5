"""`msgcenter message export`: messages with their bodies, as JSON lines."""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from msgconsole.cli.carrying_out.acting import open_stores
from msgconsole.cli.commands.messages.find import After
from msgconsole.cli.printing.found import record_of
from msgconsole.cli.printing.incomplete import tell_why_not
from msgconsole.cli.printing.output import as_json_text, body_record
from msgconsole.cli.printing.streams import drop_output, write
from msgconsole.cli.typed.options import DEFAULT_NAMESPACE, Headers, Namespace, OfEventCode, OfKey, read_headers
from msgconsole.cli.typed.times import Since, Until
from msgconsole.operations.looking.answers import PageToken
from msgconsole.operations.looking.exporting import Exported, export_messages
from msgconsole.operations.looking.in_log import LogSearch
from msgdb.log.found import FoundMessage
from msgdb.looking.stretches import WantedMessages

_PROGRESS_SECONDS: Final = 5.0


class BodiesAs(StrEnum):
    """How bodies are written."""

    TEXT = "text"
    BASE64 = "base64"
    NONE = "none"


@dataclass(slots=True)
class _Told:
    """How far it is, told on standard error now and then."""

    bodies: BodiesAs
    clock: Callable[[], float] = time.monotonic
    count: int = 0
    lost: int = 0
    gone: tuple[str, ...] = ()
    after: PageToken | None = None
    told_at: float = field(default=0.0)

    def lines_of(self, exported: Exported) -> str:
        """Return the lines of some messages."""
        return "".join(as_json_text(_record(*each, self.bodies)) for each in exported.messages)

    def note(self, exported: Exported) -> None:
        """Note that they are written."""
        self.count += len(exported.messages)
        self.lost += exported.lost
        self.gone, self.after = exported.gone, exported.after
        if self.clock() - self.told_at >= _PROGRESS_SECONDS:
            if self.told_at and self.after is not None:
                typer.echo(f"{self.count:,} messages so far, up to --after {self.after}", err=True)
            self.told_at = self.clock()

    def end(self) -> None:
        """Say how it ended, and how to go on."""
        typer.echo(f"Exported: {self.count:,} messages.", err=True)
        if self.lost:
            tell_why_not([f"{self.lost:,} messages went with their day before they were read"])
        tell_why_not(self.gone)
        if self.after is not None:
            typer.echo(f"There may be more: go on with --after {self.after}.", err=True)


def export(
    topic: Annotated[str, typer.Option("--topic", help="The topic's name.")],
    event_code: OfEventCode = None,
    key: OfKey = None,
    header: Headers = None,
    since: Since = None,
    until: Until = None,
    bodies: Annotated[
        BodiesAs, typer.Option("--bodies", help="text: base64 only where a body is none. none: no bodies.")
    ] = BodiesAs.TEXT,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Write to this file, which is not there yet; with --after, at its end."),
    ] = None,
    after: After = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="How many at most.")] = None,
    namespace: Namespace = DEFAULT_NAMESPACE,
) -> None:
    """Write messages with their bodies as JSON, one on each line, the oldest first: what is stored by now.

    Standard error tells how far it is. Where it ends early (--limit, Ctrl-C), it tells how to go on.

    Example: msgcenter message export --topic TP_TRADE --since 2h --limit 1000 --out trades.jsonl
    """
    search = LogSearch(
        namespace=namespace,
        topic=topic,
        wanted=WantedMessages(event_code=event_code, key=key, headers=read_headers(header)),
        stored_from=since,
        stored_before=until,
        after=None if after is None else PageToken.of_text(after),
    )
    told = _Told(bodies, after=search.after)
    with _written_to(out, is_more=after is not None) as write_text:
        try:
            asyncio.run(_export(search, limit, told, write_text))
        except KeyboardInterrupt:
            told.end()
            raise
        except BrokenPipeError:
            # Whoever read it has enough.
            drop_output()
            return
    told.end()


async def _export(search: LogSearch, limit: int | None, told: _Told, write_text: Callable[[str], object]) -> None:
    async with open_stores() as stores:
        async for exported in export_messages(stores, search, limit):
            write_text(told.lines_of(exported))
            told.note(exported)


@contextmanager
def _written_to(out: Path | None, *, is_more: bool) -> Iterator[Callable[[str], object]]:
    if out is None:
        yield write
        return
    with out.open("a" if is_more else "x", encoding="utf-8") as file:

        def write_text(text: str) -> None:
            file.write(text)
            # What is told to be written is written.
            file.flush()

        yield write_text


def _record(message: FoundMessage, body: bytes, bodies: BodiesAs) -> dict[str, Any]:
    if bodies is BodiesAs.NONE:
        return record_of(message)
    if bodies is BodiesAs.BASE64:
        return record_of(message) | {"body_base64": base64.b64encode(body).decode()}
    return record_of(message) | body_record(body)
