"""Requests from bytes: what cannot be read, and what is too much to be read at all."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from msgbroker.contract.errors import FrameTooLargeError, InvalidRequestError, InvalidRequestFieldError
from msgbroker.server.edge.decoding import FramePart, Received, decoder, frame_decoder, stream_decoder
from msgbroker.v1 import message_pb2, publisher_pb2, subscriber_pb2

NOT_UTF8 = b"\x0a\x04\x12\x02\xff\xfe\x10\x01"
decode_frame = frame_decoder(publisher_pb2.PublishFrame)
decode_stream = stream_decoder()
decode_subscribe = decoder(subscriber_pb2.SubscribeRequest, 10_000)


def frame_of(count: int, body: bytes = b"x", **fields: Any) -> bytes:
    message = message_pb2.Message(topic="T", event_code="E", body=body)
    return publisher_pb2.PublishFrame(sequence=1, messages=[message] * count, **fields).SerializeToString()


@pytest.mark.parametrize(
    "encoded",
    [NOT_UTF8, b"\xff", b"\x1a\x7f", b"\x1a", b"\x9a\x00\x00", b"\x7b\x1a\x00\x7c"],
    ids=["not UTF-8", "a tag alone", "cut off", "without a length", "a long tag", "in a group"],
)
def test_what_cannot_be_read_says_so_in_our_words(encoded: bytes) -> None:
    with pytest.raises(InvalidRequestFieldError, match="PublishFrame"):
        decode_frame(encoded)


def test_a_frame_comes_with_its_size() -> None:
    encoded = frame_of(1_000, hello=publisher_pb2.PublisherHello(publisher_id=b"p" * 16))

    received = decode_frame(encoded)
    assert (len(received.spans), received.encoded, received.frame.sequence) == (1_000, encoded, 1)


@pytest.mark.parametrize(
    "encoded, unit, count",
    [
        (frame_of(1_001), "messages", "1001"),
        (frame_of(5_000, b"x" * 100), "messages", "1001"),
        (frame_of(600, b"x" * 8_000), "bytes", "48"),
    ],
    ids=["one message more", "many messages", "bytes"],
)
def test_a_frame_that_is_too_large_is_refused(encoded: bytes, unit: str, count: str) -> None:
    with pytest.raises(FrameTooLargeError) as raised:
        decode_frame(encoded)

    assert raised.value.unit == unit
    assert str(raised.value.count).startswith(count)


def test_a_single_message_may_be_larger_than_a_frame() -> None:
    assert len(decode_frame(frame_of(1, b"x" * 5 * 1024 * 1024)).spans) == 1


@pytest.mark.parametrize(
    "entry",
    [b"\x1a\x00", b"\x0b\x0c", b"\x78\x00", b"\x7d\x00\x00\x00\x00", b"\x79" + b"\x00" * 8, b"\xfa\x01\x00"],
    ids=["messages", "groups", "numbers", "32 bits", "64 bits", "fields of a larger number"],
)
def test_what_would_be_millions_of_objects_is_refused_before_it_is_read(entry: bytes) -> None:
    encoded = b"\x10\x01" + entry * (8_000_000 // len(entry))
    started_at = time.perf_counter()
    with pytest.raises((FrameTooLargeError, InvalidRequestFieldError), match=r"1001|more than 16|malformed"):
        decode_frame(encoded)

    assert time.perf_counter() - started_at < 0.1


def test_a_request_has_a_bounded_number_of_settlements() -> None:
    settlement = subscriber_pb2.Settlement(queue_id=1 << 60, epoch=1 << 60, attempt=1, ranges=[1, 2])
    most = subscriber_pb2.SubscribeRequest(credit=1, settlements=[settlement] * 10_000).SerializeToString()
    assert len(decode_subscribe(most).settlements) == 10_000

    with pytest.raises(InvalidRequestFieldError, match="entries"):
        decode_subscribe(b"\x1a\x00" * 1_000_000)


@pytest.mark.parametrize("frame_bytes", [0, 1, 300, 1 << 31])
@pytest.mark.parametrize("size", [1, 127, 128, 200_000])
def test_a_part_of_a_frame_is_told_from_a_frame(size: int, frame_bytes: int) -> None:
    body = bytes([n % 251 for n in range(size)])
    part = decode_stream(publisher_pb2.PublishFrame(part=body, frame_bytes=frame_bytes).SerializeToString())

    assert isinstance(part, FramePart)
    assert (bytes(part.part), part.frame_bytes) == (body, frame_bytes)
    assert isinstance(decode_stream(frame_of(3)), Received)


@pytest.mark.parametrize(
    "encoded",
    [
        b"\x20",
        b"\x20\x05",
        b"\x2a",
        b"\x2a\x00",
        b"\x2a\x05abcd",
        b"\x2a\x04abcde",
        b"\x2a\x01a\x20\x05",
        b"\x20\x05\x20\x05\x2a\x01a",
        b"\x10\x01\x2a\x01a",
        frame_of(1) + b"\x20\x05",
    ],
)
def test_a_part_comes_alone_in_the_form_encoders_write(encoded: bytes) -> None:
    with pytest.raises(InvalidRequestFieldError, match="part must come alone"):
        decode_stream(encoded)


@given(st.binary(max_size=40), st.integers(1, 3))
def test_whatever_comes_is_read_or_refused_with_an_error_of_ours(start: bytes, repeats: int) -> None:
    for encoded in (start, (start or b"0") * (repeats * 140_000 // (len(start) or 1))):
        with suppress(InvalidRequestError):
            decode_frame(encoded)
        with suppress(InvalidRequestError):
            decode_stream(encoded)
