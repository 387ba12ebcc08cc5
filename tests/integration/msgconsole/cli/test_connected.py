"""Who is connected, as operators see it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest

from confdb.brokers import BrokerBeat, BrokerRegistry
from confdb.store import ConfigStore
from msgbroker.client import SyncMessageCenter
from msgconsole.cli.printing import output
from msgconsole.operations.brokers.disconnecting import Disconnected
from msgdb.requests import RequestOutcome
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

    # An address is longer than there is room for, or is not.
    assert listed.err in {"", "Too narrow for: broker. --json shows all.\n"}
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


def test_an_instance_is_disconnected_with_a_reason_and_comes_back_by_itself(
    msgcenter: Msgcenter, instance: str, running_broker: str
) -> None:
    (before,) = msgcenter("instance", "list", "--json").json["instances"]
    unexplained = msgcenter("instance", "disconnect", instance)
    looked = msgcenter("instance", "disconnect", instance, "--dry-run")
    planned = msgcenter("instance", "disconnect", instance, "--dry-run", "--json").json
    done = msgcenter("instance", "disconnect", instance, "--reason", "it hangs", "--json").json

    assert (unexplained.status, "say why" in unexplained.err) == (2, True)
    assert "1 would be ended. Nothing was changed." in looked.out
    assert [each["attachment"] for each in planned["connections"]] == [before["attachment"]]
    assert [(each["group"], each["broker"], each["outcome"]) for each in done] == [
        ("SG_POINTS", running_broker, "DISCONNECTED")
    ]
    (act,) = msgcenter("act", "list", "--json").json
    assert (act["action"], act["thing"], act["reason"]) == (
        "instance.disconnect",
        f"instance {instance} of SG_POINTS",
        "it hangs",
    )

    def is_back() -> bool:
        rows = msgcenter("instance", "list", "--json").json["instances"]
        return [row["attachment"] for row in rows] not in ([], [before["attachment"]])

    eventually_blocking(is_back)


def test_who_is_not_connected_cannot_be_disconnected(msgcenter: Msgcenter, instance: str) -> None:
    nobody = msgcenter("instance", "disconnect", "nobody", "--reason", "x")
    assert msgcenter("group", "create", "SG_OTHER", "--no-wait").status == 0
    of_other_group = msgcenter("instance", "disconnect", instance, "--group", "SG_OTHER", "--reason", "x")

    assert (nobody.status, nobody.err) == (
        1,
        "there is no connected instance 'nobody' in namespace 'default' (THING_NOT_FOUND)\n",
    )
    assert (of_other_group.status, of_other_group.err) == (
        1,
        f"there is no connected instance '{instance}' in namespace 'default' (THING_NOT_FOUND)\n",
    )


def test_an_instance_of_another_namespace_is_left_alone(
    msgcenter: Msgcenter, instance: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert msgcenter("namespace", "create", "other").status == 0
    monkeypatch.setenv("MSGCENTER_NAMESPACE", "other")

    refused = msgcenter("instance", "disconnect", instance, "--reason", "x")

    assert (refused.status, refused.err) == (
        1,
        f"there is no connected instance '{instance}' in namespace 'other' (THING_NOT_FOUND)\n",
    )
    assert msgcenter("act", "list", "--json").json == []
    assert msgcenter("instance", "disconnect", instance, "-n", "default", "--dry-run").status == 0


def test_what_a_broker_has_not_done_in_time_is_a_command_that_failed(
    msgcenter: Msgcenter, instance: str, running_broker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def not_taken(*_: object, **__: object) -> list[Disconnected]:
        return [Disconnected("default", "SG_POINTS", instance, running_broker, RequestOutcome.EXPIRED)]

    monkeypatch.setattr("msgconsole.cli.commands.watching.instance.disconnect", not_taken)
    outcome = msgcenter("instance", "disconnect", instance, "--reason", "it hangs")

    assert (outcome.status, "EXPIRED" in outcome.out) == (1, True)
    assert f"broker {running_broker} has not taken it in time (BROKER_UNAVAILABLE)" in outcome.err


def test_a_publisher_is_disconnected_with_a_reason(msgcenter: Msgcenter, instance: str, running_broker: str) -> None:
    shown = msgcenter("publisher", "list").out.splitlines()[2].split()
    (row,) = msgcenter("publisher", "list", "--json").json["publishers"]
    short = row["publisher_id"][:8]
    unexplained = msgcenter("publisher", "disconnect", short)
    looked = msgcenter("publisher", "disconnect", short, "--dry-run")
    elsewhere = msgcenter("publisher", "disconnect", "00000000", "--reason", "x")
    done = msgcenter("publisher", "disconnect", short, "--reason", "it floods")

    assert short in shown
    assert (unexplained.status, "say why" in unexplained.err) == (2, True)
    assert "1 would be ended. Nothing was changed." in looked.out
    assert (elsewhere.status, elsewhere.err) == (
        1,
        "there is no connected publisher '00000000' in namespace 'default' (THING_NOT_FOUND)\n",
    )
    assert (done.status, row["publisher_id"] in done.out, "DISCONNECTED" in done.out) == (0, True, True)
    (act,) = msgcenter("act", "list", "--json").json
    assert (act["action"], act["reason"]) == ("publisher.disconnect", "it floods")


def test_a_broker_that_is_not_there_makes_an_answer_incomplete(
    msgcenter: Msgcenter, running_broker: str, database_url: str, free_port: int
) -> None:
    gone = f"127.0.0.1:{free_port + 1}"

    async def beat() -> None:
        async with ConfigStore.open(database_url) as store:
            await BrokerRegistry(store).beat(BrokerBeat(uuid4(), gone, "h", 1, 0))

    asyncio.run(beat())
    listed = msgcenter("instance", "list", "--json")

    assert f"Incomplete: broker {gone} has not answered: " in listed.err
    assert [each["broker"] for each in listed.json["unanswered"]] == [gone]


def test_the_examples_of_help_run(msgcenter: Msgcenter, instance: str) -> None:
    (publisher,) = msgcenter("publisher", "list", "--json").json["publishers"]
    for typed in examples_of("instance", "publisher"):
        # Publishers give themselves their ids.
        example = [publisher["publisher_id"][:8] if word == "7f3a91c2" else word for word in typed]
        outcome = msgcenter(*example)
        assert outcome.status == 0, (example, outcome.err)
