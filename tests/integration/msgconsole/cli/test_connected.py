"""Who is connected, as operators see it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from msgbroker.client import SyncMessageCenter
from msgconsole.cli import output
from tests.integration.msgconsole.cli.conftest import Msgcenter
from tests.support.eventually import eventually_blocking
from tests.support.examples import examples_of


@pytest.fixture
def instance(msgcenter: Msgcenter, running_broker: str) -> Iterator[str]:
    """Connect an instance of SG_POINTS that has acknowledged a message; return its id."""
    for arguments in (
        ("topic", "create", "TP_TRADE"),
        ("event-code", "create", "TP_TRADE", "EC_PAID"),
        ("group", "create", "SG_POINTS"),
        ("subscription", "create", "SG_POINTS", "TP_TRADE", "EC_PAID"),
    ):
        outcome = msgcenter(*arguments)
        assert outcome.status == 0, outcome.err
    handled: list[Any] = []
    with SyncMessageCenter(running_broker, instance_id="shop-1:4711") as center:
        center.subscriber(group="SG_POINTS", topic="TP_TRADE")(handled.append)
        center.start()
        center.publish("TP_TRADE", "EC_PAID", "x")
        eventually_blocking(lambda: handled)
        yield "shop-1:4711"


def test_an_instance_is_listed_in_eighty_columns(
    msgcenter: Msgcenter, instance: str, running_broker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    eventually_blocking(lambda: "ACK" in msgcenter("instance", "list").out)
    wide = msgcenter("instance", "list", "--wide")
    monkeypatch.setattr(output, "_PIPED_WIDTH", 80)
    listed = msgcenter("instance", "list", "--group", "SG_POINTS")
    as_json = msgcenter("instance", "list", "--json").json

    assert listed.err == ""
    assert max(len(line) for line in listed.out.splitlines()) <= 80
    assert instance in listed.out
    assert "python/" in wide.out
    (row,) = as_json["instances"]
    assert (row["instance_id"], row["last_verdict"], row["unsettled"], row["paused"]) == (instance, "ACK", 0, False)
    assert as_json["unanswered"] == []


def test_who_is_not_connected_is_not_listed(msgcenter: Msgcenter, instance: str) -> None:
    nobody = msgcenter("instance", "list", "--id", "nobody")

    assert (nobody.status, nobody.out) == (0, "No such instance is connected.\n")


def test_a_publisher_is_listed(msgcenter: Msgcenter, instance: str, running_broker: str) -> None:
    listed = msgcenter("publisher", "list")
    (row,) = msgcenter("publisher", "list", "--json").json["publishers"]

    assert running_broker in listed.out
    assert (row["publisher_group"], row["broker"], row["unanswered_frames"]) == ("", running_broker, 0)


def test_the_examples_of_help_run(msgcenter: Msgcenter, instance: str) -> None:
    for example in examples_of("instance", "publisher"):
        outcome = msgcenter(*example)
        assert outcome.status == 0, (example, outcome.err)
