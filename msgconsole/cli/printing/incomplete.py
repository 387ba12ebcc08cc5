"""Say on standard error that what was printed is not all there is."""

from __future__ import annotations

from collections.abc import Sequence

import typer

from msgconsole.cli.printing.output import visible
from msgconsole.operations.brokers.asking import Unanswered


def tell_incomplete(what: str) -> None:
    """Say what an answer lacks: *what* is a sentence without its end."""
    typer.echo(f"Incomplete: {what}.", err=True)


def tell_unanswered(unanswered: Sequence[Unanswered]) -> None:
    """Say that an answer is incomplete: which brokers have not answered, and why."""
    for each in unanswered:
        tell_incomplete(f"broker {each.broker} has not answered: {visible(each.why)}")


def tell_cut(count: int) -> None:
    """Say that there is more than the *count* that was asked for."""
    typer.echo(f"Only the first {count}: there are more (--limit).", err=True)
