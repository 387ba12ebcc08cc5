"""Bodies of messages that were found, by their places."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from msgdb.log.found import FoundMessage, Position
from msgdb.postgres.array_rows import array_rows
from msgdb.postgres.binary_rows import TO_1970, binary_cursor, datetime_of
from msgdb.postgres.connections import Connection

READ_BYTES_MAX: Final = 8 * 1024 * 1024
"""So many bytes of bodies are read at once, or a single body."""

# The whole primary key is given: one probe of one partition for each message.
_READ: Final = f"""
SELECT m.stored_at + {TO_1970}, m.queue_id, m.queue_offset, m.body
FROM {array_rows("wanted", queue_id="bigint", queue_offset="bigint", stored_at="timestamptz")}
JOIN message m ON m.queue_id = wanted.queue_id AND m.queue_offset = wanted.queue_offset
    AND m.stored_at = wanted.stored_at
"""


async def read_bodies(conn: Connection, positions: Sequence[Position]) -> Mapping[Position, bytes]:
    """Return the bodies of these messages; of those whose day was dropped there is none."""
    cursor = binary_cursor(conn)
    parameters = {
        "queue_id": [position.queue_id for position in positions],
        "queue_offset": [position.queue_offset for position in positions],
        "stored_at": [datetime_of(position.stored_at_us) for position in positions],
    }
    await cursor.execute(_READ, parameters, prepare=False)
    return {Position._make(row[:3]): row[3] for row in await cursor.fetchall()}


def read_together(found: Iterable[FoundMessage], bytes_max: int = READ_BYTES_MAX) -> Iterator[list[FoundMessage]]:
    """Return the messages in their order, in lists whose bodies can be read at once."""
    together: list[FoundMessage] = []
    size_bytes = 0
    for message in found:
        if together and size_bytes + message.body_bytes > bytes_max:
            yield together
            together, size_bytes = [], 0
        together.append(message)
        size_bytes += message.body_bytes
    if together:
        yield together
