"""A message that was found, without its body, and its place in the order of the log."""

from __future__ import annotations

from typing import Final, NamedTuple
from uuid import UUID

from msgdb.postgres.binary_rows import TO_1970


class Position(NamedTuple):
    """A place in the order of all queues: by time, then by queue. Within a queue it is the order of the offsets."""

    stored_at_us: int
    queue_id: int
    queue_offset: int


class FoundMessage(NamedTuple):
    """A message with all that is known of it but its body."""

    queue_id: int
    queue_offset: int
    stored_at_us: int
    message_id: bytes
    namespace: str
    topic: str
    event_code: str
    key: str | None
    ordering_key: str | None
    headers: dict[str, str] | None
    body_bytes: int
    born_at_us: int
    born_host: str | None
    publisher_group: str | None
    stress: bool
    target_group: int | None
    redrives: int

    @property
    def id(self) -> UUID:
        """Return its id, for people."""
        return UUID(bytes=self.message_id)

    @property
    def position(self) -> Position:
        """Return where it is: its primary key, too."""
        return Position(self.stored_at_us, self.queue_id, self.queue_offset)


# The size of a body is known without reading what lies outside of the row.
COLUMNS: Final = f"""
m.queue_id, m.queue_offset, m.stored_at + {TO_1970}, m.message_id, m.namespace, m.topic, m.event_code, m.key,
m.ordering_key, m.headers, octet_length(m.body), m.born_at + {TO_1970}, m.born_host, m.publisher_group, m.stress,
m.target_group, m.redrives
"""
"""What is selected of `message m` for a FoundMessage, by a `binary_cursor`."""
