"""What `msgcenter instance` and `publisher` share: showing who is connected, and who was to be disconnected."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

import typer

from msgbroker.contract.errors import BrokerUnavailableError
from msgconsole.cli.printing.lengths import length
from msgconsole.operations.brokers.connected import COUNT_MAX
from msgconsole.operations.brokers.disconnecting import Disconnected, PublisherDisconnected
from msgdb.requests import RequestOutcome

Many = Annotated[int, typer.Option("--limit", min=1, max=COUNT_MAX, help="How many at most.")]


def shown_rate(a_second: float) -> str:
    """Return a rate for a table: with a digit behind the point where it is small."""
    return f"{a_second:,.0f}" if a_second >= 10 else f"{a_second:.1f}"


def shown_age(at: datetime, now: datetime) -> str:
    """Return how long ago something was; the clocks of two machines may make it a moment to come."""
    return f"{length(max(0.0, (now - at).total_seconds()))} ago"


def check_taken(done: Sequence[Disconnected | PublisherDisconnected]) -> None:
    """Raise BrokerUnavailableError where a broker has not done in time what was asked of it, and will not."""
    late = sorted({each.broker for each in done if each.outcome is RequestOutcome.EXPIRED})
    if late:
        raise BrokerUnavailableError(f"not done, and it will not be: broker {', '.join(late)} has not taken it in time")
