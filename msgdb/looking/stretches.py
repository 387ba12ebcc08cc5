"""Stretches of queues, read for the messages that somebody looks for: bounded in how many are looked at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from psycopg.types.json import Jsonb

from msgbroker.contract.errors import InvalidSettingError
from msgdb.log.found import COLUMNS, FoundMessage
from msgdb.looking.spans import Span
from msgdb.postgres.array_rows import array_rows
from msgdb.postgres.binary_rows import TO_1970, binary_cursor
from msgdb.postgres.connections import Connection

_TEXT_CHARS_MAX: Final = 4_096
CONDITIONS: Final = """
    (%(event_code)s::text IS NULL OR m.event_code = %(event_code)s)
    AND (%(key)s::text IS NULL OR m.key = %(key)s)
    AND (%(headers)s::jsonb IS NULL OR m.headers @> %(headers)s)
"""
"""The conditions of WantedMessages on `message m`."""


def _read(edge: str, direction: str) -> str:
    # By the primary key of each live day, merged, up to the limit of those that are wanted. With each comes when the
    # last message was stored that its queue was looked through to: without one that is wanted, it comes alone.
    return f"""
SELECT w.queue_id, edge.stored_at + {TO_1970}, {COLUMNS}
FROM {array_rows("w", queue_id="bigint", first="bigint", behind="bigint")}
LEFT JOIN LATERAL (
    SELECT one.stored_at FROM message one WHERE one.queue_id = w.queue_id AND one.queue_offset = {edge} LIMIT 1
) edge ON true
LEFT JOIN LATERAL (
    SELECT * FROM message m
    WHERE m.queue_id = w.queue_id AND m.queue_offset >= w.first AND m.queue_offset < w.behind AND {CONDITIONS}
    ORDER BY m.queue_offset {direction} LIMIT %(limit)s
) m ON true
ORDER BY w.queue_id, m.queue_offset {direction}
"""


_READ_ON: Final = _read("w.behind - 1", "")
_READ_BACK: Final = _read("w.first", "DESC")


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedMessages:
    """What a message must have to be looked for; None: whatever it is."""

    event_code: str | None = None
    key: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        said = [("event code", self.event_code), ("key", self.key)]
        said += [("header", text) for pair in self.headers.items() for text in pair]
        for name, text in said:
            if text is not None and ("\0" in text or len(text) > _TEXT_CHARS_MAX):
                raise InvalidSettingError(name, f"must have {_TEXT_CHARS_MAX:,} characters at most, no NUL")

    @property
    def is_any(self) -> bool:
        """Whether every message is meant."""
        return self.event_code is None and self.key is None and not self.headers

    def parameters(self) -> dict[str, Any]:
        """Return what the conditions take."""
        headers = Jsonb(dict(self.headers)) if self.headers else None
        return {"event_code": self.event_code, "key": self.key, "headers": headers}


EVERY_MESSAGE: Final = WantedMessages()


class ReadStretch(NamedTuple):
    """What was found in one stretch."""

    span: Span
    edge_stored_at_us: int | None
    """When the last message was stored that was looked at; None: it is gone, with its day."""
    found: list[FoundMessage]
    """In the order in which it was looked through."""


async def read_stretches(
    conn: Connection, spans: Sequence[Span], wanted: WantedMessages, limit: int, *, newest_first: bool = False
) -> list[ReadStretch]:
    """Look through these stretches, each in that order, and return what is *wanted* of them: *limit* of each at most.

    One that has as many was looked through up to the last that it gives.
    """
    parameters = {
        **wanted.parameters(),
        "queue_id": [span.queue_id for span in spans],
        "first": [span.first for span in spans],
        "behind": [span.end for span in spans],
        "limit": limit,
    }
    cursor = binary_cursor(conn)
    await cursor.execute(_READ_BACK if newest_first else _READ_ON, parameters, prepare=False)
    read = {span.queue_id: ReadStretch(span, None, []) for span in spans}
    for queue_id, edge_us, *row in await cursor.fetchall():
        stretch = read[queue_id] = read[queue_id]._replace(edge_stored_at_us=edge_us)
        if row[0] is not None:
            stretch.found.append(FoundMessage._make(row))
    return [read[span.queue_id] for span in spans]
