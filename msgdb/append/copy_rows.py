"""The binary COPY format of `message` rows.

A row is built of three pieces, so that what does not depend on the commit is packed once, when the message arrives, and
its body is copied once: `row_middle` then, `row_head` (queue, offset, time, id) inside the transaction, and the body
wherever it lies.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

# What the commit decides comes first, then what is the same for all messages of a publisher and type, then the rest.
COLUMNS: Final = (
    "queue_id", "queue_offset", "stored_at", "message_id",
    "namespace", "topic", "event_code", "born_host", "publisher_group",
    "key", "ordering_key", "headers", "born_at", "stress", "target_group", "redrives", "body",
)  # fmt: skip

SIGNATURE: Final = b"PGCOPY\n\xff\r\n\x00" + struct.pack(">ii", 0, 0)
TRAILER: Final = struct.pack(">h", -1)

POSTGRES_EPOCH_US: Final = 946_684_800_000_000
"""2000-01-01 UTC, from which PostgreSQL counts, in microseconds since 1970."""

_HEAD: Final = struct.Struct(">hiqiqiqi16s")
_LENGTH: Final = struct.Struct(">i")
# born_at, stress, target_group (NULL), redrives (0), and the body's length.
_REST: Final = struct.Struct(">iqi?iihi")
_TARGETED_REST: Final = struct.Struct(">iqi?iqihi")
_NULL: Final = _LENGTH.pack(-1)
_JSONB_VERSION: Final = b"\x01"

_pack_length = _LENGTH.pack
_pack_rest = _REST.pack
_pack_targeted_rest = _TARGETED_REST.pack


class Target(NamedTuple):
    """The one group that a message is for, and how often it was redriven to it; 0: it is replayed."""

    group_id: int
    redrives: int


def row_head(queue_id: int, queue_offset: int, stored_at_us: int, message_id: bytes) -> bytes:
    """Return the start of a row: how many columns, and the four that the commit decides."""
    return _HEAD.pack(
        17, 8, queue_id, 8, queue_offset, 8, stored_at_us - POSTGRES_EPOCH_US, 16, message_id
    )  # fmt: skip


def row_prefix(namespace: str, topic: str, event_code: str, born_host: str, publisher_group: str) -> bytes:
    """Return the columns that all messages of one publisher and type share."""
    return b"".join(
        (_text(namespace), _text(topic), _text(event_code), _text_or_null(born_host), _text_or_null(publisher_group))
    )


def row_middle(
    prefix: bytes,
    key: str,
    ordering_key: str,
    headers_json: bytes,
    *,
    born_at_us: int,
    body_bytes: int,
    stress: bool,
    target: Target | None = None,
) -> bytes:
    """Return what comes before the body in the row of a message; with a *target*, of one that is for that group alone.

    Empty key, ordering key and headers become NULL.
    """
    born_at = born_at_us - POSTGRES_EPOCH_US
    return b"".join(
        (
            prefix,
            _text(key) if key else _NULL,
            _text(ordering_key) if ordering_key else _NULL,
            _pack_length(len(headers_json) + 1) + _JSONB_VERSION + headers_json if headers_json else _NULL,
            _pack_rest(8, born_at, 1, stress, -1, 2, 0, body_bytes)
            if target is None
            else _pack_targeted_rest(8, born_at, 1, stress, 8, target.group_id, 2, target.redrives, body_bytes),
        )
    )


def _text(value: str) -> bytes:
    encoded = value.encode()
    return _pack_length(len(encoded)) + encoded


def _text_or_null(value: str) -> bytes:
    return _text(value) if value else _NULL
