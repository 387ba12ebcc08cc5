"""What a dead letter has of its message: it is copied inside the database, by whoever gives the message up."""

from __future__ import annotations

from typing import Final

_COPIED: Final = (
    *("queue_id", "queue_offset", "stored_at", "message_id", "namespace", "topic", "event_code"),
    *("key", "ordering_key", "headers", "body", "born_at", "born_host", "publisher_group", "stress", "redrives"),
)
COPIED_COLUMNS: Final = ", ".join(_COPIED)
"""The columns that are copied."""
COPIED_FROM_MESSAGE: Final = ", ".join(f"m.{column}" for column in _COPIED)
"""The same, of `message m`."""
