"""`msgcenter message status`: what became of one message with each group, and why."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Final

import typer

from msgconsole.cli.carrying_out.acting import act
from msgconsole.cli.printing.incomplete import tell_incomplete, tell_unanswered
from msgconsole.cli.printing.output import on_one_line, plain, print_json, print_line, print_rows
from msgconsole.cli.typed.one_message import AtOffset, InQueue, MessageId, check_named_once
from msgconsole.cli.typed.options import DEFAULT_NAMESPACE, AsJson, Namespace, OfGroup
from msgconsole.operations.status.answers import Deleted, GroupStatus, MessageStatus, PlaceStatus, Why
from msgconsole.operations.status.message_status import find_status
from msgconsole.operations.status.wanted import WantedStatus

_COLUMNS: Final = ("group", "status", "by", "detail")


def status(
    message_id: MessageId = None,
    queue: InQueue = None,
    offset: AtOffset = None,
    group: OfGroup = None,
    ask: Annotated[
        bool, typer.Option("--ask/--no-ask", help="Ask brokers for what only their memory has: who has it, until when.")
    ] = True,
    namespace: Namespace = DEFAULT_NAMESPACE,
    as_json: AsJson = False,
) -> None:
    """Tell what became of a message with each group of its namespace: delivered, waiting, given up, or not, and why.

    `by` says what that is told by: ROWS of the message store, a BROKER's word, or the configuration of THEN, of LATER
    or of NOW. No row tells by which configuration a lane read a message: where a change may have come in between, what
    may be so instead stands below, after "or", with what would have to be so. A message that was redriven or replayed
    lies in several places, and is told of each. A broker that does not answer is named. A group that was deleted since
    has its id behind its name: there may be several of one name.

    Example: msgcenter message status --queue 1 --offset 0
    """
    check_named_once(message_id, queue, offset)
    wanted = WantedStatus(
        namespace=namespace,
        message_id=message_id,
        queue_id=queue,
        queue_offset=offset,
        group=group,
        asks_brokers=ask,
    )
    found = act(lambda stores: find_status(stores, wanted))
    if as_json:
        print_json(_record(found))
    else:
        _tell(found)
    if found.has_more_places:
        tell_incomplete(f"only {len(found.places)} places of the message are told of, the first and the newest")
    if found.has_more_groups:
        tell_incomplete("there were more changes than are looked at; groups deleted long ago are missing")
    tell_unanswered(found.unanswered)


def _record(found: MessageStatus) -> dict[str, Any]:
    """Return all of it, with what follows from it for programs."""
    record: dict[str, Any] = plain(found)
    for place, told in zip(record["places"], found.places, strict=True):
        for group, status_of in zip(place["groups"], told.groups, strict=True):
            group["is_certain"] = status_of.is_certain
    return record | {"is_complete": found.is_complete}


def _tell(found: MessageStatus) -> None:
    name = "a message that is gone" if found.message_id is None else str(found.message_id)
    of_type = found.topic if found.event_code is None else f"{found.topic}/{found.event_code}"
    stress = ", a stress message" if found.stress else ""
    key = "" if found.key is None else f", key {on_one_line(found.key)}"
    print_line(f"{name}, {of_type}{key}{stress}")
    for place in found.places:
        print_line(f"\n{_place(place)}")
        rows = [row for group in place.groups for row in _rows(group)]
        print_rows(rows, _COLUMNS, as_json=False, empty="No subscriber groups.")


def _place(place: PlaceStatus) -> str:
    parts = [f"Queue {place.queue_id}, offset {place.queue_offset}"]
    if place.stored_at is not None:
        parts.append(f"stored at {place.stored_at:%Y-%m-%d %H:%M:%S} UTC")
    if place.target_group is not None:
        parts.append("stored again for one group alone")
    if place.redrives:
        parts.append(f"redriven {place.redrives} time{'s' if place.redrives != 1 else ''}")
    return ", ".join(parts)


def _rows(group: GroupStatus) -> Iterator[dict[str, str]]:
    name = group.group if group.deleted is None else f"{group.group} #{group.group_id}"
    yield {"group": name, "status": group.state.value, "by": group.basis.value, "detail": _detail(group)}
    for other in group.others:
        detail = f"{_reason(other.why)}{other.detail}; {other.when}"
        yield {"group": "", "status": f"or {other.state.value}", "by": "", "detail": detail}


def _reason(why: Why | None) -> str:
    return "" if why is None else f"{why.value}: "


def _detail(group: GroupStatus) -> str:
    act = "" if group.reset_act_id is None else f" (act {group.reset_act_id})"
    error = "" if group.last_error is None else f"; last error: {group.last_error}"
    deleted = "" if group.deleted is None else f"{_said(group.deleted)}; "
    return f"{_reason(group.why)}{deleted}{group.detail}{act}{error}"


def _said(deleted: Deleted) -> str:
    asked = ", ".join(deleted.subscriptions) or "nothing of the topic"
    why = f" ({deleted.reason})" if deleted.reason else ""
    return f"deleted at {deleted.at:%Y-%m-%d %H:%M:%S} by {deleted.by}{why}, subscribed to {asked} then"
