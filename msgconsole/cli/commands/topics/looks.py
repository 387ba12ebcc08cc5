"""`msgcenter topic tail` and `headers`: a topic's messages as they come, and what headers they have."""

from __future__ import annotations

import asyncio
import time
from typing import Annotated, Any, Final

import typer

from msgconsole.cli.carrying_out.acting import act, open_stores
from msgconsole.cli.printing import streams
from msgconsole.cli.printing.found import record_of
from msgconsole.cli.printing.output import (
    as_json_text,
    body_record,
    on_one_line,
    plain,
    print_json,
    print_rows,
    shown,
    visible,
)
from msgconsole.cli.typed.options import (
    DEFAULT_NAMESPACE,
    AsJson,
    Headers,
    Namespace,
    OfEventCode,
    OfKey,
    Topic,
    read_headers,
)
from msgconsole.operations.looking.headers_seen import find_headers
from msgconsole.operations.looking.tailing import Allowance, Tail, WantedTail, open_tail
from msgdb.log.found import FoundMessage
from msgdb.looking.headers_seen import HeaderSeen
from msgdb.looking.stretches import WantedMessages
from msgdb.postgres.binary_rows import datetime_of

_ROUND_SECONDS: Final = 0.25
_BODY_CHARS_MAX: Final = 2_000
_COLUMNS: Final = ("event_code", "header", "messages", "of_messages", "last_seen_at", "example")


def tail(
    topic: Topic,
    event_code: OfEventCode = None,
    key: OfKey = None,
    header: Headers = None,
    expression: Annotated[
        str | None, typer.Option("--expression", help="Only messages whose headers satisfy this (CEL).")
    ] = None,
    last: Annotated[
        int, typer.Option("--last", min=0, max=1_000, help="Begin with so many that are there already.")
    ] = 0,
    rate: Annotated[
        float, typer.Option("--rate", min=0.1, max=1_000, help="Show so many a second at most; the others are counted.")
    ] = 50,
    count: Annotated[int | None, typer.Option("--count", min=1, help="End after so many messages.")] = None,
    namespace: Namespace = DEFAULT_NAMESPACE,
    as_json: AsJson = False,
) -> None:
    """Show a topic's messages as they come, until Ctrl-C. No group is given anything less for it.

    It looks into the store four times a second, and is shown what is committed. Where messages come faster than they
    may be shown, standard error tells how many were passed.

    Example: msgcenter topic tail TP_TRADE --event-code EC_PAID --last 10 --count 10
    """
    wanted = WantedTail(
        namespace=namespace,
        topic=topic,
        wanted=WantedMessages(event_code=event_code, key=key, headers=read_headers(header)),
        expression=expression,
        last=last if count is None else min(last, count),
    )
    printed = _Printed(count, as_json=as_json)
    try:
        asyncio.run(_tail(wanted, rate, printed))
    except KeyboardInterrupt:
        typer.echo(f"Shown: {printed.count:,}.", err=True)
    except BrokenPipeError:
        # The reader has gone, and with it whoever wanted to see more.
        streams.drop_output()


def headers(topic: Topic, namespace: Namespace = DEFAULT_NAMESPACE, as_json: AsJson = False) -> None:
    """List the headers of a topic's newest messages (10,000 at most), by event code: what can be filtered by.

    Example: msgcenter topic headers TP_TRADE
    """
    seen = act(lambda stores: find_headers(stores, namespace, topic))
    records = [_seen_record(each) for each in seen.headers]
    if as_json:
        print_json({"headers": plain(records), "looked_at": seen.looked_at, "is_cut": seen.is_cut})
        return
    print_rows(records, _COLUMNS, as_json=False, empty=f"No headers, in {seen.looked_at:,} messages.", long=["example"])
    if seen.is_cut:
        typer.echo(f"Only the {len(records):,} most frequent: there are more.", err=True)


class _Printed:
    """What is printed of a tail, and when it is enough."""

    def __init__(self, count_max: int | None, *, as_json: bool) -> None:
        self._count_max = count_max
        self._as_json = as_json
        self.count = 0

    @property
    def missing(self) -> int | None:
        """How many more it may be; None: however many come."""
        return None if self._count_max is None else self._count_max - self.count

    def print_message(self, message: FoundMessage, body: bytes) -> None:
        """Print one. Raises BrokenPipeError where the reader has gone."""
        record = record_of(message) | body_record(body)
        streams.write(as_json_text(record) if self._as_json else _text(message, body))
        self.count += 1


async def _tail(wanted: WantedTail, rate: float, printed: _Printed) -> None:
    async with open_stores() as stores:
        looking = await open_tail(stores, wanted)
        allowance = Allowance(rate, time.monotonic())
        while printed.missing != 0:
            await _look_once(looking, allowance, printed)
            if printed.missing != 0:
                await asyncio.sleep(_ROUND_SECONDS)


async def _look_once(looking: Tail, allowance: Allowance, printed: _Printed) -> None:
    granted = allowance.grant(time.monotonic())
    missing = printed.missing
    seen = await looking.look_once(granted if missing is None else min(granted, missing))
    for message, body in seen.messages:
        printed.print_message(message, body)
    # The last ones, which were there already, are not what comes too fast.
    allowance.use(min(granted, len(seen.messages)))
    if seen.passed and printed.missing != 0:
        typer.echo(f"... {seen.passed:,} messages passed: they come faster than they are shown (--rate)", err=True)


def _text(message: FoundMessage, body: bytes) -> str:
    marks = " ".join(
        [f"key={message.key}"] * (message.key is not None)
        + [f"for group {message.target_group}"] * (message.target_group is not None)
        + ["stress"] * message.stress
        + [shown(message.headers)] * bool(message.headers)
    )
    stored_at = datetime_of(message.stored_at_us)
    place = f"{message.queue_id}/{message.queue_offset}"
    head = f"{stored_at:%H:%M:%S.%f} {message.topic}/{message.event_code} {place} {marks}".rstrip()
    text = body.decode(errors="backslashreplace")
    if len(text) > _BODY_CHARS_MAX:
        text = f"{text[:_BODY_CHARS_MAX]}... ({len(body):,} bytes)"
    # Nothing that a publisher sends looks like a line of ours.
    return "\n    ".join([on_one_line(head), *visible(text).split("\n")]) + "\n"


def _seen_record(seen: HeaderSeen) -> dict[str, Any]:
    return {
        "event_code": seen.event_code,
        "header": seen.name,
        "messages": seen.messages,
        "of_messages": seen.of_messages,
        "last_seen_at": datetime_of(seen.last_seen_at_us),
        "example": seen.example,
    }
