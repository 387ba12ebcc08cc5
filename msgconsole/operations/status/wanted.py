"""Which message, and which group, somebody asks about."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from msgbroker.contract.errors import ThingNotFoundError


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedStatus:
    """Which message is meant: by its id, or by its place."""

    namespace: str
    message_id: UUID | None = None
    queue_id: int | None = None
    queue_offset: int | None = None
    group: str | None = None
    """Only with this group."""
    asks_brokers: bool = True
    """Whether brokers are asked for what only their memory has."""

    def not_found(self) -> ThingNotFoundError:
        """Return what says that there is no such message."""
        place = f"queue {self.queue_id} offset {self.queue_offset}"
        named = place if self.message_id is None else str(self.message_id)
        return ThingNotFoundError("message", named, namespace=self.namespace, within="a live day of ")
