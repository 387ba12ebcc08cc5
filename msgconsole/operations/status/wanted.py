"""Which message, and which groups, somebody asks about."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

from confdb.past import PastGroup
from msgbroker.contract.errors import GroupNotFoundError, ThingNotFoundError


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
        named = f"queue {self.queue_id} offset {self.queue_offset}" if self.message_id is None else self.message_id
        return ThingNotFoundError("message", f"{named} (no live day of namespace {self.namespace} has it)")


def groups_of(groups: Mapping[str, PastGroup], wanted: WantedStatus) -> list[PastGroup]:
    """Return the groups that are asked about, by name. Raises GroupNotFoundError."""
    found = [group for _, group in sorted(groups.items()) if wanted.group in {None, group.name}]
    if wanted.group is not None and not found:
        raise GroupNotFoundError(wanted.namespace, wanted.group)
    return found
