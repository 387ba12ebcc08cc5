"""Rows of msgdb, made into what the broker hands out.

The publisher's message is encoded here by hand, in the form in which protobuf would write it (the tests hold the two
against each other): a group that catches up reads nothing else, and a protobuf object per row costs twice as much.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import groupby
from operator import attrgetter
from typing import Final, Protocol

from confdb.routes import Headers
from msgbroker.contract.varint import varint
from msgbroker.engine.tracing import ALWAYS_TRACED, draw_of
from msgbroker.server.log.encoding import delivery_suffix, stamp, targeted_suffix
from msgbroker.server.log.message import NO_HEADERS, LogMessage
from msgbroker.server.log.message_fields import (
    BODY,
    BORN_AT_US,
    ENTRY_NAME,
    ENTRY_VALUE,
    HEADERS,
    KEY,
    ORDERING_KEY,
    text_field,
    type_fields,
)
from msgdb.log.reads import MessageRow

_STORED_AT: Final = attrgetter("stored_at_us")

_type_fields: Final = lru_cache(4_096)(type_fields)


def messages_of_rows(rows: Sequence[MessageRow]) -> list[LogMessage]:
    """Return the messages of *rows*, as they were when they were committed."""
    messages = [_message_of(row) for row in rows]
    at = 0
    # One commit's rows lie together.
    for stored_at_us, same in groupby(rows, _STORED_AT):
        message_ids = [row.message_id for row in same]
        stamp(messages[at : at + len(message_ids)], message_ids, stored_at_us)
        at += len(message_ids)
    return messages


class StoredContent(Protocol):
    """What a publisher said, as a row has it."""

    @property
    def topic(self) -> str:
        """The first half of its message type."""

    @property
    def event_code(self) -> str:
        """The second half of it."""

    @property
    def key(self) -> str | None:
        """What it is about, if the publisher said."""

    @property
    def ordering_key(self) -> str | None:
        """What its queue was chosen by, where that is not the key."""

    @property
    def headers(self) -> dict[str, str] | None:
        """Its headers, if it has any."""

    @property
    def body(self) -> bytes:
        """Its body."""

    @property
    def born_at_us(self) -> int:
        """When the publisher made it."""


def content_of(stored: StoredContent) -> bytes:
    """Return what a publisher said, encoded as it was sent."""
    key, ordering_key, headers, body = stored.key, stored.ordering_key, stored.headers, stored.body
    return b"".join(
        (
            _type_fields(stored.topic, stored.event_code),
            text_field(KEY, key) if key else b"",
            text_field(ORDERING_KEY, ordering_key) if ordering_key else b"",
            _header_fields(headers) if headers else b"",
            BODY + varint(len(body)) if body else b"",
            body,
            BORN_AT_US,
            varint(stored.born_at_us),
        )
    )


def _message_of(row: MessageRow) -> LogMessage:
    headers = row.headers
    suffix = _suffix(row.publisher_group, row.born_host, row.stress)
    message = LogMessage(
        None,
        row.event_code,
        Headers(headers) if headers else NO_HEADERS,
        row.ordering_key or row.key or "",
        content_of(row),
        suffix if row.target_group is None else targeted_suffix(suffix, row.redrives),
        b"",
        b"",
        stress=row.stress,
    )
    message.queue_id = row.queue_id
    message.queue_offset = row.queue_offset
    message.target_group = row.target_group
    message.trace_draw = draw_of(row.message_id) if row.target_group is None else ALWAYS_TRACED
    return message


@lru_cache(4_096)
def _suffix(publisher_group: str | None, born_host: str | None, stress: bool) -> bytes:  # noqa: FBT001 - a key of the cache
    return delivery_suffix(publisher_group or "", born_host or "", stress=stress)


def _header_fields(headers: dict[str, str]) -> bytes:
    fields: list[bytes] = []
    for name, value in headers.items():
        entry = text_field(ENTRY_NAME, name) + text_field(ENTRY_VALUE, value)
        fields += (HEADERS, varint(len(entry)), entry)
    return b"".join(fields)
