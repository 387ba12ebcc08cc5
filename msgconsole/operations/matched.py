"""A message that was found, as far as a group's matcher looks at it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from msgdb.log.found import FoundMessage
from msgdb.log.heads import MessageHead


class Matched(NamedTuple):
    """What a matcher needs of a message."""

    queue_offset: int
    stored_at_us: int
    event_code: str
    headers: Mapping[str, str]
    ordering_key: str
    stress: bool
    target_group: int | None
    size_bytes: int

    @property
    def held_bytes(self) -> int:
        """What it would cost in memory: nobody holds it."""
        return self.size_bytes

    @classmethod
    def of(cls, message: FoundMessage | MessageHead) -> Matched:
        """Return it of a message that was found."""
        return cls(
            queue_offset=message.queue_offset,
            stored_at_us=message.stored_at_us,
            event_code=message.event_code,
            headers=message.headers or {},
            # Nothing is decided by it.
            ordering_key="",
            stress=message.stress,
            target_group=message.target_group,
            size_bytes=message.body_bytes,
        )
