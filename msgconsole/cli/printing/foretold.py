"""What dry runs of changes of the configuration print: what would be different, and what that does to messages."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from msgconsole.cli.printing.incomplete import tell_incomplete, tell_unanswered
from msgconsole.cli.printing.output import print_line, shown, visible
from msgconsole.operations.configuration.activity import Activity
from msgconsole.operations.configuration.foretelling import Foretold
from msgconsole.operations.configuration.rehearsing import FieldChange

NOTHING_DONE = "Nothing was changed."
NO_CHANGE = f"All of it is so already: nothing would change. {NOTHING_DONE}"
_VALUE_CHARS_MAX = 200


def tell_changes(changes: Sequence[FieldChange]) -> None:
    """Print what would be different of things that are there."""
    for change in changes:
        print_line(f"{change.field.replace('_', ' ')}: {_value(change.before)} -> {_value(change.after)}")


def tell_foretold(foretold: Foretold, type_name: str, *, is_all: bool) -> None:
    """Print what a group would get of messages of a type."""
    looked_at = span_said(foretold.looked_at, foretold.oldest_at, foretold.newest_at, is_all=is_all)
    if not foretold.looked_at:
        _tell_none(foretold, type_name, is_all=is_all)
    else:
        print_line(
            f"Of {looked_at} of {type_name} the group gets {foretold.before:,} now, and would get {foretold.after:,}: "
            f"{foretold.both:,} as now, {foretold.newly:,} newly, {foretold.no_longer:,} no longer."
        )
    for number, said in (
        (foretold.waits, "of those it would get wait for paused subscriptions"),
        (foretold.withheld, "more match, and are stress traffic that the group may not see"),
        (foretold.copies, "more were redriven or replayed to single groups: they are not counted"),
    ):
        if number:
            print_line(f"{number:,} {said}.")
    _tell_failures(foretold)
    for name, ids in (("Newly", foretold.newly_examples), ("No longer", foretold.no_longer_examples)):
        if ids:
            print_line(f"{name}, for example: {' '.join(map(str, ids))}")
    if foretold.is_cut:
        tell_incomplete("evaluating took so long that the oldest of them were not looked at")


def _tell_none(foretold: Foretold, type_name: str, *, is_all: bool) -> None:
    """Say why nothing can be foretold: that none is stored is said only where all of the log was looked through."""
    if foretold.copies:
        why = f"All messages of {type_name} that were looked at are copies for single groups"
    elif is_all:
        why = f"No message of {type_name} is stored"
    else:
        why = f"Among the newest messages there is none of {type_name}"
    print_line(f"{why}: nothing can be foretold.")
    if not is_all:
        tell_incomplete(f"not all of the log was looked through for {type_name}")


def span_said(looked_at: int, oldest_at: datetime | None, newest_at: datetime | None, *, is_all: bool) -> str:
    """Say which messages were looked at."""
    which = f"all {looked_at:,} messages" if is_all else f"the newest {looked_at:,} messages"
    if oldest_at is None or newest_at is None:
        return which
    return f"{which} ({oldest_at:%Y-%m-%d %H:%M:%S} to {newest_at:%Y-%m-%d %H:%M:%S})"


def tell_activity(activity: Activity) -> None:
    """Print what a group is at."""
    print_line(
        f"Connected instances: {activity.instances:,}; they hold {activity.in_flight:,} messages. "
        f"Behind by {activity.behind:,}; {activity.waiting:,} wait for another attempt."
    )
    if activity.has_more_instances:
        tell_incomplete(f"more than {activity.instances:,} instances are connected, and the others are not counted")
    tell_unanswered(activity.unanswered)


def _tell_failures(foretold: Foretold) -> None:
    if not foretold.failed and not foretold.failed_before:
        return
    by_header = ", ".join(f"{visible(name)} {count:,}" for name, count in foretold.failed_headers.items())
    of_what = f" (of what is missing: {by_header})" if by_header else ""
    print_line(
        f"The expression would fail on {foretold.failed:,}{of_what}, which is no match; now it does on "
        f"{foretold.failed_before:,}."
    )


def _value(value: Any) -> str:
    text = visible(shown(value))
    return text if len(text) <= _VALUE_CHARS_MAX else f"{text[:_VALUE_CHARS_MAX]}..."
