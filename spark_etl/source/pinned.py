"""Bounds that are pinned: the same messages in every action on a DataFrame, though others arrive meanwhile. Pure.

Spark plans a DataFrame without filters once, and one with filters again in every action. Whoever reads twice and wants
the same twice pins the bounds first, and gives them as the option `bounds`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

from msgbroker.contract.errors import InvalidSettingError


@dataclass(frozen=True, slots=True)
class PinnedBounds:
    """A part of the log: of each queue the offsets from the first on, less than the second."""

    history_id: str
    queues: Mapping[int, tuple[int, int]]

    @property
    def text(self) -> str:
        """The bounds as the option has them."""
        queues = {str(queue_id): list(ends) for queue_id, ends in sorted(self.queues.items())}
        return json.dumps({"history": self.history_id, "queues": queues})


def pinned_bounds_of(text: str) -> PinnedBounds:
    """Return the bounds that the option has, or raise InvalidSettingError."""
    try:
        told = json.loads(text)
        queues = {int(queue_id): (int(first), int(end)) for queue_id, (first, end) in told["queues"].items()}
        return PinnedBounds(str(UUID(told["history"])), queues)
    except (ValueError, KeyError, TypeError, AttributeError):
        raise InvalidSettingError("bounds", "is not what pin_bounds() has returned") from None
