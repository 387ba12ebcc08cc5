"""Wire → ours: requests from bytes, with errors of ours for what cannot be read or is out of all proportion.

gRPC answers a deserializer that raises with UNKNOWN and no reason, which a client must take for a broker that is lost,
and try the next one. So the handlers of unary calls read bytes (`calls.gate`); on a stream `read` raises the error.

Two bytes on the wire become a whole object in memory: a large request's entries are counted before it is parsed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Generic, NamedTuple, TypeVar

from google.protobuf.message import DecodeError, Message

from msgbroker.contract import limits
from msgbroker.contract.errors import FrameTooLargeError, InvalidRequestFieldError, MessageCenterError
from msgbroker.server.publish.admission import ParsedMessage
from msgbroker.v1 import message_pb2, publisher_pb2

RequestT = TypeVar("RequestT", bound=Message)
FrameT = TypeVar("FrameT", publisher_pb2.PublishFrame, publisher_pb2.PublishRequest)

_FRAME_BYTES_TAG: Final = 0x20
_PART_TAG: Final = 0x2A
_PART_TAGS: Final = (bytes([_FRAME_BYTES_TAG]), bytes([_PART_TAG]))
"""A PublishFrame that is a part of a larger one begins with one of these."""
_COUNTED_ABOVE_BYTES: Final = 128 * 1024
"""Smaller requests cannot have so many entries that it would hurt; our client's are smaller."""
_OTHER_FIELDS_MAX: Final = 16
"""No request has more fields beside its repeated one."""
_VARINT_BYTES_MAX: Final = 10
_VARINT, _FIXED64, _BYTES, _GROUP, _GROUP_END, _FIXED32 = range(6)
_GROUPS: Final = (_GROUP, _GROUP_END)


class Received(NamedTuple, Generic[FrameT]):
    """A frame whose messages are still encoded."""

    frame: FrameT
    """The frame without its messages."""
    encoded: bytes
    spans: list[tuple[int, int]]
    """Where in `encoded` each of its messages begins and ends."""


class FramePart(NamedTuple):
    """A part of a frame that is larger than a gRPC message may be."""

    part: memoryview
    frame_bytes: int
    """How large the whole frame is, said with its first part; with the others it is 0."""


def decoder(kind: type[RequestT], entries_max: int = 0, bytes_max: int | None = None) -> Callable[[bytes], RequestT]:
    """Return a deserializer; it raises InvalidRequestFieldError for what is not a *kind*, or too much of one."""

    def too_many(count: int) -> MessageCenterError:
        return InvalidRequestFieldError("message", f"has {count} entries; {entries_max} at most")

    return _bounded(kind, entries_max, bytes_max, too_many)


def frame_decoder(kind: type[FrameT]) -> Callable[[bytes], Received[FrameT]]:
    """Return a deserializer of frames; it raises FrameTooLargeError as well."""
    messages_max = limits.FRAME_MESSAGES_MAX
    messages_tag = kind.DESCRIPTOR.fields_by_name["messages"].number << 3 | _BYTES

    def decode_frame(encoded: bytes) -> Received[FrameT]:
        spans, others = _cut_out(encoded, messages_tag, messages_max + 1)
        if len(spans) > messages_max:
            raise FrameTooLargeError("messages", len(spans), messages_max)
        if len(others) > _OTHER_FIELDS_MAX:
            raise InvalidRequestFieldError("message", f"has more than {_OTHER_FIELDS_MAX} fields beside its messages")
        if len(encoded) > limits.FRAME_BYTES_MAX and len(spans) > 1:
            raise FrameTooLargeError("bytes", len(encoded), limits.FRAME_BYTES_MAX)
        frame = _parsed(kind, b"".join(others))
        if frame.messages or any(other[0] & 7 in _GROUPS for other in others):
            # Messages under a tag that is longer than it need be, or groups, which may hide some: nobody writes them.
            raise _malformed(kind)
        frame.DiscardUnknownFields()
        return Received(frame, encoded, spans)

    return decode_frame


def stream_decoder() -> Callable[[bytes], Received[publisher_pb2.PublishFrame] | FramePart]:
    """Return a deserializer of what comes on a publisher's stream; it raises what that of frames does."""
    decode_frame = frame_decoder(publisher_pb2.PublishFrame)

    def decode(encoded: bytes) -> Received[publisher_pb2.PublishFrame] | FramePart:
        if encoded[:1] in _PART_TAGS:
            return _part_in(encoded)
        received = decode_frame(encoded)
        if received.frame.part or received.frame.frame_bytes:
            raise _misplaced_part()
        return received

    return decode


def parse_message(encoded: bytes, now_us: int) -> ParsedMessage:
    """Return what a message says, in whatever form protobuf reads; one that does not say when was born at *now_us*.

    Raises InvalidRequestFieldError.
    """
    try:
        message = message_pb2.Message.FromString(encoded)
    except DecodeError as error:
        raise InvalidRequestFieldError("message", "is malformed, or has text that is not UTF-8") from error
    message.DiscardUnknownFields()
    message.born_at_us = message.born_at_us or now_us
    return ParsedMessage(
        topic=message.topic,
        event_code=message.event_code,
        key=message.key,
        ordering_key=message.ordering_key,
        headers=message.headers,
        body=message.body,
        born_at_us=message.born_at_us,
        deliver_at_us=message.deliver_at_us,
        content=message.SerializeToString(),
    )


def _part_in(encoded: bytes) -> FramePart:
    """Return the part that *encoded* is, in the form encoders write: `frame_bytes`, or not, and `part`."""
    frame_bytes, at = _read_varint(encoded, 1) if encoded[0] == _FRAME_BYTES_TAG else (0, 0)
    if encoded[at : at + 1] == bytes([_PART_TAG]):
        length, at = _read_varint(encoded, at + 1)
        if length and at + length == len(encoded):
            return FramePart(memoryview(encoded)[at:], frame_bytes)
    raise _misplaced_part()


def _misplaced_part() -> InvalidRequestFieldError:
    return InvalidRequestFieldError("part", "must come alone, with frame_bytes before it or with nothing")


def _bounded(
    kind: type[RequestT], entries_max: int, bytes_max: int | None, too_many: Callable[[int], MessageCenterError]
) -> Callable[[bytes], RequestT]:
    fields_max = entries_max + _OTHER_FIELDS_MAX

    def decode(encoded: bytes) -> RequestT:
        if bytes_max is not None and len(encoded) > bytes_max:
            raise InvalidRequestFieldError("message", f"has {len(encoded)} bytes; {bytes_max} at most")
        if len(encoded) > _COUNTED_ABOVE_BYTES:
            count = _count_fields(encoded, fields_max + 1)
            if count > fields_max:
                raise too_many(count)
        return _parsed(kind, encoded)

    return decode


def _parsed(kind: type[RequestT], encoded: bytes) -> RequestT:
    try:
        return kind.FromString(encoded)
    except DecodeError as error:
        raise _malformed(kind) from error


def _malformed(kind: type[Message]) -> InvalidRequestFieldError:
    problem = f"is not a valid {kind.DESCRIPTOR.name}: malformed, or text that is not UTF-8"
    return InvalidRequestFieldError("message", problem)


def _cut_out(encoded: bytes, tag: int, count_max: int) -> tuple[list[tuple[int, int]], list[bytes]]:
    """Return where the fields with *tag* are, and the other fields as they are; *count_max* of each at most.

    What is malformed is among the others, as the last one: their decoder will say so.
    """
    spans: list[tuple[int, int]] = []
    others: list[bytes] = []
    at, size = 0, len(encoded)
    while at < size and len(spans) < count_max and len(others) <= _OTHER_FIELDS_MAX:
        start = at
        if encoded[at] != tag:
            at = _end_of_field(encoded, at)
            others.append(encoded[start:at])
            continue
        length, at = _read_length(encoded, at + 1) if at + 1 < size else (1, size)
        if at + length > size:
            others.append(encoded[start:])
            break
        spans.append((at, at + length))
        at += length
    return spans, others


def _read_length(encoded: bytes, at: int) -> tuple[int, int]:
    """Return the number at *at*, and where the next thing is; the usual ones, below 16,384, without a loop."""
    low, high = encoded[at], encoded[at + 1] if at + 1 < len(encoded) else 0
    if low <= 0x7F:
        return low, at + 1
    return (low & 0x7F | high << 7, at + 2) if high <= 0x7F else _read_varint(encoded, at)


def _count_fields(encoded: bytes, count_max: int) -> int:
    """Return how many fields there are at the top, *count_max* at most; what is malformed ends the count."""
    at = count = 0
    size = len(encoded)
    while at < size and count < count_max:
        count += 1
        at = _end_of_field(encoded, at)
    return count


def _end_of_field(encoded: bytes, at: int) -> int:
    """Return where the field at *at* ends; the end of all, or beyond, where it is malformed."""
    tag, at = _read_varint(encoded, at)
    wire_type = tag & 7
    if wire_type == _BYTES:
        length, at = _read_varint(encoded, at)
        return at + length
    if wire_type == _VARINT:
        return _read_varint(encoded, at)[1]
    if wire_type in {_FIXED64, _FIXED32}:
        return at + (8 if wire_type == _FIXED64 else 4)
    return at if wire_type in _GROUPS else len(encoded)


def _read_varint(encoded: bytes, at: int) -> tuple[int, int]:
    """Return the number at *at* and where the next thing is; the end, where there is none."""
    value = shift = 0
    for byte in encoded[at : at + _VARINT_BYTES_MAX]:
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    return 0, len(encoded)
