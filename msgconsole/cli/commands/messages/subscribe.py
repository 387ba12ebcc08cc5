"""`msgcenter subscribe`: print messages as they come."""

from __future__ import annotations

import asyncio
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Annotated, Final

import typer

from msgbroker.client import Message, MessageCenter
from msgbroker.client.handle.handed import HandedMessage
from msgconsole.cli.printing import streams
from msgconsole.cli.printing.output import as_json_text, body_record, on_one_line, shown, visible
from msgconsole.cli.typed.options import DEFAULT_NAMESPACE, AsJson, Broker, Namespace
from msgconsole.local import places

_LEAVING_SECONDS: Final = 0.3
"""How long the handler holds on to what it will not print. Printing itself takes no time."""


def command(
    group: Annotated[str, typer.Option("--group", help="The subscriber group to be an instance of.")],
    topic: Annotated[str, typer.Option("--topic", help="The topic's name.")],
    event_code: Annotated[str, typer.Option("--event-code", help="The event code's name, or '*' for all.")] = "*",
    count: Annotated[int | None, typer.Option("--count", min=1, help="End after so many messages.")] = None,
    register: Annotated[
        bool, typer.Option("--register", help="Register topic, event code, group and subscription first.")
    ] = False,
    expression: Annotated[
        str | None, typer.Option("--expression", help="With --register: only messages that satisfy this (CEL).")
    ] = None,
    from_beginning: Annotated[
        bool, typer.Option("--from-beginning", help="With --register: what is stored already, too; for new groups.")
    ] = False,
    broker: Broker = None,
    namespace: Namespace = DEFAULT_NAMESPACE,
    as_json: AsJson = False,
) -> None:
    """Print messages of a group as they come, and acknowledge them. Ctrl-C ends it, and so does a reader that goes.

    Example: msgcenter subscribe --group SG_POINTS --topic TP_TRADE --count 10 --json
    """
    printer = Printer(count, as_json=as_json)
    center = MessageCenter(places.broker_address(broker), namespace=namespace, drain_timeout_seconds=_LEAVING_SECONDS)
    center.subscriber(
        group=group,
        topic=topic,
        event_code=event_code,
        concurrency=1,
        register=register,
        expression=expression,
        from_beginning=from_beginning,
    )(printer.print_message)
    try:
        asyncio.run(print_messages(center, printer))
    except KeyboardInterrupt:
        typer.echo(f"Printed: {printer.printed_count}.", err=True)


async def print_messages(center: MessageCenter, printer: Printer) -> None:
    """Run *center*, whose handler *printer* is, until it has printed enough, or can print no more; raise why then."""
    with _reader_watched(printer):
        await _run_until_enough(center, printer)
    printer.raise_failure()


async def _run_until_enough(center: MessageCenter, printer: Printer) -> None:
    async with center:
        enough = asyncio.create_task(printer.enough.wait())
        # Ctrl-C is the command's own end.
        running = asyncio.create_task(center.run(handle_signals=False))
        await asyncio.wait([enough, running], return_when=asyncio.FIRST_COMPLETED)
        enough.cancel()
        if running.done():
            # It ends by itself only with an error.
            running.result()
        # What is on its way now would count as failed if we left before it is here.
        with suppress(TimeoutError):
            await asyncio.wait_for(printer.holding.wait(), _LEAVING_SECONDS)
    await running


@contextmanager
def _reader_watched(printer: Printer) -> Iterator[None]:
    """Tell *printer* when the reader of our pipe has gone (`| head`), even if no message comes that would show it."""
    output = sys.__stdout__
    if output is None or output is not sys.stdout or not stat.S_ISFIFO(os.fstat(output.fileno()).st_mode):
        yield
        return
    loop = asyncio.get_running_loop()
    # The writing end of a pipe never becomes readable: all that wakes its reader is the error.
    loop.add_reader(output.fileno(), printer.lose_reader)
    try:
        yield
    finally:
        loop.remove_reader(output.fileno())


class Printer:
    """Prints messages until it has had enough. What keeps it from printing is no message's fault."""

    def __init__(self, count: int | None, *, as_json: bool) -> None:
        self._count = count
        self._as_text = _json if as_json else _text
        self._failure: BaseException | None = None
        self.printed_count = 0
        self.enough = asyncio.Event()
        self.holding = asyncio.Event()
        """The handler is occupied: nothing is acknowledged any more, and so nothing new is asked for."""

    async def print_message(self, message: Message) -> None:
        """Print one and acknowledge it; after the last one, and where nothing can be printed, hold on until we left."""
        if not self.enough.is_set() and self._is_printed(message):
            self.printed_count += 1
            if self.printed_count != self._count:
                return
            # Before the handler returns, so that nothing more is asked for: applications have no way to say that.
            assert isinstance(message, HandedMessage)  # as the client hands them out
            message.ack()
            self.enough.set()
        # Cancelled when the center closes, which gives the message back; what the broker sends before it hears that we
        # leave is given back in the meantime.
        self.holding.set()
        await asyncio.get_running_loop().create_future()

    def _is_printed(self, message: Message) -> bool:
        try:
            streams.write(self._as_text(message))
        except BrokenPipeError:
            self.lose_reader()
            return False
        except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - raised when the message is given back
            self._failure = error
            self.enough.set()
            return False
        return True

    def lose_reader(self) -> None:
        """End the command: nobody reads what is printed."""
        if not self.enough.is_set():
            streams.drop_output()
            self.enough.set()

    def raise_failure(self) -> None:
        """Raise what has kept it from printing, if anything has."""
        if self._failure is not None:
            raise self._failure


def _json(message: Message) -> str:
    return as_json_text(_record(message))


def _text(message: Message) -> str:
    marks = " ".join(
        [f"key={message.key}"] * bool(message.key)
        + [f"attempt={message.attempt}"] * (message.attempt > 1)
        + ["stress"] * message.stress
        + [shown(message.headers)] * bool(message.headers)
    )
    place = f"{message.queue_id}/{message.queue_offset}"
    head = f"{message.stored_at:%H:%M:%S.%f} {message.topic}/{message.event_code} {place} {marks}".rstrip()
    # Nothing that a publisher sends looks like a line of ours.
    lines = [on_one_line(head), *visible(message.body.decode(errors="backslashreplace")).split("\n")]
    return "\n    ".join(lines) + "\n"


def _record(message: Message) -> dict[str, object]:
    return {
        "message_id": message.message_id,
        "topic": message.topic,
        "event_code": message.event_code,
        "key": message.key or None,
        "headers": message.headers,
        "queue_id": message.queue_id,
        "queue_offset": message.queue_offset,
        "attempt": message.attempt,
        "stress": message.stress,
        "stored_at": message.stored_at,
        "born_at": message.born_at,
        **body_record(message.body),
    }
