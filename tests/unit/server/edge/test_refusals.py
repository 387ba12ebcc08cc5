"""What is refused arrives at the caller, whatever is in it."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any
from urllib.parse import quote

import pytest
from google.rpc.error_details_pb2 import ErrorInfo  # type: ignore[import-untyped]
from google.rpc.status_pb2 import Status  # type: ignore[import-untyped]

from msgbroker.contract.errors import (
    BrokerBusyError,
    InvalidExpressionError,
    MessageCenterError,
    SubscriptionDiffersError,
    TopicSetAsideError,
)
from msgbroker.server.edge.refusals import METADATA_BYTES_MAX, status_of

PLAIN = "".join(map(chr, range(0x20, 0x7F))).replace("%", "")
"""What gRPC does not escape in the text of a status."""


def size_bytes(text: str, metadata: Any) -> int:
    """Return what a status takes on its way, as HTTP/2 counts it."""
    sent = [(name, value if isinstance(value, str) else b64encode(value)) for name, value in metadata]
    return len(quote(text, safe=PLAIN)) + sum(len(name) + len(value) + 32 for name, value in sent)


def told(metadata: Any) -> tuple[str, dict[str, str], str, dict[str, str]]:
    """Return reason and facts, as both kinds of clients read them."""
    by_name = dict(metadata)
    status = Status.FromString(by_name["grpc-status-details-bin"])
    info = ErrorInfo()
    status.details[0].Unpack(info)
    return by_name["msgcenter-reason"], json.loads(by_name["msgcenter-facts-bin"]), info.reason, dict(info.metadata)


@pytest.mark.parametrize("character", ["a", "%", "店", "\N{PILE OF POO}", "\N{ZERO WIDTH SPACE}", "\t"])
@pytest.mark.parametrize("chars", [1_000, 4_096, 100_000])
def test_a_refusal_with_long_texts_is_cut_until_it_arrives(character: str, chars: int) -> None:
    long = character * chars
    for error in (
        TopicSetAsideError(long, "DiskFull"),
        InvalidExpressionError(long),
        SubscriptionDiffersError("SG", "TP", "EC", f"x{long}", f"y{long}"),
        MessageCenterError(long, **{f"fact_{number}": long for number in range(8)}),
    ):
        text, metadata = status_of(error)

        assert size_bytes(text, metadata) <= METADATA_BYTES_MAX
        reason, facts, _, _ = told(metadata)
        assert reason == error.reason
        assert facts.keys() == error.facts.keys()
        assert text.startswith(error.message[:8])


def test_a_refusal_of_ordinary_size_is_told_in_full() -> None:
    error = BrokerBusyError(5, 4, 0.5)

    text, metadata = status_of(error)

    assert text == error.message
    assert told(metadata) == (error.reason, error.facts_text, error.reason, error.facts_text)


@pytest.mark.parametrize(
    "registered, wanted, shown, asked",
    [
        ("true", None, "true", ""),
        (f"{'a' * 500} == 'b'", f"{'a' * 500} == 'c'", f"...{'a' * 93} == 'b'", f"...{'a' * 93} == 'c'"),
        (f"b{'a' * 500}", f"c{'a' * 500}", f"b{'a' * 99}...", f"c{'a' * 99}..."),
        ("a" * 500, f"{'a' * 250}b{'a' * 249}", f"...{'a' * 100}...", f"...{'a' * 30}b{'a' * 69}..."),
    ],
)
def test_of_two_long_expressions_the_refusal_shows_where_they_begin_to_differ(
    registered: str | None, wanted: str | None, shown: str, asked: str
) -> None:
    error = SubscriptionDiffersError("SG", "TP", "EC", registered, wanted)

    assert (error.facts["registered"], error.facts["wanted"]) == (shown, asked)
