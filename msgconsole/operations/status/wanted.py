"""Which message, and which group, somebody asks about."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from msgbroker.contract.errors import InvalidSettingError, ThingNotFoundError


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedStatus:
    """Which message is meant: by its id, or by its place. Raises InvalidSettingError where it is both, or neither."""

    namespace: str
    message_id: UUID | None = None
    queue_id: int | None = None
    queue_offset: int | None = None
    group: str | None = None
    """Only with this group."""
    asks_brokers: bool = True
    """Whether brokers are asked for what only their memory has."""

    def __post_init__(self) -> None:
        is_placed = self.queue_id is not None and self.queue_offset is not None
        is_half_placed = (self.queue_id is None) != (self.queue_offset is None)
        if is_half_placed or is_placed == (self.message_id is not None):
            raise InvalidSettingError("message", "must be given by its id, or by its queue and offset, and not by both")

    def not_found(self) -> ThingNotFoundError:
        """Return what says that there is no such message."""
        place = f"queue {self.queue_id} offset {self.queue_offset}"
        named = place if self.message_id is None else str(self.message_id)
        return ThingNotFoundError("message", named, namespace=self.namespace, within="a live day of ")
