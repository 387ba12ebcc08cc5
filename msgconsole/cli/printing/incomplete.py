"""Say on standard error that what was printed is not all there is."""

from __future__ import annotations

from collections.abc import Sequence

import typer

from msgconsole.cli.printing.output import visible
from msgconsole.operations.brokers.asking import Unanswered


def tell_incomplete(what: str) -> None:
    """Say what an answer lacks: *what* is a sentence without its end."""
    typer.echo(f"Incomplete: {visible(what)}.", err=True)


def tell_why_not(why_not: Sequence[str]) -> None:
    """Say why what was found may not be all: each is a sentence without its end."""
    for why in why_not:
        tell_incomplete(why)


def tell_not_all_deleted() -> None:
    """Say that figures may lack what was counted for topics and groups that were deleted since."""
    tell_incomplete(
        "more topics and groups were deleted since than are looked at; what was counted for the first of them may be"
        " missing, or is told by its id alone"
    )


def tell_unanswered(unanswered: Sequence[Unanswered]) -> None:
    """Say that an answer is incomplete: which brokers have not answered, and why."""
    for each in unanswered:
        tell_incomplete(f"broker {each.broker} has not answered: {each.why}")


def tell_cut(count: int) -> None:
    """Say that there is more than the *count* that was asked for."""
    typer.echo(f"Only the first {count}: there are more (--limit).", err=True)


def tell_more(rows: Sequence[object], limit: int, go_on: str) -> None:
    """Say on standard error that there may be more than *limit*, where there are so many, and how to *go_on*."""
    if len(rows) >= limit:
        typer.echo(f"There may be more: {go_on}.", err=True)
