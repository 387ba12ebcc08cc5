"""Each answer of `msgcenter message status`, as it is typed and read, with a real broker."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import Any

import pytest

from msgbroker.v1 import subscriber_pb2
from msgdb.store import MessageStore
from tests.integration.msgconsole.cli.conftest import Msgcenter, Outcome
from tests.support.eventually import eventually, eventually_blocking
from tests.support.raw_streams import raw_subscriber

MSGCENTER = (sys.executable, "-m", "msgconsole.cli")
TYPE = ("TP_TRADE", "EC_PAID")
Told = tuple[str, str | None, str]


@pytest.fixture
def run(msgcenter: Msgcenter, running_broker: str) -> Callable[..., Outcome]:
    """Return a function that runs a command which must succeed, with a topic of one queue registered."""

    def succeed(*arguments: str) -> Outcome:
        done = msgcenter(*arguments)
        assert done.status == 0, done.err
        return done

    succeed("topic", "create", "TP_TRADE", "--queues", "1")
    for code in ("EC_PAID", "EC_SENT"):
        succeed("event-code", "create", "TP_TRADE", code)
    return succeed


def register(run: Callable[..., Outcome], group: str, *subscription: str) -> None:
    run("group", "create", group)
    if subscription:
        run("subscription", "create", group, "TP_TRADE", *subscription)


def publish(run: Callable[..., Outcome], *headers: str) -> str:
    options = [part for header in headers for part in ("--header", header)]
    (receipt,) = run("publish", *TYPE, "body", *options, "--json").json
    message_id: str = receipt["message_id"]
    return message_id


def groups(run: Callable[..., Outcome], message_id: str, place: int = 0) -> dict[str, dict[str, Any]]:
    places = run("message", "status", message_id, "--json").json["places"]
    return {each["group"]: each for each in places[place]["groups"]}


def told(run: Callable[..., Outcome], message_id: str, place: int = 0) -> dict[str, Told]:
    found = groups(run, message_id, place)
    return {name: (each["state"], each["why"], each["basis"]) for name, each in found.items()}


def flat(outcome: Outcome) -> str:
    return " ".join((outcome.out + outcome.err).replace("│", " ").split())


def read(run: Callable[..., Outcome], group: str) -> None:
    run("subscribe", "--group", group, "--topic", "TP_TRADE", "--count", "1", "--json")


def said_of_each(said: str, expected: dict[str, Told]) -> None:
    """Check that people read the same as programs."""
    for group, (state, why, basis) in expected.items():
        reason = "" if why is None else f" {why}:"
        assert f"{group} {state} {basis}{reason}" in said


def test_why_a_group_did_not_get_it(run: Callable[..., Outcome]) -> None:
    register(run, "SG_ALL", "EC_PAID")
    register(run, "SG_HZ", "EC_PAID", "--expression", 'headers.region == "hz"')
    register(run, "SG_VIP", "EC_PAID", "--expression", 'headers.vip == "1"')
    register(run, "SG_SENT", "EC_SENT")
    register(run, "SG_NOTHING")
    message_id = publish(run, "region=bj")
    publish(run, "region=hz", "vip=1")
    for group in ("SG_ALL", "SG_HZ", "SG_VIP"):
        read(run, group)
    run("subscription", "create", "SG_NOTHING", *TYPE)
    register(run, "SG_LATE", "EC_PAID")
    expected: dict[str, Told] = {
        "SG_ALL": ("DELIVERED", None, "THEN"),
        "SG_HZ": ("NOT_MATCHED", "EXPRESSION_FALSE", "THEN"),
        "SG_LATE": ("NOT_MATCHED", "GROUP_CREATED_LATER", "NOW"),
        "SG_NOTHING": ("NOT_MATCHED", "SUBSCRIBED_LATER", "NOW"),
        "SG_SENT": ("NOT_MATCHED", "NO_SUBSCRIPTION", "NOW"),
        "SG_VIP": ("NOT_MATCHED", "EXPRESSION_FAILED", "THEN"),
    }

    eventually_blocking(lambda: told(run, message_id) == expected)
    said = flat(run("message", "status", message_id))

    said_of_each(said, expected)
    assert 'is false: headers.region == "hz"' in said
    assert "header 'vip' is missing" in said
    assert "began behind it, at offset 2" in said
    assert "it subscribes to EC_SENT of TP_TRADE, and not to EC_PAID" in said


def test_a_stress_message_is_for_groups_on_the_whitelist(run: Callable[..., Outcome]) -> None:
    register(run, "SG_ALL", "EC_PAID")
    message_id = publish(run, "x-stress-test=true")
    publish(run)
    expected: dict[str, Told] = {"SG_ALL": ("NOT_MATCHED", "STRESS_NOT_ALLOWED", "NOW")}
    assert told(run, message_id) == expected
    said_of_each(flat(run("message", "status", message_id)), expected)
    read(run, "SG_ALL")

    settled: dict[str, Told] = {"SG_ALL": ("NOT_MATCHED", "STRESS_NOT_ALLOWED", "THEN")}
    eventually_blocking(lambda: told(run, message_id) == settled)

    said_of_each(flat(run("message", "status", message_id)), settled)
    assert "a stress message" in flat(run("message", "status", message_id))


def test_a_replayed_message_is_for_one_group_alone(run: Callable[..., Outcome]) -> None:
    register(run, "SG_ALL", "EC_PAID")
    register(run, "SG_OTHER", "EC_PAID")
    message_id = publish(run)
    run("message", "replay", message_id, "--group", "SG_ALL", "--reason", "why")
    expected: dict[str, Told] = {
        "SG_ALL": ("PENDING", None, "NOW"),
        "SG_OTHER": ("NOT_MATCHED", "FOR_ANOTHER_GROUP", "ROWS"),
    }

    eventually_blocking(lambda: len(run("message", "status", message_id, "--json").json["places"]) == 2)

    assert told(run, message_id, 1) == expected
    said = flat(run("message", "status", message_id))
    said_of_each(said, expected)
    assert "stored again for one group alone" in said


def test_what_was_deleted_since_is_told_of(run: Callable[..., Outcome]) -> None:
    for group in ("SG_ALL", "SG_GONE", "SG_LEFT"):
        register(run, group, "EC_PAID")
    message_id = publish(run)
    read(run, "SG_ALL")
    eventually_blocking(lambda: told(run, message_id)["SG_ALL"] == ("DELIVERED", None, "THEN"))
    run("subscription", "delete", "SG_LEFT", *TYPE, "--force", "--reason", "why")
    run("group", "delete", "SG_GONE", "--force", "--reason", "it has moved")
    register(run, "SG_GONE", "EC_PAID")

    found = run("message", "status", message_id, "--group", "SG_GONE", "--json").json["places"][0]["groups"]
    said = flat(run("message", "status", message_id))

    assert [(each["why"], each["deleted"] is None) for each in found] == [
        ("GROUP_DELETED", False),
        ("GROUP_CREATED_LATER", True),
    ]
    assert found[0]["deleted"]["subscriptions"] == ["EC_PAID"]
    assert found[0]["deleted"]["reason"] == "it has moved"
    number = found[0]["group_id"]
    assert f"SG_GONE #{number} NOT_MATCHED THEN GROUP_DELETED: deleted at 20" in said
    assert "(it has moved), subscribed to EC_PAID then" in said
    said_of_each(
        said,
        {
            "SG_GONE": ("NOT_MATCHED", "GROUP_CREATED_LATER", "NOW"),
            "SG_LEFT": ("NOT_MATCHED", "SUBSCRIPTION_DELETED", "NOW"),
        },
    )
    run("topic", "delete", "TP_TRADE", "--force", "--reason", "why")
    assert groups(run, message_id)["SG_LEFT"]["why"] == "TOPIC_DELETED"
    assert groups(run, message_id)["SG_ALL"]["state"] == "DELIVERED"
    assert "the topic was deleted at 20" in flat(run("message", "status", message_id))


def test_where_a_message_is_on_its_way(run: Callable[..., Outcome], running_broker: str) -> None:
    register(run, "SG_POINTS", "EC_PAID")
    message_id = publish(run)
    nobody: dict[str, Told] = {"SG_POINTS": ("PENDING", None, "NOW")}
    assert told(run, message_id) == nobody
    said_of_each(flat(run("message", "status", message_id)), nobody)

    asyncio.run(on_its_way(running_broker, message_id))

    assert told(run, message_id)["SG_POINTS"][0] == "DEAD_LETTER"
    run("dead-letters", "redrive", "--group", "SG_POINTS", "--reason", "why")
    eventually_blocking(lambda: len(run("message", "status", message_id, "--json").json["places"]) == 2)
    said = flat(run("message", "status", message_id))
    assert "SG_POINTS DEAD_LETTER ROWS dead letter 1, REJECTED after 2 attempts; redriven by job 1" in said
    assert "SG_POINTS PENDING NOW" in said
    assert "redriven 1 time" in said
    run("group", "reset", "SG_POINTS", "--topic", "TP_TRADE", "--to-end", "--reason", "too old")
    assert told(run, message_id, 1) == {"SG_POINTS": ("SKIPPED", None, "ROWS")}
    assert "too old (act " in flat(run("message", "status", message_id))


async def on_its_way(broker: str, message_id: str) -> None:
    async with raw_subscriber(broker, group="SG_POINTS", instance_id="shop-1") as subscriber:
        (given,) = await subscriber.until(1)
        held = "SG_POINTS IN_FLIGHT BROKER instance shop-1 has it, as attempt 1, until "
        await until(message_id, held)
        await subscriber.settle(given, verdict=subscriber_pb2.VERDICT_RETRY, error="timeout", delay_ms=60_000)
        await until(message_id, "SG_POINTS RETRYING ROWS attempt 2 is due at ")
        await typed("message", "retry-now", message_id, "--group", "SG_POINTS", "--reason", "why")
        await subscriber.settle((await subscriber.until(2))[1], verdict=subscriber_pb2.VERDICT_REJECT, error="no")
        await until(message_id, "SG_POINTS DEAD_LETTER")


async def typed(*arguments: str) -> str:
    """Run a command as a process of its own, because this one serves the instance meanwhile."""
    process = await asyncio.create_subprocess_exec(*MSGCENTER, *arguments, stdout=asyncio.subprocess.PIPE)
    out, _ = await process.communicate()
    assert process.returncode == 0
    return " ".join(out.decode().replace("│", " ").split())


async def until(message_id: str, said: str) -> None:
    """Wait until the command says so."""

    async def is_said() -> bool:
        return said in await typed("message", "status", message_id)

    await eventually(is_said, seconds=60.0, what=said)


def test_where_the_log_has_lost_its_end_it_is_said_what_cannot_be_told(
    run: Callable[..., Outcome], database_url: str
) -> None:
    register(run, "SG_ALL", "EC_PAID")
    old = publish(run)
    publish(run)
    read(run, "SG_ALL")
    eventually_blocking(lambda: told(run, old)["SG_ALL"][0] == "DELIVERED")

    async def lose_the_end() -> None:
        async with MessageStore.open(database_url, pool_size=1) as opened, opened.connection() as conn:
            await conn.execute("DELETE FROM message")
            await conn.execute("UPDATE cursor SET acked_offset = 2")

    asyncio.run(lose_the_end())
    message_id = publish(run)

    said = flat(run("message", "status", message_id))
    (other,) = groups(run, message_id)["SG_ALL"]["others"]
    assert (other["state"], groups(run, message_id)["SG_ALL"]["is_certain"]) == ("UNKNOWN", False)
    assert "or UNKNOWN" in said
    assert "if it was stored after the log had lost its end" in said


def test_what_waits_for_a_paused_subscription_and_what_has_expired(
    run: Callable[..., Outcome], database_url: str
) -> None:
    register(run, "SG_ALL", "EC_PAID")
    run("subscription", "create", "SG_ALL", "TP_TRADE", "EC_SENT")
    run("subscription", "update", "SG_ALL", *TYPE, "--pause")
    message_id = publish(run)
    run("publish", "TP_TRADE", "EC_SENT", "body")
    read(run, "SG_ALL")
    shelved: dict[str, Told] = {"SG_ALL": ("SHELVED", None, "ROWS")}
    eventually_blocking(lambda: told(run, message_id) == shelved)
    said_of_each(flat(run("message", "status", message_id)), shelved)
    run("message", "skip", message_id, "--group", "SG_ALL", "--reason", "why")

    def execute(statement: str) -> None:
        async def execute_it() -> None:
            async with MessageStore.open(database_url, pool_size=1) as opened, opened.connection() as conn:
                await conn.execute(statement)

        asyncio.run(execute_it())

    # As its day does, when it goes before the group has settled it.
    execute("UPDATE dead_letter SET reason = 'EXPIRED'")
    expired: dict[str, Told] = {"SG_ALL": ("EXPIRED", None, "ROWS")}
    assert told(run, message_id) == expired
    said_of_each(flat(run("message", "status", message_id)), expired)
    register(run, "SG_OTHER", "EC_PAID")
    execute("DELETE FROM message")
    execute("UPDATE queue SET start_offset = 1")
    gone = run("message", "status", "--queue", "1", "--offset", "0")
    assert "SG_ALL EXPIRED ROWS" in flat(gone)
    assert "SG_OTHER GONE ROWS its day is gone" in flat(gone)


def test_a_key_is_shown_and_not_obeyed(run: Callable[..., Outcome]) -> None:
    register(run, "SG_ALL", "EC_PAID")
    hostile = "order-1\x1b[2J\nSG_FORGED DELIVERED"
    (receipt,) = run("publish", *TYPE, "body", "--key", hostile, "--header", f"{hostile}=1", "--json").json

    for command in (("status",), ("trace",), ("show",), ("find", "--topic", "TP_TRADE", "--key", hostile)):
        name, *arguments = command
        said = run("message", name, *(arguments or [receipt["message_id"]])).out
        assert "order-1\\x1b[2J\\nSG_FORGED" in said, name
        assert "\x1b" not in said, name
        assert not any(line.startswith("SG_FORGED") for line in said.splitlines()), name
    said = run("group", "unsettled", "SG_ALL").out
    assert "\x1b" not in said
    assert "order-1\\x1b[2J\\nSG_FORGED" in " ".join(said.split())
