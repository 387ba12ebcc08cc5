"""How much one turn of the event loop may hand out."""

from __future__ import annotations

from dataclasses import dataclass, field

from msgbroker.server.deliver.expressions.turns import TimeSlice


@dataclass(slots=True)
class PumpBudget:
    """What a group may hand out in its turn: it takes from it as it goes, and ends where nothing is left."""

    messages: int = 4_000
    """How many messages may be handed out, or decided."""
    time_slice: TimeSlice = field(default_factory=TimeSlice)
    """How long expressions may be evaluated in it."""
