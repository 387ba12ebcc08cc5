"""Which messages of the log somebody means who has them replayed: by what they are, and by what a group asked for.

Not what a lane does: no start of a subscription counts, and no later change of the configuration.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from confdb.routes import ExpressionFailedError, HeaderPredicate
from msgbroker.contract.names import ANY_EVENT_CODE
from msgdb.jobs.specs import ReplaySpec


class Selectable(Protocol):
    """A stored message, as far as it is selected by."""

    @property
    def queue_id(self) -> int:
        """The queue that it is in."""

    @property
    def queue_offset(self) -> int:
        """Its place there."""

    @property
    def event_code(self) -> str:
        """The second half of its message type."""

    @property
    def key(self) -> str | None:
        """What it is about, if its publisher said."""

    @property
    def headers(self) -> dict[str, str] | None:
        """Its headers, if it has any."""

    @property
    def target_group(self) -> int | None:
        """The only group that it is for, where it was stored once more itself."""


class Wish(NamedTuple):
    """What one subscription asks for."""

    event_code: str
    """`*`: every one."""
    predicate: HeaderPredicate | None
    """What its headers must satisfy; None: nothing."""


class Fulfilled(NamedTuple):
    """What a subscription was given already, from an offset of each queue on."""

    wish: Wish
    start_offsets: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Selection:
    """Conditions that a message meets, or is left out; None: whatever it is."""

    event_code: str | None = None
    key: str | None = None
    headers: Mapping[str, str] | None = None
    wishes: Sequence[Wish] | None = None
    """One of these at least wants it."""
    unless: Sequence[Fulfilled] = ()
    """None of these was given it."""
    copies_for: int | None = None
    """Copies that were stored once more for this group are meant as well, whatever they are; None: no copies are."""

    def takes(self, message: Selectable) -> bool:
        """Return whether the message is meant."""
        if message.target_group is not None:
            return message.target_group == self.copies_for
        if self.event_code is not None and message.event_code != self.event_code:
            return False
        if self.key is not None and message.key != self.key:
            return False
        headers = message.headers or {}
        if self.headers and not self.headers.items() <= headers.items():
            return False
        if self.wishes is not None and not any(_wants(wish, message.event_code, headers) for wish in self.wishes):
            return False
        return not any(
            start_offsets.get(message.queue_id, 0) <= message.queue_offset and _wants(wish, message.event_code, headers)
            for wish, start_offsets in self.unless
        )


def _wants(wish: Wish, event_code: str, headers: dict[str, str]) -> bool:
    if wish.event_code not in {event_code, ANY_EVENT_CODE}:
        return False
    try:
        return wish.predicate is None or wish.predicate(headers) is True
    except ExpressionFailedError:
        # No match, as it is for a lane.
        return False


def selection_of(spec: ReplaySpec, compile_expression: Callable[[str], HeaderPredicate]) -> Selection:
    """Return what a replay selects by. Raises what *compile_expression* raises."""

    def wish(event_code: str, expression: str | None) -> Wish:
        return Wish(event_code, None if expression is None else compile_expression(expression))

    wishes = None if spec.asked is None else tuple(wish(*asked) for asked in spec.asked)
    unless = tuple(Fulfilled(wish(code, expression), starts) for code, expression, starts in spec.unless)
    return Selection(spec.event_code, spec.key, spec.headers, wishes, unless)
