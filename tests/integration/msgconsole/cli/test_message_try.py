"""`msgcenter message try`, as operators type it."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from uuid import uuid4

import pytest

from confdb.brokers import BrokerBeat, BrokerRegistry
from confdb.store import ConfigStore
from tests.integration.msgconsole.cli.conftest import Msgcenter, Outcome
from tests.support.examples import examples_of
from tests.support.shown_message import put_example

WHY = ("--reason", "does the fix work?")
_INSTANCE = """
import asyncio, sys
from msgbroker.client import Message, MessageCenter

async def main() -> None:
    async with MessageCenter(sys.argv[1], instance_id="points-0") as center:
        @center.subscriber(group="SG_POINTS", topic="TP_TRADE")
        async def handle(message: Message) -> None:
            print(message.body.decode(), message.replayed, flush=True)
            if message.replayed and message.body == b"bad":
                raise ValueError("no such order")
        await center.run()

asyncio.run(main())
"""


@pytest.fixture
def stored(msgcenter: Msgcenter, running_broker: str) -> Iterator[list[str]]:
    """Publish two messages to a group with one instance, which has handled them; return their ids."""
    for arguments in (
        ("topic", "create", "TP_TRADE", "--queues", "1"),
        ("event-code", "create", "TP_TRADE", "EC_PAID"),
        ("group", "create", "SG_POINTS"),
        ("subscription", "create", "SG_POINTS", "TP_TRADE", "EC_PAID"),
    ):
        outcome = msgcenter(*arguments)
        assert outcome.status == 0, outcome.err
    ids = [
        msgcenter("publish", "TP_TRADE", "EC_PAID", body, "--json").json[0]["message_id"] for body in ("good", "bad")
    ]
    with subprocess.Popen(
        [sys.executable, "-c", _INSTANCE, running_broker], stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            assert process.stdout is not None
            assert {process.stdout.readline() for _ in range(2)} == {"good False\n", "bad False\n"}
            yield ids
        finally:
            process.kill()


def test_what_an_instance_makes_of_messages_is_told(msgcenter: Msgcenter, stored: list[str]) -> None:
    good, bad = stored
    of_instance = ("--group", "SG_POINTS", "--instance", "points-0")
    tried = msgcenter("message", "try", good, bad, *of_instance, "--dry-run")
    assert (tried.status, tried.out) == (0, "2 messages would be tried by points-0. Nothing was changed.\n")
    planned = msgcenter("message", "try", good, bad, *of_instance, "--dry-run", "--json").json
    assert planned == {"instance_id": "points-0", "messages": 2, "is_connected": True, "unanswered": []}

    done = msgcenter("message", "try", good, *of_instance, *WHY)
    assert done.status == 0, done.err
    assert "ACKNOWLEDGED" in done.out
    assert done.err.startswith(f"{good}: ACKNOWLEDGED after ")
    failed = msgcenter("message", "try", good, bad, *of_instance, *WHY, "--json")
    assert failed.status == 1
    record = json.loads(failed.out)
    assert (record["state"], record["untried"], record["error"]) == ("DONE", 0, None)
    assert [(each["outcome"], each["error"]) for each in record["messages"]] == [
        ("ACKNOWLEDGED", ""),
        ("FAILED", "ValueError: no such order"),
    ]
    assert msgcenter("dead-letters", "list", "--json").json == []
    assert [act["action"] for act in msgcenter("act", "list", "--json").json] == ["message.try"] * 2


@pytest.mark.usefixtures("stored")
def test_the_example_of_help_runs(msgcenter: Msgcenter, database_url: str) -> None:
    put_example(database_url)
    (example,) = (each for each in examples_of("message") if each[1] == "try")
    outcome = msgcenter(*example)
    assert outcome.status == 0, outcome.err


def test_an_instance_that_is_not_connected_is_refused_at_once(
    msgcenter: Msgcenter, stored: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def waits(*_: object) -> None:
        pytest.fail("a trial has begun")

    monkeypatch.setattr("msgconsole.operations.replays.trial.begin_trial", waits)
    assert msgcenter("group", "create", "SG_OTHER").status == 0
    assert msgcenter("subscription", "create", "SG_OTHER", "TP_TRADE", "EC_PAID").status == 0
    for group, instance in (("SG_POINTS", "points-1"), ("SG_OTHER", "points-0")):
        for options in (("--dry-run",), WHY):
            refused = msgcenter("message", "try", stored[0], "--group", group, "--instance", instance, *options)
            assert (refused.status, refused.out) == (1, "")
            said = f"there is no connected instance {instance!r} in group {group} of namespace 'default'"
            assert refused.err == f"{said} (THING_NOT_FOUND)\n"


def test_where_a_broker_has_not_answered_a_trial_is_begun_and_the_dry_run_says_so(
    msgcenter: Msgcenter, stored: list[str], database_url: str, free_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = f"127.0.0.1:{free_port + 1}"

    async def beat() -> None:
        async with ConfigStore.open(database_url) as store:
            await BrokerRegistry(store).beat(BrokerBeat(uuid4(), gone, "h", 1, 0))

    asyncio.run(beat())
    monkeypatch.setattr("msgconsole.operations.replays.trial._TAKEN_SECONDS", 0.5)
    absent = ("message", "try", stored[0], "--group", "SG_POINTS", "--instance", "points-1")

    tried = msgcenter(*absent, "--dry-run")
    assert (tried.status, tried.out) == (0, "1 message would be tried by points-1. Nothing was changed.\n")
    assert f"Incomplete: broker {gone} has not answered: " in tried.err
    assert "no broker that has answered has points-1" in tried.err
    done = msgcenter(*absent, *WHY)
    assert (done.status, "no broker that knows of trials has an instance of that id" in done.err) == (1, True)


def flat(outcome: Outcome) -> str:
    return " ".join(outcome.err.replace("│", " ").split())


@pytest.mark.parametrize(
    "arguments, said",
    [
        (("01a1f7af-5fdb-73ea-9123-a5b22c700000",), "say why"),
        (WHY, "Missing argument"),
        (("not-an-id", *WHY), "UUID"),
    ],
)
def test_what_is_mistyped_is_said(msgcenter: Msgcenter, arguments: tuple[str, ...], said: str) -> None:
    outcome = msgcenter("message", "try", "--group", "SG_POINTS", "--instance", "points-0", *arguments)

    assert (outcome.status, said in flat(outcome)) == (2, True), outcome.err
