"""Wire → ours: requests from bytes, with errors of ours for what cannot be read or is out of all proportion.

gRPC answers a deserializer that raises with UNKNOWN and no reason, which a client must take for a broker that is lost,
and try the next one. So unary handlers are given bytes and decode them here; on a stream `read` raises the error.

Two bytes on the wire become a whole object in memory: a large request's entries are counted before it is parsed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, Generic, NamedTuple, TypeVar

from google.protobuf.message import DecodeError, Message

from msgbroker.contract import limits
from msgbroker.contract.errors import FrameTooLargeError, InvalidRequestFieldError, MessageCenterError
from msgbroker.server.grpc_failures import Context, abort_with
from msgbroker.v1 import publisher_pb2

RequestT = TypeVar("RequestT", bound=Message)
FrameT = TypeVar("FrameT", publisher_pb2.PublishFrame, publisher_pb2.PublishRequest)
DecodedT = TypeVar("DecodedT")
AnswerT = TypeVar("AnswerT")

_COUNTED_ABOVE_BYTES: Final = 128 * 1024
"""Smaller requests cannot have so many entries that it would hurt; our client's are smaller."""
_OTHER_FIELDS_MAX: Final = 16
"""Fields of any request beside its repeated one."""
_VARINT_BYTES_MAX: Final = 10
_VARINT, _FIXED64, _BYTES, _GROUP, _GROUP_END, _FIXED32 = range(6)


class Received(NamedTuple, Generic[FrameT]):
    """A frame, and how many bytes it had on the wire."""

    frame: FrameT
    size_bytes: int


def decoder(kind: type[RequestT], entries_max: int = 0) -> Callable[[bytes], RequestT]:
    """Return a deserializer; it raises InvalidRequestFieldError for what is not a *kind*."""

    def too_many(count: int) -> MessageCenterError:
        return InvalidRequestFieldError("message", f"has {count} entries; {entries_max} at most")

    return _bounded(kind, entries_max, too_many)


def frame_decoder(kind: type[FrameT]) -> Callable[[bytes], Received[FrameT]]:
    """Return a deserializer of frames; it raises FrameTooLargeError as well."""
    messages_max = limits.FRAME_MESSAGES_MAX

    def too_many(count: int) -> MessageCenterError:
        return FrameTooLargeError("messages", count, messages_max)

    decode = _bounded(kind, messages_max, too_many)

    def decode_frame(encoded: bytes) -> Received[FrameT]:
        frame = decode(encoded)
        count = len(frame.messages)
        if count > messages_max:
            raise too_many(count)
        if len(encoded) > limits.FRAME_BYTES_MAX and count > 1:
            raise FrameTooLargeError("bytes", len(encoded), limits.FRAME_BYTES_MAX)
        return Received(frame, len(encoded))

    return decode_frame


def decoded(
    decode: Callable[[bytes], DecodedT], answer: Callable[[DecodedT, Context], Awaitable[AnswerT]]
) -> Callable[[bytes, Context], Awaitable[AnswerT]]:
    """Return the handler of a unary call whose request is still encoded."""

    async def decode_and_answer(encoded: bytes, context: Context) -> AnswerT:
        try:
            request = decode(encoded)
        except MessageCenterError as error:
            await abort_with(context, error)
        return await answer(request, context)

    return decode_and_answer


def _bounded(
    kind: type[RequestT], entries_max: int, too_many: Callable[[int], MessageCenterError]
) -> Callable[[bytes], RequestT]:
    fields_max = entries_max + _OTHER_FIELDS_MAX

    def decode(encoded: bytes) -> RequestT:
        if len(encoded) > _COUNTED_ABOVE_BYTES:
            count = _count_fields(encoded, fields_max + 1)
            if count > fields_max:
                raise too_many(count)
        try:
            return kind.FromString(encoded)
        except DecodeError as error:
            problem = f"is not a valid {kind.DESCRIPTOR.name}: malformed, or text that is not UTF-8"
            raise InvalidRequestFieldError("message", problem) from error

    return decode


def _count_fields(encoded: bytes, count_max: int) -> int:
    """Return how many fields there are at the top, *count_max* at most; what is malformed ends the count."""
    at = count = 0
    size = len(encoded)
    while at < size and count < count_max:
        count += 1
        tag, at = _read_varint(encoded, at)
        wire_type = tag & 7
        if wire_type == _BYTES:
            length, at = _read_varint(encoded, at)
            at += length
        elif wire_type == _VARINT:
            _, at = _read_varint(encoded, at)
        elif wire_type in {_FIXED64, _FIXED32}:
            at += 8 if wire_type == _FIXED64 else 4
        elif wire_type not in {_GROUP, _GROUP_END}:
            break
    return count


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
