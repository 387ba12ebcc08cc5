"""An answer to whoever looks for messages: what was found, whether that is all, and how it goes on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Self

from msgbroker.contract.errors import InvalidSettingError
from msgdb.log.found import FoundMessage, Position

PAGE_MAX: Final = 1_000
_BOUND: Final = 2**63


@dataclass(frozen=True, slots=True)
class PageToken:
    """Where an answer ended: the next one goes on behind it."""

    position: Position

    def __str__(self) -> str:
        """Return it as people are given it."""
        return "-".join(map(str, self.position))

    @classmethod
    def of_text(cls, text: str) -> Self:
        """Return what people give back. Raises InvalidSettingError."""
        parts = text.strip().split("-")
        # Digits of other scripts are numbers for Python, and too long ones for no database.
        if len(parts) != len(Position._fields) or not all(part.isascii() and part.isdigit() for part in parts):
            raise InvalidSettingError("after", f"is what an answer says how to go on with, not {text[:80]!r}")
        position = Position._make(int(part[:20]) for part in parts)
        if max(position) >= _BOUND or position.stored_at_us >= _BOUND // 40:
            raise InvalidSettingError("after", f"is what an answer says how to go on with, not {text[:80]!r}")
        return cls(position)


@dataclass(frozen=True, slots=True)
class Answer:
    """What was found."""

    found: list[FoundMessage]
    gone: tuple[str, ...] = ()
    """What is not in the store any more, of what was asked for."""
    more: str | None = None
    """Why there may be more in the store; None: there is no more."""
    after: PageToken | None = None
    """How the next answer goes on; None: there is nothing to go on with."""
    looked_at: int | None = None
    """How many messages of the log were looked at, where it was looked through."""
    group_names: Mapping[int, str] = field(default_factory=dict)
    """Of the groups for which some of it was stored once more, as far as they are registered."""

    @property
    def why_not(self) -> tuple[str, ...]:
        """Why that may not be all of what was asked for."""
        return self.gone if self.more is None else (self.more, *self.gone)

    @property
    def is_complete(self) -> bool:
        """Whether it is all."""
        return not self.why_not
