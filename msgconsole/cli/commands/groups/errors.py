"""`msgcenter group errors`: what a group's messages fail of."""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID

import typer

from msgconsole.cli.carrying_out.acting import act
from msgconsole.cli.printing.output import plain, print_json, print_rows
from msgconsole.cli.typed.options import DEFAULT_NAMESPACE, AsJson, Namespace, OfTopic, SubscriberGroup
from msgconsole.cli.typed.times import Since
from msgconsole.operations.looking.failing import find_failures
from msgdb.looking.failures import DeathKind, RetryKind
from msgdb.postgres.binary_rows import datetime_of

_COLUMNS: Final = ("state", "error", "messages", "attempts", "first_at", "last_at", "newest")


def errors(
    group: SubscriberGroup,
    topic: OfTopic = None,
    since: Since = None,
    namespace: Namespace = DEFAULT_NAMESPACE,
    as_json: AsJson = False,
) -> None:
    """Count what a group's messages fail of: errors that differ in numbers only are one (# stands for a number).

    DEAD are its open dead letters, with when they died; RETRYING are messages that wait for another attempt, with when
    they were stored. The newest of each is named, to be looked at. The newest 50,000 of both are looked at.

    Example: msgcenter group errors SG_POINTS --since 2h
    """
    kinds = act(lambda stores: find_failures(stores, namespace, group, topic=topic, since=since))
    records = [*map(_waiting_record, kinds.retrying), *map(_dead_record, kinds.dead)]
    records.sort(key=lambda record: -int(record["messages"]))
    if as_json:
        print_json({"errors": plain(records), "is_cut": kinds.is_cut})
        return
    print_rows(records, _COLUMNS, as_json=False, empty="No errors.", long=["error"], least=["first_at", "attempts"])
    if kinds.is_cut:
        typer.echo("Not all were looked at, or told: there are more.", err=True)


def _dead_record(kind: DeathKind) -> dict[str, Any]:
    return {
        "state": "DEAD",
        "reason": kind.reason,
        "error": kind.error if kind.error is not None else kind.reason,
        "messages": kind.messages,
        "attempts": kind.attempts_max,
        "first_at": datetime_of(kind.first_died_at_us),
        "last_at": datetime_of(kind.last_died_at_us),
        "newest": f"dead letter {kind.newest_id}",
    }


def _waiting_record(kind: RetryKind) -> dict[str, Any]:
    message_id = kind.newest_message_id
    return {
        "state": "RETRYING",
        "reason": None,
        "error": kind.error,
        "messages": kind.messages,
        "attempts": kind.attempts_max,
        "first_at": datetime_of(kind.first_stored_at_us),
        "last_at": datetime_of(kind.last_stored_at_us),
        "newest": None if message_id is None else str(UUID(bytes=message_id)),
    }
