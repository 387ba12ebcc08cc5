"""`msgcenter message trace`: the story of a message, with a real broker."""

from __future__ import annotations

from typing import Any

import pytest

from tests.integration.msgconsole.cli.conftest import Msgcenter
from tests.support.eventually import eventually_blocking


@pytest.fixture
def subscribed(msgcenter: Msgcenter, running_broker: str) -> str:
    """Register a topic of which all is traced, and a group that subscribes to it; return the broker's address."""
    for arguments in (
        ("topic", "create", "TP_TRADE", "--trace-rate", "1"),
        ("event-code", "create", "TP_TRADE", "EC_PAID"),
        ("group", "create", "SG_POINTS", "--retry-schedule", "none"),
        ("subscription", "create", "SG_POINTS", "TP_TRADE", "EC_PAID"),
    ):
        outcome = msgcenter(*arguments)
        assert outcome.status == 0, outcome.err
    return running_broker


def publish(msgcenter: Msgcenter, body: str) -> str:
    (receipt,) = msgcenter("publish", "TP_TRADE", "EC_PAID", body, "--key", "order-1", "--json").json
    message_id: str = receipt["message_id"]
    return message_id


def lines_of(msgcenter: Msgcenter, message_id: str) -> list[dict[str, Any]]:
    (copy,) = msgcenter("message", "trace", message_id, "--json").json["copies"]
    lines: list[dict[str, Any]] = copy["lines"]
    return lines


def test_a_message_is_followed_from_its_publisher_to_its_verdict(msgcenter: Msgcenter, subscribed: str) -> None:
    message_id = publish(msgcenter, "first")
    msgcenter("subscribe", "--group", "SG_POINTS", "--topic", "TP_TRADE", "--count", "1", "--json")

    eventually_blocking(lambda: len(lines_of(msgcenter, message_id)) == 4)
    lines = lines_of(msgcenter, message_id)

    assert [line["what"] for line in lines] == ["PUBLISHED", "STORED", "HANDED_OUT", "ACKED"]
    assert {line["broker"] for line in lines[1:]} == {subscribed}
    assert [line["group"] for line in lines[2:]] == ["SG_POINTS"] * 2

    told = msgcenter("message", "trace", message_id)
    assert told.status == 0
    assert message_id in told.out
    assert "key order-1" in told.out
    assert [line.split()[1] for line in told.out.splitlines() if ":" in line.split()[0] and "." in line.split()[0]] == [
        "PUBLISHED", "STORED", "HANDED_OUT", "ACKED",
    ]  # fmt: skip
    _, _, missing = told.out.partition("May be missing:\n")
    assert "less than 2 s ago" in missing


@pytest.mark.usefixtures("subscribed")
def test_the_newest_messages_of_a_key_are_followed(msgcenter: Msgcenter) -> None:
    ids = [publish(msgcenter, body) for body in ("first", "second", "third")]

    stories = msgcenter("message", "trace", "--topic", "TP_TRADE", "--key", "order-1", "--limit", "2", "--json").json

    assert [story["message_id"] for story in stories] == ids[1:]
    told = msgcenter("message", "trace", "--topic", "TP_TRADE", "--key", "order-1").out
    assert [told.index(each) for each in ids] == sorted(told.index(each) for each in ids)


@pytest.mark.usefixtures("subscribed")
def test_a_table_fits_a_terminal(msgcenter: Msgcenter, monkeypatch: pytest.MonkeyPatch) -> None:
    message_id = publish(msgcenter, "first")
    monkeypatch.setattr("msgconsole.cli.printing.output._PIPED_WIDTH", 80)

    told = msgcenter("message", "trace", message_id).out

    assert max(map(len, told.partition("May be missing:")[0].splitlines())) <= 80


@pytest.mark.usefixtures("subscribed")
def test_what_is_not_there_is_said_to_be_gone(msgcenter: Msgcenter) -> None:
    nothing = "01900000-0000-7000-8000-000000000000"

    refused = msgcenter("message", "trace", nothing)
    assert (refused.status, refused.out) == (1, "")
    assert f"there is no message in the log '{nothing}' in namespace 'default'" in refused.err
    assert "no message of TP_TRADE" in msgcenter("message", "trace", "--topic", "TP_TRADE", "--key", "x").out


@pytest.mark.parametrize(
    "arguments", [(), ("--key", "order-1"), ("--topic", "TP_TRADE"), ("not-an-id",), ("0" * 32, "--key", "order-1")]
)
def test_what_is_not_asked_clearly_is_refused(msgcenter: Msgcenter, arguments: tuple[str, ...]) -> None:
    refused = msgcenter("message", "trace", *arguments)

    assert refused.status == 2
    assert refused.out == ""
    assert refused.err


@pytest.mark.usefixtures("running_broker")
def test_the_trace_rate_of_a_topic_is_set_and_bounded(msgcenter: Msgcenter) -> None:
    assert msgcenter("topic", "create", "TP_TRADE", "--json").json["trace_rate"] == 0.01
    assert msgcenter("topic", "update", "TP_TRADE", "--trace-rate", "0.5", "--json").json["trace_rate"] == 0.5
    assert msgcenter("topic", "show", "TP_TRADE", "--json").json["trace_rate"] == 0.5
    assert msgcenter("topic", "update", "TP_TRADE", "--trace-rate", "1.5").status == 2
