"""`msgcenter message trace`: what happened to a message, in order."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

import typer

from msgconsole.cli.carrying_out.acting import act
from msgconsole.cli.printing.output import on_one_line, print_json, print_line, print_table
from msgconsole.cli.typed.options import DEFAULT_NAMESPACE, AsJson, Namespace, OfTopic
from msgconsole.operations.looking import trace as tracing
from msgconsole.operations.looking.trace import TracedCopy, TraceLine, TraceStory

_STORIES_MAX = 100


def trace(
    message_id: Annotated[UUID | None, typer.Argument(metavar="MESSAGE_ID", help="The message.")] = None,
    key: Annotated[str | None, typer.Option("--key", help="Instead of an id: the newest messages of a key.")] = None,
    topic: OfTopic = None,
    limit: Annotated[
        int, typer.Option("--limit", min=1, max=_STORIES_MAX, help="With --key: how many messages, the newest.")
    ] = 5,
    namespace: Namespace = DEFAULT_NAMESPACE,
    as_json: AsJson = False,
) -> None:
    """Tell what happened to a message: published, stored, handed out to whom, what came of it after how long.

    What failed is always there; the rest is a sample, at the trace rate of the topic (topic update --trace-rate).
    Below stands what may be missing. Redriven or replayed, a message lies at several places: each is told by itself.
    Times are in UTC, by the database's clock; that of publishing is by the publisher's.

    Example: msgcenter message trace --topic TP_TRADE --key order-1
    """
    if message_id is not None and key is None and topic is None:
        story = act(lambda stores: tracing.trace_message(stores, namespace, message_id))
        if as_json:
            print_json(story)
        else:
            _tell(story)
        return
    if message_id is not None or key is None or topic is None:
        raise typer.BadParameter("give the id of a message, or --topic and --key")
    stories = act(lambda stores: tracing.trace_key(stores, namespace, topic, key, limit))
    if as_json:
        print_json(stories)
    elif not stories:
        print_line(f"The log has no message of {topic} with this key: none was stored, or its day is gone.")
    else:
        for place, story in enumerate(stories):
            if place:
                print_line("")
            _tell(story)


def _tell(story: TraceStory) -> None:
    for copy in story.copies:
        print_line(_head_of(copy))
        day = f"{copy.stored_at:%Y-%m-%d}"
        print_table(("time", "what", "group", "after", "who and why"), [_cells(line, day) for line in copy.lines])
    print_line("May be missing:")
    for sentence in story.missing:
        print_line(f"- {sentence}")


def _head_of(copy: TracedCopy) -> str:
    about = "" if copy.key is None else f", key {on_one_line(copy.key)}"
    if copy.only_for is not None:
        how = f"redriven ({copy.redrives})" if copy.redrives else "replayed"
        about += f", {how} to {copy.only_for}"
    if copy.stress:
        about += ", stress"
    return (
        f"{copy.message_id}: {copy.topic} {copy.event_code}{about}\n"
        f"queue {copy.queue_id}, offset {copy.queue_offset}, {copy.stored_at:%Y-%m-%d} (UTC)"
    )


def _cells(line: TraceLine, day: str) -> tuple[str, ...]:
    # To the millisecond: what a broker does takes a few.
    time = f"{line.at:%H:%M:%S}.{line.at.microsecond // 1_000:03d}"
    other_day = "" if f"{line.at:%Y-%m-%d}" == day else f"{line.at:%m-%d} "
    after = "" if line.seconds is None else f"{line.seconds:.3f} s"
    return other_day + time, line.what, line.group or "", after, _who_and_why(line)


def _who_and_why(line: TraceLine) -> str:
    attempt = None if line.attempt is None else f"attempt {line.attempt}"
    broker = None if line.broker is None else f"by {line.broker}"
    who = ", ".join(part for part in (attempt, line.instance, broker) if part)
    return ": ".join(part for part in (who, line.detail) if part)
