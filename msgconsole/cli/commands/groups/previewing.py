"""What the dry runs of changes of a subscription print."""

from __future__ import annotations

from collections.abc import Iterable

import typer

from msgconsole.cli.printing.foretold import (
    NO_CHANGE,
    NOTHING_DONE,
    tell_activity,
    tell_changes,
    tell_foretold,
)
from msgconsole.cli.printing.output import print_json, print_line
from msgconsole.operations.configuration.subscription_preview import SubscriptionPreview
from msgconsole.operations.counting import Counted


def tell_subscription(preview: SubscriptionPreview, type_name: str, *, as_json: bool) -> None:
    """Print what a subscription that is made or changed would mean."""
    if as_json:
        print_json(preview)
        return
    if not preview.changes:
        print_line(NO_CHANGE)
        return
    is_new = preview.begins_at is not None
    if not is_new:
        tell_changes(preview.changes)
    tell_foretold(preview.foretold, type_name, is_all=preview.is_all)
    if preview.cost_steps is not None:
        of_max = f"{preview.cost_steps:,} of {preview.cost_steps_max:,} steps"
        print_line(f"The expression costs up to {of_max} on a message.")
    if preview.stored is not None:
        _tell_stored(preview.stored, by_job=preview.by_job)
    if preview.activity is not None:
        tell_activity(preview.activity)
    if preview.group_is_paused:
        print_line("The group is paused: it is handed nothing until it is resumed.")
    if is_new:
        print_line(f"{_begins(preview)} {NOTHING_DONE}")
    else:
        print_line(f"From which offsets on it holds is told once it is done. {NOTHING_DONE}")
    tell_warnings(preview.warnings)


def _begins(preview: SubscriptionPreview) -> str:
    if preview.from_beginning and not preview.by_job:
        return "It would begin with what is stored, and go on with what is published."
    also = "; a job would deliver what is stored" if preview.by_job else ""
    return f"It would begin with what is published from then on{also}."


def tell_warnings(warnings: Iterable[str]) -> None:
    """Say on standard error where an expression may not mean what it says."""
    for warning in warnings:
        typer.echo(f"Warning: {warning}.", err=True)


def _tell_stored(stored: Counted, *, by_job: bool) -> None:
    about = "" if stored.is_exact else "about "
    denied = f" {about}{stored.denied:,} of them are stress traffic that it may not see." if stored.denied else ""
    by_whom = "by a job" if by_job else "first of all"
    given = f"it would be given {about}{stored.selected:,}, {by_whom}"
    print_line(f"Of {stored.looked_at:,} messages that are stored {given}.{denied}")
