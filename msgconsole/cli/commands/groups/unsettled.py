"""`msgcenter group unsettled`: what a group has begun and not settled, the oldest first, and who has it."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Final

import typer

from msgconsole.cli.carrying_out.acting import act
from msgconsole.cli.printing.incomplete import tell_cut, tell_incomplete
from msgconsole.cli.printing.lengths import length
from msgconsole.cli.printing.output import (
    LONG_CELLS_MAX,
    on_one_line,
    plain,
    print_json,
    print_line,
    print_rows,
    visible,
)
from msgconsole.cli.printing.table_layout import cut
from msgconsole.cli.typed.options import DEFAULT_NAMESPACE, AsJson, Limit, Namespace, OfTopic, SubscriberGroup
from msgconsole.operations.status.answers import State
from msgconsole.operations.unsettled.answers import NextRow, UnsettledReport, UnsettledRow, WantedUnsettled
from msgconsole.operations.unsettled.listing import list_unsettled

_COLUMNS: Final = ("age", "state", "detail")
_NEXT_COLUMNS: Final = ("age", "queue", "detail")


class OfState(StrEnum):
    """The states that an unsettled message may be in, as they are shown and typed."""

    IN_FLIGHT = "IN_FLIGHT"
    RETRYING = "RETRYING"
    SHELVED = "SHELVED"
    PENDING = "PENDING"


def unsettled(
    group: SubscriberGroup,
    topic: OfTopic = None,
    queue: Annotated[int | None, typer.Option("--queue", help="Only of this queue, by its id.")] = None,
    state: Annotated[
        OfState | None, typer.Option("--state", case_sensitive=False, help="Only what is in this state.")
    ] = None,
    instance: Annotated[
        str | None, typer.Option("--instance", metavar="ID", help="Only what this instance has.")
    ] = None,
    limit: Limit = 50,
    namespace: Namespace = DEFAULT_NAMESPACE,
    as_json: AsJson = False,
) -> None:
    """List what a group has begun and not settled, the oldest first, and who has it: what blocks it.

    The states are those of `msgcenter message status`: IN_FLIGHT (an instance has it: which, at which broker, since
    when, until when), RETRYING (it waits for another attempt, until when, after which error), SHELVED (it waits for
    paused subscriptions), and with --state alone PENDING (it is read, and waits for an instance that has room), which
    may be many. Where nothing of a queue is in flight, it is told what comes next there. Brokers are asked for what
    only their memory has: one that does not answer is named, and of its queues only what is written down is told. Of
    what is behind, and not read yet, `lag` tells.

    Example: msgcenter group unsettled SG_POINTS --state IN_FLIGHT
    """
    wanted = WantedUnsettled(
        namespace=namespace,
        group=group,
        topic=topic,
        queue_id=queue,
        state=None if state is None else State[state.name],
        instance_id=instance,
        limit=limit,
    )
    report = act(lambda stores: list_unsettled(stores, wanted))
    if as_json:
        print_json(plain(report) | {"is_complete": report.is_complete})
    else:
        _tell(report, wanted)
    if report.has_more or report.has_more_next:
        tell_cut(limit)
    for why in report.why_not:
        tell_incomplete(why)


def _tell(report: UnsettledReport, wanted: WantedUnsettled) -> None:
    nothing = "Nothing that is asked for is begun and not settled."
    print_rows(map(_shown, report.messages), _COLUMNS, as_json=False, empty=nothing)
    if report.ready and wanted.is_all:
        print_line(
            f"\n{report.ready:,} wait for nothing but an instance that has room: those that were not tried yet are"
            " listed by --state PENDING."
        )
    if report.next:
        print_line("\nNothing is in flight on these queues. What comes next there:")
        print_rows(map(_shown_next, report.next), _NEXT_COLUMNS, as_json=False, empty="")
    if report.paused:
        print_line(f"\nThe group is paused: msgcenter group update {report.group} --resume{_of_namespace(report)}")
    if report.messages or report.next:
        print_line(f"\n{_what_to_do(report)}")


def _shown(row: UnsettledRow) -> dict[str, Any]:
    """Return a message as the table has it: what it is, and then where it is."""
    error = "" if row.last_error is None else f"; last error: {cut(visible(row.last_error), LONG_CELLS_MAX)}"
    held = "" if row.held_seconds is None else f"held for {length(row.held_seconds)}: "
    return {
        "age": length(row.age_seconds),
        "state": row.state,
        "detail": f"{_named(row)}, queue {row.queue_id} offset {row.queue_offset}: {held}{row.detail}{error}",
    }


def _shown_next(row: NextRow) -> dict[str, Any]:
    return {
        "age": length(row.age_seconds),
        "queue": row.queue_id,
        "detail": f"{_named(row)}, offset {row.queue_offset}: {row.detail}",
    }


def _named(row: UnsettledRow | NextRow) -> str:
    name = "a message that is gone" if row.message_id is None else str(row.message_id)
    of_type = row.topic if row.event_code is None else f"{row.topic}/{row.event_code}"
    return f"{name} {of_type}" + ("" if row.key is None else f", key {on_one_line(row.key)}")


def _what_to_do(report: UnsettledReport) -> str:
    """Return what to do with one of them, as it is typed."""
    group, of_namespace = report.group, _of_namespace(report)
    lines = [
        f"msgcenter message status ID --group {group}{of_namespace}",
        f"msgcenter message retry-now ID --group {group} --reason ...{of_namespace}",
        f"msgcenter message skip ID --group {group} --reason ...{of_namespace}",
    ]
    if any(row.state is State.IN_FLIGHT for row in report.messages):
        lines.append(f"msgcenter instance disconnect INSTANCE --group {group} --reason ...{of_namespace}")
    return "\n".join(["What to do with one of them:", *(f"  {line}" for line in lines)])


def _of_namespace(report: UnsettledReport) -> str:
    return "" if report.namespace == DEFAULT_NAMESPACE else f" -n {report.namespace}"
