"""Messages encoded by hand are what the generated classes read, whatever is in them."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from msgbroker.client.publish.wire import MessageEncoder, frame_messages, in_parts, message_of
from msgbroker.client.values.config import FRAME_BYTES_TARGET
from msgbroker.contract import limits
from msgbroker.contract.errors import InvalidHeadersError
from msgbroker.v1 import publisher_pb2

_TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=60)


@given(
    body=st.binary(max_size=20_000),
    headers=st.dictionaries(_TEXT.filter(bool), _TEXT, max_size=6),
    key=_TEXT,
    ordering_key=_TEXT,
    sequence=st.integers(1, 2**63),
)
def test_what_is_encoded_by_hand_reads_as_it_was_meant(
    body: bytes, headers: Mapping[str, str], key: str, ordering_key: str, sequence: int
) -> None:
    encode = MessageEncoder().encode
    entries = [
        encode("TP_TRADE", "EC_PAID", body, headers=headers, key=key, ordering_key=ordering_key),
        encode("TP_TRADE", "EC_PAID"),
    ]

    (sent,) = frame_messages(sequence, entries)
    frame = publisher_pb2.PublishFrame.FromString(sent)

    assert frame.sequence == sequence
    said = frame.messages[0]
    assert (said.topic, said.event_code, said.body) == ("TP_TRADE", "EC_PAID", body)
    assert (said.key, said.ordering_key, dict(said.headers)) == (key, ordering_key, dict(headers))
    assert frame.messages[1].body == b""
    assert frame.messages[1].born_at_us >= said.born_at_us > 0
    assert message_of(entries[0]) == said


@pytest.mark.parametrize("size", [1, 524_000, 524_283, 524_284, 524_285, 524_288, 1_048_600, 2_097_000, 4_200_000])
@pytest.mark.parametrize("entry_bytes", [700, 131_000, 5_000_000])
def test_a_frame_is_sent_in_as_few_messages_as_a_broker_takes(size: int, entry_bytes: int) -> None:
    entries_bytes = random.Random(size).randbytes(size)
    entries = [entries_bytes[at : at + entry_bytes] for at in range(0, size, entry_bytes)]
    whole = publisher_pb2.PublishFrame(sequence=300).SerializeToString() + entries_bytes
    sent = list(frame_messages(300, entries))
    assert max(map(len, sent)) <= limits.GRPC_MESSAGE_BYTES_MAX
    if len(whole) <= limits.GRPC_MESSAGE_BYTES_MAX:
        assert sent == [whole]
        return
    assert len(sent) == math.ceil(len(whole) / limits.FRAME_PART_BYTES_MAX)
    parts = [publisher_pb2.PublishFrame.FromString(each) for each in sent]

    assert b"".join(part.part for part in parts) == whole
    assert [part.frame_bytes for part in parts] == [len(whole)] + [0] * (len(parts) - 1)


def test_a_frame_at_full_speed_fills_two_messages() -> None:
    assert len(list(frame_messages(1 << 40, [bytes(FRAME_BYTES_TARGET)]))) == 2


def test_headers_that_are_not_text_are_refused_by_name() -> None:
    with pytest.raises(InvalidHeadersError, match="'amount' is int"):
        MessageEncoder().encode("TP_TRADE", "EC_PAID", headers={"amount": 5})  # type: ignore[dict-item]


@given(st.lists(st.binary(min_size=1, max_size=30), min_size=1, max_size=30), st.integers(1, 40))
def test_pieces_are_divided_into_parts_of_one_size(pieces: list[bytes], part_bytes: int) -> None:
    parts = [b"".join(part) for part in in_parts(pieces, part_bytes)]

    assert b"".join(parts) == b"".join(pieces)
    assert {len(part) for part in parts[:-1]} <= {part_bytes}
    assert 0 < len(parts[-1]) <= part_bytes
