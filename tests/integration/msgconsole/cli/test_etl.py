"""What became of days, as operators read it, and letting one go by name."""

from __future__ import annotations

import asyncio
import shlex
from datetime import date, datetime, timedelta
from uuid import uuid4

import pytest

from confdb.brokers import BrokerBeat, BrokerRegistry
from confdb.store import ConfigStore
from msgdb.archive import claims, policy
from msgdb.log.partitions import day_bounds
from msgdb.names import DEAD_LETTER, MESSAGE
from msgdb.postgres.connections import Connection
from tests.integration.msgconsole.cli.conftest import Do, Msgcenter
from tests.support.archive_runs import HOLDER, archive_day, bury, claim_day, days_ago, put_on
from tests.support.rows import make_queue
from tests.support.typed_commands import typed_in


@pytest.fixture
def three_days(do: Do) -> list[date]:
    """Store messages of three days of which an archive is required, the newest first; the middle one is archived."""
    days = [days_ago(1), days_ago(2), days_ago(3)]

    async def store(conn: Connection) -> None:
        queue_id = await make_queue(conn)
        for number, day in enumerate(reversed(days)):
            await put_on(conn, queue_id, range(number * 10, number * 10 + 10), day)
        await policy.require(conn, MESSAGE, actor="ada", reason="audit", from_day=days[-1])
        await archive_day(conn, days[1])

    do(store)
    return days


def test_days_that_wait_are_listed_first(msgcenter: Msgcenter, three_days: list[date]) -> None:
    listed = msgcenter("etl", "list", "--json").json
    assert [(each["day"], each["state"], each["waiting"]) for each in listed] == [
        (f"{three_days[0]}", "PENDING", True),
        (f"{three_days[2]}", "PENDING", True),
        (f"{three_days[1]}", "ARCHIVED", False),
    ]
    assert [each["age_days"] for each in listed] == [0, 2, 1]
    assert (listed[2]["rows"], listed[2]["files"], listed[2]["bytes"]) == (10, 1, 1_000)
    done = msgcenter("etl", "list", "--limit", "2")
    assert done.err == "Only the first 2: there are more (--limit).\n"
    assert [line.split()[:4] for line in done.out.splitlines()[2:]] == [
        ["message", f"{three_days[0]}", "PENDING", "yes"],
        ["message", f"{three_days[2]}", "PENDING", "yes"],
    ]


def test_a_day_that_waits_is_listed_with_why_its_last_run_failed(
    msgcenter: Msgcenter, do: Do, three_days: list[date]
) -> None:
    async def fail(conn: Connection) -> None:
        await claims.fail(conn, await claim_day(conn, three_days[0]), "no space left on device")

    do(fail)
    first, *_ = msgcenter("etl", "list", "--json").json
    assert (first["day"], first["state"], first["reason"]) == (
        f"{three_days[0]}",
        "PENDING",
        "no space left on device",
    )


def test_days_of_dead_letters_are_listed_by_the_day_they_died(msgcenter: Msgcenter, do: Do) -> None:
    at: datetime = day_bounds(days_ago(2))[0] + timedelta(hours=1)

    async def store(conn: Connection) -> None:
        await bury(conn, at, at)
        await archive_day(conn, days_ago(2), DEAD_LETTER)

    do(store)
    (listed,) = msgcenter("etl", "list", "--table", "dead_letter", "--json").json
    assert (listed["table"], listed["day"], listed["state"]) == ("dead_letter", f"{days_ago(2)}", "ARCHIVED")
    listed_of_messages = msgcenter("etl", "list", "--table", "message", "--json").json
    assert [each["day"] for each in listed_of_messages] == [f"{days_ago(1)}"], "what a migration makes"


def test_a_day_is_shown_with_its_runs_and_what_is_archived_of_each_queue(
    msgcenter: Msgcenter, do: Do, three_days: list[date]
) -> None:
    day = three_days[1]

    async def begin_again(conn: Connection) -> None:
        await claim_day(conn, day, again=True)

    do(begin_again)
    found = msgcenter("etl", "show", f"{day}", "--json").json
    assert [(run["state"], run["holder"], run["rows"]) for run in found["runs"]] == [
        ("RUNNING", HOLDER, None),
        ("VERIFIED", HOLDER, 10),
    ]
    assert found["run_id"] == found["runs"][1]["run_id"]
    (of_queue,) = found["ranges"]
    assert (of_queue["first_offset"], of_queue["last_offset"], of_queue["rows"]) == (10, 19, 10)
    text = msgcenter("etl", "show", f"{day}").out
    assert "RUNNING" in text
    assert of_queue["digest"] in text


def test_a_day_that_is_not_known_is_refused(msgcenter: Msgcenter) -> None:
    done = msgcenter("etl", "show", "2026-01-01")
    assert (done.status, done.err) == (1, "there is no day of message '2026-01-01' (THING_NOT_FOUND)\n")


@pytest.mark.parametrize("command", [("show", "yesterday"), ("waive", "--day", "17.11.", "--reason", "x")])
def test_what_is_no_day_is_mistyped(msgcenter: Msgcenter, command: tuple[str, ...]) -> None:
    done = msgcenter("etl", *command)
    assert done.status == 2
    assert "is no day like 2026-11-17" in " ".join(done.err.replace("│", " ").split())


def test_a_table_without_an_archive_is_mistyped(msgcenter: Msgcenter) -> None:
    done = msgcenter("etl", "list", "--table", "publisher_frame")
    assert done.status == 2
    assert "is none of message, dead_letter" in " ".join(done.err.replace("│", " ").split())


def test_a_pending_day_is_waived_by_name(msgcenter: Msgcenter, three_days: list[date]) -> None:
    waive = ("etl", "waive", "--day", f"{three_days[0]}", "--reason", "load test")
    assert msgcenter(*waive).out == f"{three_days[0]} of message is dropped without an archive once it has expired.\n"
    assert msgcenter("etl", "show", f"{three_days[0]}", "--json").json["state"] == "WAIVED"
    act, required = msgcenter("act", "list", "--json").json
    assert (act["action"], act["thing"], act["reason"]) == ("archive.waive", f"message {three_days[0]}", "load test")
    assert act["actor"].startswith("cli:")
    assert (required["actor"], required["action"]) == ("ada", "archive.require")
    # It is not pending any more.
    again = msgcenter(*waive)
    assert (again.status, again.err.count("(DAY_STATE)")) == (1, 1)


def test_acts_are_listed_from_one_on(msgcenter: Msgcenter, three_days: list[date]) -> None:
    for day in three_days[::2]:
        msgcenter("etl", "waive", "--day", f"{day}", "--reason", "load test")
    newest, *rest = msgcenter("act", "list", "--json").json
    assert msgcenter("act", "list", "--before", str(newest["act_id"]), "--json").json == rest
    table = msgcenter("act", "list", "--limit", "1").out
    assert table.splitlines()[0].split() == ["act", "id", "at", "actor", "action", "thing", "reason"]


def test_what_is_required_is_shown_until_it_is_stopped(msgcenter: Msgcenter, three_days: list[date]) -> None:
    (required,) = msgcenter("etl", "policy", "--json").json
    assert (required["table"], required["required_from"]) == ("message", f"{three_days[-1]}")
    stop = ("etl", "stop-requiring", "--reason", "moved")
    assert msgcenter(*stop).out == "Days of message are dropped as they expire from now on, archived or not.\n"
    assert msgcenter(*stop).out == "No archive of message was required.\n"
    assert msgcenter("etl", "policy").out == "No archive is required: days are dropped as they expire.\n"
    assert msgcenter("act", "list", "--json").json[0]["action"] == "archive.stop_requiring"


@pytest.fixture
def old_broker(database_url: str) -> None:
    """Let a broker run that knows nothing of the archive."""

    async def beat() -> None:
        async with ConfigStore.open(database_url) as config:
            await BrokerRegistry(config).beat(BrokerBeat(uuid4(), "127.0.0.1:7402", "host-1", 42, 1))

    asyncio.run(beat())


def test_it_is_required_from_today_on_or_of_all_days_that_are_there(
    msgcenter: Msgcenter, three_days: list[date]
) -> None:
    msgcenter("etl", "stop-requiring", "--reason", "to begin anew")
    require = ("etl", "require", "--reason", "audit")
    said = msgcenter(*require).out
    assert said == f"Days of message from {days_ago(0)} on are dropped only once they are archived.\n"
    required = msgcenter(*require, "--include-past", "--json").json
    assert (required["table"], required["required_from"]) == ("message", f"{three_days[-1]}")
    *acts, _, _ = msgcenter("act", "list", "--json").json
    assert [(act["actor"][:4], act["action"]) for act in acts] == [("cli:", "archive.require")] * 2


def test_it_is_not_required_while_a_broker_runs_that_does_not_understand_it(
    msgcenter: Msgcenter, old_broker: None
) -> None:
    done = msgcenter("etl", "require", "--reason", "audit")
    assert (done.status, done.err.count("(FEATURE_NOT_EVERYWHERE)")) == (1, 1)
    assert "127.0.0.1:7402" in done.err
    assert msgcenter("etl", "policy", "--json").json == []


def test_what_is_typed_of_letting_days_go_does_what_is_said(msgcenter: Msgcenter, three_days: list[date]) -> None:
    for command in typed_in("command-line.md", "The archive", 1):
        typed = command.replace("2026-11-17", f"{three_days[0]}")
        done = msgcenter(*shlex.split(typed, comments=True)[1:])
        assert (done.status, done.err) == (0, "")
    actions = [act["action"] for act in msgcenter("act", "list", "--json").json]
    assert actions[:3] == ["archive.stop_requiring", "archive.waive", "archive.require"]


def test_nothing_is_done_without_a_reason(msgcenter: Msgcenter, three_days: list[date]) -> None:
    assert msgcenter("etl", "waive", "--day", f"{three_days[0]}").status == 2
    done = msgcenter("etl", "waive", "--day", f"{three_days[0]}", "--reason", " ")
    assert (done.status, done.err) == (1, "reason must be said (INVALID_SETTING)\n")
    assert msgcenter("etl", "show", f"{three_days[0]}", "--json").json["state"] == "PENDING"
