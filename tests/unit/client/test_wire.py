"""Messages encoded by hand are what the generated classes read, whatever is in them."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from msgbroker.client.wire import MessageEncoder, frame_bytes, message_of
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
    entries = [encode("TP_TRADE", "EC_PAID", body, headers, key, ordering_key), encode("TP_TRADE", "EC_PAID")]

    frame = publisher_pb2.PublishFrame.FromString(frame_bytes(sequence, b"".join(entries)))

    assert frame.sequence == sequence
    said = frame.messages[0]
    assert (said.topic, said.event_code, said.body) == ("TP_TRADE", "EC_PAID", body)
    assert (said.key, said.ordering_key, dict(said.headers)) == (key, ordering_key, dict(headers))
    assert frame.messages[1].body == b""
    assert frame.messages[1].born_at_us >= said.born_at_us > 0
    assert message_of(entries[0]) == said


def test_headers_that_are_not_text_are_refused_by_name() -> None:
    with pytest.raises(InvalidHeadersError, match="'amount' is int"):
        MessageEncoder().encode("TP_TRADE", "EC_PAID", headers={"amount": 5})  # type: ignore[dict-item]
