"""A Message's fields, found in its bytes without making a protobuf object of it.

Only the form that encoders write is read here: fields in the order of their numbers, each once, `born_at_us` of these
decades and nothing behind it; of strings, short ones. It is what nearly every message looks like, and saves three
copies of its body. For anything else `scan` returns None, and protobuf's own decoder has the word: `tests/unit/server`
holds the two against each other.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from msgbroker.server.log import message_fields

Fields: TypeAlias = tuple[str, str, dict[str, str], int, int, int]
"""What was found of a message: key, ordering key, headers, where the body begins and ends, born_at_us."""

# As bytes are compared one by one.
_TOPIC: Final = message_fields.TOPIC[0]
_EVENT_CODE: Final = message_fields.EVENT_CODE[0]
_KEY: Final = message_fields.KEY[0]
_ORDERING_KEY: Final = message_fields.ORDERING_KEY[0]
_HEADERS: Final = message_fields.HEADERS[0]
_BODY: Final = message_fields.BODY[0]
_BORN_AT_US: Final = message_fields.BORN_AT_US[0]
_ENTRY_NAME: Final = message_fields.ENTRY_NAME[0]
_ENTRY_VALUE: Final = message_fields.ENTRY_VALUE[0]

_SHORT_MAX: Final = 0x7F
"""The largest length that is encoded in one byte."""
_LENGTH_2_MAX: Final = 0x3FFF
_LENGTH_3_MAX: Final = 0x1FFFFF
_BORN_AT_BYTES: Final = 8
"""How many bytes `born_at_us` takes for times from 1987 until 4252."""
_CONTINUED: Final = 0x0080_8080_8080_8080
_NO_HEADERS: Final[dict[str, str]] = {}


def type_end(encoded: bytes, at: int) -> int:
    """Return where topic and event code, which a message at *at* begins with, end; 0 if it does not."""
    try:
        if encoded[at] != _TOPIC or encoded[at + 1] > _SHORT_MAX:
            return 0
        at += 2 + encoded[at + 1]
        if encoded[at] != _EVENT_CODE or encoded[at + 1] > _SHORT_MAX:
            return 0
        return at + 2 + encoded[at + 1]
    except IndexError:
        return 0


def type_in(encoded: bytes) -> tuple[str, str] | None:
    """Return the topic and event code that *encoded* is, up to its `type_end`; None where that is not whole."""
    topic_end = 2 + encoded[1]
    event_code = encoded[topic_end + 2 :]
    if len(event_code) < encoded[topic_end + 1]:
        return None
    try:
        return encoded[2:topic_end].decode(), event_code.decode()
    except UnicodeDecodeError:
        return None


def scan(encoded: bytes, at: int, end: int) -> Fields | None:
    """Return the fields behind the event code, between *at* and *end*; None if they are not in the usual form."""
    try:
        return _scan(encoded, at, end)
    except (IndexError, UnicodeDecodeError, _UnusualError):
        return None


class _UnusualError(Exception):
    """The message is not written as encoders write it: protobuf has to read it."""


def _scan(encoded: bytes, at: int, end: int) -> Fields | None:
    # The hot loop of publishing: no calls that could be saved. Wherever a length leads beyond the end, the last
    # comparison fails: positions only grow.
    key = ordering_key = ""
    headers = _NO_HEADERS
    lengths = 0
    tag = encoded[at]
    if tag == _KEY:
        lengths = length = encoded[at + 1]
        at += 2 + length
        key = encoded[at - length : at].decode()
        tag = encoded[at]
    if tag == _ORDERING_KEY:
        length = encoded[at + 1]
        lengths |= length
        at += 2 + length
        ordering_key = encoded[at - length : at].decode()
        tag = encoded[at]
    if tag == _HEADERS:
        headers, at = _headers(encoded, at)
        tag = encoded[at]
    body_at = at
    if tag == _BODY:
        length = encoded[at + 1]
        body_at = at + 2
        if length > _SHORT_MAX:
            length, body_at = _length(encoded, at + 1)
        at = body_at + length
        tag = encoded[at]
    if tag != _BORN_AT_US or at + 1 + _BORN_AT_BYTES != end or lengths > _SHORT_MAX:
        return None
    born_at_us = _number_in(int.from_bytes(encoded[at + 1 : end], "little"))
    return key, ordering_key, headers, body_at, at, born_at_us


def _headers(encoded: bytes, at: int) -> tuple[dict[str, str], int]:
    """Return the headers at *at*, and where they end."""
    headers: dict[str, str] = {}
    count = 0
    while encoded[at] == _HEADERS:
        length = encoded[at + 1]
        at += 2
        value_at = at + 2 + encoded[at + 1]
        if length > _SHORT_MAX or encoded[at] != _ENTRY_NAME or encoded[value_at] != _ENTRY_VALUE:
            raise _UnusualError
        name = encoded[at + 2 : value_at].decode()
        at += length
        if value_at + 2 + encoded[value_at + 1] != at:
            raise _UnusualError
        headers[name] = encoded[value_at + 2 : at].decode()
        count += 1
    if len(headers) != count:
        raise _UnusualError
    return headers, at


def _length(encoded: bytes, at: int) -> tuple[int, int]:
    """Return a length of two or three bytes, and where it ends."""
    length = encoded[at] & 0x7F | encoded[at + 1] << 7
    if length <= _LENGTH_2_MAX:
        return length, at + 2
    length = length & _LENGTH_2_MAX | encoded[at + 2] << 14
    if length > _LENGTH_3_MAX:
        raise _UnusualError
    return length, at + 3


def _number_in(varint: int) -> int:
    """Return the number that eight bytes of a varint stand for: seven bits of each, put together by halves."""
    if varint & (_CONTINUED | 0x80 << 56) != _CONTINUED:
        raise _UnusualError
    varint = varint & 0x007F_007F_007F_007F | (varint & 0x7F00_7F00_7F00_7F00) >> 1
    varint = varint & 0x0000_3FFF_0000_3FFF | (varint & 0x3FFF_0000_3FFF_0000) >> 2
    return varint & 0x0FFF_FFFF | (varint & 0x0FFF_FFFF_0000_0000) >> 4
