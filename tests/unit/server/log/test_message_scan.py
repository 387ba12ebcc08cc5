"""What the scan finds in a message is what protobuf reads in it; what it cannot tell it leaves to protobuf."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from msgbroker.server.log.message_fields import type_fields
from msgbroker.server.log.message_scan import scan, type_end, type_in
from msgbroker.v1 import message_pb2

_TEXT = st.text("aZ é文𝄞\0", max_size=20) | st.sampled_from(["x" * 127, "x" * 128, "文" * 60])
_NOW_US = st.integers(1_500_000_000_000_000, 4_102_444_800_000_000)
_BODY = st.binary(max_size=300) | st.sampled_from([b"x" * size for size in (127, 128, 16_383, 16_384, 70_000)])
_MESSAGES = st.builds(
    message_pb2.Message,
    topic=_TEXT,
    event_code=_TEXT,
    key=_TEXT,
    ordering_key=_TEXT,
    headers=st.dictionaries(_TEXT, _TEXT, max_size=3),
    body=_BODY,
    born_at_us=_NOW_US | st.integers(-(2**63), 2**63 - 1),
    deliver_at_us=st.sampled_from([0, 0, 0, 5]),
)
_EXAMPLE = message_pb2.Message(topic="T", event_code="E", key="k", body=b"b" * 200, born_at_us=1_700_000_000_000_000)
_FRAME = (b"\x1a\x05before", b"\x1a\x03\x38\x01")
"""What lies around a message is not looked at."""


def scanned(encoded: bytes) -> message_pb2.Message | None:
    """Return what the scan makes of the message, or None where it leaves it to protobuf."""
    before, after = _FRAME
    frame = before + encoded + after
    start, end = len(before), len(before) + len(encoded)
    fields_at = type_end(frame, start)
    fields = scan(frame, fields_at, end) if fields_at else None
    if fields is None:
        return None
    key, ordering_key, headers, body_at, body_end, born_at_us = fields
    said = type_in(frame[start:fields_at])
    if said is None:
        return None
    topic, event_code = said
    return message_pb2.Message(
        topic=topic,
        event_code=event_code,
        key=key,
        ordering_key=ordering_key,
        headers=headers,
        body=frame[body_at:body_end],
        born_at_us=born_at_us,
    )


@given(_MESSAGES)
def test_a_message_as_protobuf_writes_it_is_read_as_protobuf_reads_it(message: message_pb2.Message) -> None:
    found = scanned(message.SerializeToString(deterministic=True))

    assert found is None or found == message


@given(_MESSAGES, st.data())
@example(_EXAMPLE, None)
def test_whatever_it_reads_protobuf_reads_too(message: message_pb2.Message, data: st.DataObject | None) -> None:
    encoded = bytearray(message.SerializeToString())
    if data is None:
        changes = [(place, value) for place in range(min(len(encoded), 40)) for value in (0, 1, 0x32, 0x80, 0xFF)]
    else:
        places = st.integers(0, min(len(encoded), 400) - 1)
        changes = data.draw(st.lists(st.tuples(places, st.integers(0, 255)), min_size=1, max_size=3)) if encoded else []
    for place, value in changes:
        before = encoded[place]
        encoded[place] = value
        found = scanned(bytes(encoded))
        if found is not None:
            assert found == message_pb2.Message.FromString(bytes(encoded))
        if data is None:
            encoded[place] = before


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"key": "order-1"},
        {"ordering_key": "客户-1", "key": "k" * 127},
        {"headers": {"region": "hz", "amount": "250", "渠道": ""}},
        {"body": b""},
        {"body": b"x" * 100},
        {"body": b"x" * 8_192},
        {"body": b"x" * 1_000_000},
    ],
    ids=str,
)
def test_the_usual_message_is_not_left_to_protobuf(fields: dict[str, object]) -> None:
    said = {"topic": "TP_TRADE", "event_code": "EC_PAID", "body": b"body", "born_at_us": 1_700_000_000_000_000}
    message = message_pb2.Message(**{**said, **fields})  # type: ignore[arg-type]

    assert scanned(message.SerializeToString()) == message


@pytest.mark.parametrize("cut", range(1, 40))
def test_a_message_that_is_cut_off_is_not_read_beyond_its_end(cut: int) -> None:
    encoded = message_pb2.Message(
        topic="T", event_code="E", key="key", headers={"h": "v"}, body=b"body", born_at_us=1_700_000_000_000_000
    ).SerializeToString()

    assert scanned(encoded[:-cut]) is None


@pytest.mark.parametrize("topic, event_code", [("T", "E"), ("T" * 128, "E" * 64), ("客户" * 42, "付")])
def test_a_type_is_encoded_as_protobuf_does_it_and_read_again_where_it_is_short(topic: str, event_code: str) -> None:
    encoded = type_fields(topic, event_code)
    assert encoded == message_pb2.Message(topic=topic, event_code=event_code).SerializeToString()

    end = type_end(encoded, 0)
    assert type_in(encoded[:end]) == (topic, event_code) if end else len(topic.encode()) > 127
