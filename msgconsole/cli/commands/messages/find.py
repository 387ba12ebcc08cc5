"""`msgcenter message find`: where a message is, by what is known of it."""

from __future__ import annotations

from typing import Annotated, Final
from uuid import UUID

import typer

from msgconsole.cli.carrying_out.acting import act
from msgconsole.cli.printing.found import tell_answer
from msgconsole.cli.typed.options import (
    DEFAULT_NAMESPACE,
    AsJson,
    Headers,
    Limit,
    Namespace,
    OfEventCode,
    OfTopic,
    read_headers,
)
from msgconsole.cli.typed.times import Since, Until
from msgconsole.operations.looking.answers import PageToken
from msgconsole.operations.looking.by_id import find_by_id
from msgconsole.operations.looking.finding import find_messages
from msgconsole.operations.looking.in_log import LogSearch
from msgdb.looking.stretches import WantedMessages

After = Annotated[
    str | None, typer.Option("--after", metavar="TOKEN", help="Go on where an answer ended: what it said then.")
]
_NONE: Final = "No such message."


def find(
    message_id: Annotated[str | None, typer.Argument(metavar="MESSAGE_ID", help="A message's id.")] = None,
    key: Annotated[str | None, typer.Option("--key", help="What it is about, as its publisher said: exactly.")] = None,
    topic: OfTopic = None,
    event_code: OfEventCode = None,
    header: Headers = None,
    since: Since = None,
    until: Until = None,
    oldest_first: Annotated[bool, typer.Option("--oldest-first", help="Not the newest first.")] = False,
    after: After = None,
    limit: Limit = 50,
    namespace: Namespace = DEFAULT_NAMESPACE,
    as_json: AsJson = False,
) -> None:
    """Find messages: by id, by key, or by topic with time, event code and headers. Times are UTC.

    The newest come first. By id and by key it is quick. By headers, or a rare event code, the log is looked through,
    100,000 messages at a time. Where an answer is not complete, standard error says why, and how to go on.

    Example: msgcenter message find --key order-4711
    """
    wanted = WantedMessages(event_code=event_code, key=key, headers=read_headers(header))
    if message_id is not None:
        if topic or since or until or after or not wanted.is_any:
            raise typer.BadParameter("give the id of a message, or conditions, and not both")
        answer = act(lambda stores: find_by_id(stores, namespace, read_id(message_id)))
        tell_answer(answer, None, as_json=as_json, empty=_NONE)
        return
    if key is None and topic is None:
        raise typer.BadParameter("give the id of a message, or --key, or --topic (and what else you know)")
    search = LogSearch(
        namespace=namespace,
        topic=topic,
        wanted=wanted,
        stored_from=since,
        stored_before=until,
        newest_first=not oldest_first,
        after=None if after is None else PageToken.of_text(after),
        limit=limit,
    )
    tell_answer(act(lambda stores: find_messages(stores, search)), topic, as_json=as_json, empty=_NONE)


def read_id(text: str) -> UUID:
    """Return the id that was typed; of what is none it is said how to look for it."""
    try:
        return UUID(text)
    except ValueError as error:
        message = f"{text!r} is no message id; if it is a key: msgcenter message find --key {text}"
        raise typer.BadParameter(message) from error
