"""What `msgcenter instance` and `publisher` share: showing who is connected, and saying what is missing of it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

import typer

from msgconsole.cli.printing.incomplete import tell_incomplete
from msgconsole.cli.printing.output import visible
from msgconsole.operations.brokers.asking import Unanswered
from msgconsole.operations.brokers.connected import COUNT_MAX

Many = Annotated[int, typer.Option("--limit", min=1, max=COUNT_MAX, help="How many at most.")]


def tell_unanswered(unanswered: Sequence[Unanswered]) -> None:
    """Say on standard error that an answer is incomplete: which brokers have not answered, and why."""
    for each in unanswered:
        tell_incomplete(f"broker {each.broker} has not answered: {visible(each.why)}")


def shown_rate(a_second: float) -> str:
    """Return a rate for a table: with a digit behind the point where it is small."""
    return f"{a_second:,.0f}" if a_second >= 10 else f"{a_second:.1f}"


def shown_age(at: datetime, now: datetime) -> str:
    """Return how long ago something was; the clocks of two machines may make it a moment to come."""
    seconds = max(0.0, (now - at).total_seconds())
    if seconds < 120:
        return f"{seconds:.0f} s ago"
    return f"{seconds / 60:.0f} min ago" if seconds < 7_200 else f"{seconds / 3_600:.0f} h ago"
