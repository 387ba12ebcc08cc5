"""The fields of a Message on the wire (`msgbroker/v1/message.proto`): their tags, and texts encoded by hand.

`message_scan` reads them, `stored_rows` writes them again for what comes back from msgdb, and admission knows a
message's type by them. `tests/unit/server` holds all of it against the generated classes.
"""

from __future__ import annotations

from typing import Final

from msgbroker.contract.varint import varint

# Field numbers and wire types, as tags of one byte.
TOPIC: Final = b"\x0a"
EVENT_CODE: Final = b"\x12"
KEY: Final = b"\x1a"
ORDERING_KEY: Final = b"\x22"
HEADERS: Final = b"\x2a"
BODY: Final = b"\x32"
BORN_AT_US: Final = b"\x38"
ENTRY_NAME: Final = b"\x0a"
ENTRY_VALUE: Final = b"\x12"


def text_field(tag: bytes, value: str) -> bytes:
    """Return a field that is a text. Whether an empty one is written at all is for the caller to know."""
    encoded = value.encode()
    return tag + varint(len(encoded)) + encoded


def type_fields(topic: str, event_code: str) -> bytes:
    """Return what every message of this type begins with."""
    return text_field(TOPIC, topic) + text_field(EVENT_CODE, event_code)
