"""What the engine needs to see of a message. Bodies and protobuf are none of its business."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, TypeVar


class Routable(Protocol):
    """A stored message, as far as matching and lanes look at it."""

    @property
    def queue_offset(self) -> int:
        """The message's place in its queue."""

    @property
    def stored_at_us(self) -> int:
        """When it was stored: together with queue and offset, its primary key."""

    @property
    def event_code(self) -> str:
        """The second half of its message type."""

    @property
    def headers(self) -> Mapping[str, str]:
        """What HEADER subscriptions select by; may be empty."""

    @property
    def ordering_key(self) -> str:
        """The message's ordering key; empty if it has none."""

    @property
    def stress(self) -> bool:
        """Whether the message is stress traffic."""

    @property
    def target_group(self) -> int | None:
        """The only group that sees it, where it was redriven or replayed."""

    @property
    def size_bytes(self) -> int:
        """What it counts for against a limit of bytes, on its way to an instance."""

    @property
    def held_bytes(self) -> int:
        """What it costs in memory: never less than that."""


MessageT = TypeVar("MessageT", bound=Routable)
