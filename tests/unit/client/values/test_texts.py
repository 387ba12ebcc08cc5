"""Texts from outside: whatever they are, the wire can carry what becomes of them."""

from __future__ import annotations

import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from msgbroker.client import MessageCenter, Reject
from msgbroker.client.values.texts import safe_text, text_of
from msgbroker.client.values.verdicts import Verdict, VerdictKind, verdict_of
from msgbroker.v1 import subscriber_pb2

_ANY_TEXT = st.text(st.characters(exclude_categories=()))


@given(_ANY_TEXT, st.integers(1, 20))
def test_any_text_becomes_one_that_protobuf_takes(text: str, chars_max: int) -> None:
    safe = safe_text(text, chars_max)

    assert len(safe) <= chars_max
    assert "\0" not in safe
    assert subscriber_pb2.Settlement(error=safe).error == safe


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20))
def test_a_text_that_is_fine_stays_as_it_is(text: str) -> None:
    assert safe_text(text, 20) == text


def test_a_text_that_cannot_be_read_says_so() -> None:
    class Unreadable:
        def __str__(self) -> str:
            raise RuntimeError

    class NotText:
        def __str__(self) -> str:
            return 7  # type: ignore[return-value]  # noqa: PLE0307 - as it happens

    assert text_of(Unreadable()) == "(its text cannot be read: RuntimeError)"
    assert text_of(NotText()) == "(its text cannot be read: TypeError)"


def test_an_odd_verdict_is_a_failure() -> None:
    odd = Reject()
    odd.verdict = "never"  # type: ignore[assignment]

    assert verdict_of(odd) == Verdict(VerdictKind.RETRY, None, "Reject: ")


def test_a_host_name_of_any_bytes_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "host-\udcff" * 100)
    center = MessageCenter()

    host = center._core.config.host
    assert host.startswith("host-\\udcff")
    assert len(host) == 128
    assert center.instance_id.isascii()
