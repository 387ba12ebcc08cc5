"""Turns messages into bytes.

A message is encoded when it is published, so that its exact size is known and one that cannot be sent is refused in the
caller's own line; a frame is those bytes put together. (Letting protobuf encode a frame of a thousand messages costs
five times as much: it grows its buffer as it goes.)
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Final

from msgbroker.client.values.bodies import Body, encode_body
from msgbroker.client.values.config import BODY_ROOM_BYTES
from msgbroker.contract import limits
from msgbroker.contract.errors import BodyTooLargeError, InvalidHeadersError, InvalidKeyError, InvalidNameError
from msgbroker.contract.names import check_event_code, check_headers, check_key, check_topic
from msgbroker.contract.varint import varint
from msgbroker.v1 import message_pb2, publisher_pb2

# Field numbers and wire types of msgbroker/v1/publisher.proto, as tags.
_FRAME_SEQUENCE: Final = b"\x10"
_FRAME_MESSAGES: Final = b"\x1a"
_FRAME_BYTES: Final = b"\x20"
_FRAME_PART: Final = b"\x2a"
_TYPES_MAX: Final = 10_000


class MessageEncoder:
    """Checks and encodes messages; remembers the message types it has checked, encoded. Threads may share it."""

    def __init__(self) -> None:
        self._types: dict[tuple[str, str], bytes] = {}

    def encode(
        self,
        topic: str,
        event_code: str,
        body: Body = b"",
        *,
        headers: Mapping[str, str] | None = None,
        key: str = "",
        ordering_key: str = "",
    ) -> bytes:
        """Return a message as an entry of a frame, or raise an InvalidRequestError that names what is wrong with it."""
        if type(topic) is not str or type(event_code) is not str:
            _check_is_text("topic", topic)
            _check_is_text("event code", event_code)
        message_type = self._types.get((topic, event_code)) or self._encode_type(topic, event_code)
        message = message_pb2.Message()
        if body:
            message.body = body if type(body) is bytes else encode_body(body)
        elif not isinstance(body, bytes):
            message.body = encode_body(body)
        if key != "":
            message.key = _checked_key("key", key)
        if ordering_key != "":
            message.ordering_key = _checked_key("ordering key", ordering_key)
        if headers:
            if not isinstance(headers, Mapping):
                raise InvalidHeadersError(f"is {_described(headers)}; a dict of str to str is wanted")
            check_headers(headers)
            message.headers.update(headers)
        message.born_at_us = time.time_ns() // 1_000
        # The type's fields are the first ones: it is the same as if they had been set.
        encoded = message.SerializeToString()
        size_bytes = len(message_type) + len(encoded)
        if size_bytes > BODY_ROOM_BYTES:
            raise BodyTooLargeError(topic, len(message.body), limits.BODY_BYTES_CEILING, is_ceiling=True)
        return b"".join((_FRAME_MESSAGES, varint(size_bytes), message_type, encoded))

    def _encode_type(self, topic: str, event_code: str) -> bytes:
        check_topic(topic)
        check_event_code(event_code)
        if len(self._types) >= _TYPES_MAX:
            self._types.clear()
        encoded = message_pb2.Message(topic=topic, event_code=event_code).SerializeToString()
        self._types[topic, event_code] = encoded
        return encoded


def _checked_key(kind: str, key: object) -> str:
    if not isinstance(key, str):
        raise InvalidKeyError(kind, f"is {_described(key)}; it must be a str")
    return check_key(kind, key)


def _check_is_text(kind: str, name: object) -> None:
    # Subclasses pass: an enum of names is a good thing.
    if not isinstance(name, str):
        raise InvalidNameError(kind, repr(name), f"is of type {type(name).__name__}; it must be a str")


def _described(value: object) -> str:
    return f"{repr(value)[:40]} of type {type(value).__name__}"


def frame_messages(sequence: int, messages: Sequence[bytes]) -> Iterator[bytes]:
    """Return a frame as the gRPC messages it is sent in: itself, or where it is too large for one, in parts."""
    # Parts of a protobuf message may simply follow each other.
    head = _FRAME_SEQUENCE + varint(sequence)
    size_bytes = len(head) + sum(map(len, messages))
    if size_bytes <= limits.GRPC_MESSAGE_BYTES_MAX:
        yield b"".join((head, *messages))
        return
    before = _FRAME_BYTES + varint(size_bytes) + _FRAME_PART
    for pieces in in_parts([head, *messages], limits.FRAME_PART_BYTES_MAX):
        yield b"".join((before, varint(sum(map(len, pieces))), *pieces))
        before = _FRAME_PART


def in_parts(pieces: Sequence[bytes], part_bytes: int) -> Iterator[list[bytes | memoryview]]:
    """Divide *pieces*, none of them empty, into parts of so many bytes; a piece may begin in one and end in another."""
    ends = list(accumulate(map(len, pieces)))
    begin = index = 0
    while begin < ends[-1]:
        end = min(begin + part_bytes, ends[-1])
        last = bisect_left(ends, end, index)
        part: list[bytes | memoryview] = list(pieces[index : last + 1])
        missing, spent = ends[last] - end, begin - (ends[index] - len(pieces[index]))
        if missing:
            part[-1] = memoryview(part[-1])[:-missing]
        if spent:
            part[0] = memoryview(part[0])[spent:]
        yield part
        begin, index = end, last if missing else last + 1


def message_of(entry: bytes) -> message_pb2.Message:
    """Return the message that an entry of a frame holds."""
    return publisher_pb2.PublishFrame.FromString(entry).messages[0]
