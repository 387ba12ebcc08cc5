"""Publishing, subscribing and looking after messages by the command line, with a real broker."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import psycopg
import pytest

from msgconsole.local.broker_process import BROKER_COMMAND, is_serving
from tests.integration.msgconsole.cli.conftest import Msgcenter
from tests.support.eventually import eventually_blocking
from tests.support.processes import left_running


@pytest.fixture
def subscribed(msgcenter: Msgcenter, running_broker: str) -> str:
    """Register a topic, an event code, and a group that subscribes to it; return the broker's address."""
    for arguments in (
        ("topic", "create", "TP_TRADE"),
        ("event-code", "create", "TP_TRADE", "EC_PAID"),
        ("group", "create", "SG_POINTS", "--retry-schedule", "none"),
        ("subscription", "create", "SG_POINTS", "TP_TRADE", "EC_PAID"),
    ):
        outcome = msgcenter(*arguments)
        assert outcome.status == 0, outcome.err
    return running_broker


@pytest.mark.usefixtures("subscribed")
def test_what_is_published_is_printed_by_subscribe(msgcenter: Msgcenter) -> None:
    receipts = msgcenter(
        "publish", "TP_TRADE", "EC_PAID", '{"order": 1}', "--header", "region=hz", "--key", "order-1", "--json"
    ).json
    outcome = msgcenter("subscribe", "--group", "SG_POINTS", "--topic", "TP_TRADE", "--count", "1", "--json")
    message = outcome.json
    assert message["message_id"] == receipts[0]["message_id"]
    assert (message["body"], message["headers"], message["key"]) == ('{"order": 1}', {"region": "hz"}, "order-1")


@pytest.mark.usefixtures("subscribed")
def test_a_key_that_is_not_there_is_null_in_every_command(msgcenter: Msgcenter) -> None:
    msgcenter("publish", "TP_TRADE", "EC_PAID", "x")
    shown = msgcenter("subscribe", "--group", "SG_POINTS", "--topic", "TP_TRADE", "--count", "1", "--json").json
    assert shown["key"] is None


@pytest.mark.usefixtures("subscribed")
def test_a_body_comes_from_a_file_or_from_stdin(
    msgcenter: Msgcenter, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "body").write_bytes(b"\xff\x00from file")
    assert msgcenter("publish", "TP_TRADE", "EC_PAID", "--file", "body").status == 0
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"from stdin")))
    assert msgcenter("publish", "TP_TRADE", "EC_PAID", "-").status == 0
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"piped")))
    assert msgcenter("publish", "TP_TRADE", "EC_PAID").status == 0
    outcome = msgcenter("subscribe", "--group", "SG_POINTS", "--topic", "TP_TRADE", "--count", "3", "--json")
    assert outcome.status == 0, outcome.err
    bodies = {json.loads(line).get("body", "binary") for line in outcome.out.splitlines()}
    assert bodies == {"binary", "from stdin", "piped"}


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("stdin", [_Terminal(), io.TextIOWrapper(io.BytesIO(b""))], ids=["terminal", "nothing piped"])
def test_publishing_without_a_body_is_a_mistyped_command(
    msgcenter: Msgcenter, monkeypatch: pytest.MonkeyPatch, stdin: io.TextIOBase
) -> None:
    monkeypatch.setattr(sys, "stdin", stdin)
    outcome = msgcenter("publish", "TP_TRADE", "EC_PAID")
    assert outcome.status == 2
    assert "there is none" in outcome.err


@pytest.mark.usefixtures("subscribed")
@pytest.mark.parametrize("options", [("--json",), ()], ids=["json", "text"])
def test_a_reader_that_goes_ends_subscribe_and_the_rest_is_given_back(
    msgcenter: Msgcenter, options: tuple[str, ...]
) -> None:
    # More than a pipe holds: the command must find out while it prints.
    assert msgcenter("publish", "TP_TRADE", "EC_PAID", "x" * 8_000, "--count", "50").status == 0
    command = [sys.executable, "-m", "msgconsole.cli", "subscribe", "--group", "SG_POINTS", "--topic", "TP_TRADE"]
    process = subprocess.Popen([*command, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    process.stdout = None
    _, said = process.communicate(timeout=20)
    assert (process.returncode, said) == (0, b"")
    assert [letter["last_error"] for letter in msgcenter("dead-letters", "list", "--json").json] == []
    again = msgcenter("subscribe", "--group", "SG_POINTS", "--topic", "TP_TRADE", "--json", "--count", "30")
    assert {json.loads(line)["attempt"] for line in again.out.splitlines()} == {1}


@pytest.mark.usefixtures("subscribed")
def test_a_reader_that_goes_ends_subscribe_even_if_no_message_comes(msgcenter: Msgcenter) -> None:
    assert msgcenter("publish", "TP_TRADE", "EC_PAID", "x").status == 0
    command = [sys.executable, "-m", "msgconsole.cli", "subscribe", "--group", "SG_POINTS", "--topic", "TP_TRADE"]
    process = subprocess.Popen([*command, "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert json.loads(process.stdout.readline())["body"] == "x"
    process.stdout.close()
    process.stdout = None
    _, said = process.communicate(timeout=20)
    assert (process.returncode, said) == (0, b"")


@pytest.mark.usefixtures("subscribed")
def test_lag_shows_what_waits_even_for_a_group_that_never_connected(msgcenter: Msgcenter) -> None:
    assert "25 messages are stored" in msgcenter("publish", "TP_TRADE", "EC_PAID", "x", "--count", "25").out
    (row,) = msgcenter("lag", "--json").json
    assert (row["group"], row["topic"], row["behind"], row["dead_letters"]) == ("SG_POINTS", "TP_TRADE", 25, 0)
    by_queue = msgcenter("lag", "--by-queue", "--group", "SG_POINTS", "--json").json
    assert sum(row["behind"] for row in by_queue) == 25
    assert len(by_queue) == 4
    assert "TP_TRADE" in msgcenter("lag").out


@pytest.mark.usefixtures("subscribed")
@pytest.mark.parametrize(
    "option, name, reason",
    [
        ("--group", "SG_TYPO", "GROUP_NOT_FOUND"),
        ("--topic", "TP_TYPO", "TOPIC_NOT_FOUND"),
        ("--namespace", "typo", "NAMESPACE_NOT_FOUND"),
    ],
)
def test_the_lag_of_what_is_not_registered_is_refused(
    msgcenter: Msgcenter, option: str, name: str, reason: str
) -> None:
    for others in ((), ("--by-queue",), ("--json",)):
        outcome = msgcenter("lag", option, name, *others)
        assert (outcome.status, outcome.out) == (1, "")
        assert outcome.err.endswith(f"({reason})\n")
        assert name in outcome.err


@pytest.mark.usefixtures("subscribed")
def test_a_group_without_subscriptions_has_no_lag_and_is_named(msgcenter: Msgcenter) -> None:
    assert msgcenter("group", "create", "SG_IDLE").status == 0
    assert msgcenter("lag", "--group", "SG_IDLE").out == "Group SG_IDLE does not subscribe to anything.\n"
    assert msgcenter("lag", "--group", "SG_IDLE", "--topic", "TP_TRADE", "--json").json == []
    assert len(msgcenter("lag", "--group", "SG_POINTS", "--namespace", "default", "--json").json) == 1


@pytest.mark.usefixtures("subscribed")
def test_long_errors_are_cut_in_lists_and_whole_where_one_thing_is_shown(
    msgcenter: Msgcenter, database_url: str
) -> None:
    error = "ValueError: " + "订单没有编号 " * 50
    msgcenter("publish", "TP_TRADE", "EC_PAID", "x")
    with psycopg.connect(database_url) as connection:
        connection.execute(
            "INSERT INTO alarm (broker_id, broker, kind, thing, detail)"
            " VALUES (gen_random_uuid(), 'here:1', 'LANE_SET_ASIDE', 'a lane', %s)",
            (error,),
        )
        connection.execute(
            "INSERT INTO dead_letter (group_id, group_name, attempts, reason, last_error, queue_id, queue_offset,"
            " stored_at, message_id, namespace, topic, event_code, body, born_at, stress)"
            " SELECT group_id, name, 1, 'REJECTED', %s, 1, 0, now(), gen_random_uuid(), 'default', 'TP_TRADE',"
            " 'EC_PAID', '', now(), false FROM subscriber_group",
            (error,),
        )
    for command, field in (("dead-letters", "last_error"), ("alarm", "detail")):
        (listed,) = msgcenter(command, "list", "--json").json
        assert listed[field] == error
        number = str(listed["id" if command == "dead-letters" else "alarm_id"])
        table = msgcenter(command, "list").out
        assert "ValueError: 订单没有编号" in table
        assert table.count("订单没有编号") < 10
        assert "..." in table
        assert msgcenter(command, "show", number, "--json").json[field] == error
        assert msgcenter(command, "show", number).out.count("订单没有编号") == 50
    assert "there is no alarm '999999'" in msgcenter("alarm", "show", "999999").err


@pytest.mark.usefixtures("subscribed")
def test_a_refused_message_is_one_line_and_status_1(msgcenter: Msgcenter) -> None:
    outcome = msgcenter("publish", "TP_TRADE", "EC_NONE", "x")
    assert outcome.status == 1
    assert outcome.err.endswith("(EVENT_CODE_NOT_FOUND)\n")


def test_without_a_broker_publish_says_so(msgcenter: Msgcenter, free_port: int) -> None:
    outcome = msgcenter(
        "publish", "TP_TRADE", "EC_PAID", "x", "--broker", f"127.0.0.1:{free_port}", "--timeout-seconds", "1"
    )
    assert outcome.status == 1
    assert (outcome.out, outcome.err.count("\n")) == ("", 1)


@pytest.mark.usefixtures("running_broker")
def test_the_demo_has_every_count_right_again_and_again(msgcenter: Msgcenter) -> None:
    for _ in range(2):
        outcome = msgcenter("demo", "--json")
        assert outcome.status == 0, outcome.out
        assert outcome.json["is_right"]
    assert msgcenter("topic", "list", "--json").json == []
    assert msgcenter("group", "list", "--json").json == []
    assert msgcenter("dead-letters", "list", "--json").json == []
    table = msgcenter("demo", "--keep").out
    assert "result" in table
    dead = msgcenter("dead-letters", "list", "--json").json
    assert sorted(letter["reason"] for letter in dead) == ["ATTEMPTS_EXHAUSTED", "REJECTED"]
    shown = msgcenter("dead-letters", "show", str(dead[0]["id"]), "--json").json
    assert json.loads(shown["body"])["order"] in {5, 13}
    assert "no dead letter" in msgcenter("dead-letters", "show", "999999").err


def test_several_workers_share_a_port_and_end_together(msgcenter: Msgcenter, free_port: int) -> None:
    address = f"127.0.0.1:{free_port}"
    command = [*BROKER_COMMAND, "--listen", address, "--workers", "2"]
    parent = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert parent.stdout is not None
        ready = 0
        for line in parent.stdout:
            ready += line.startswith("The broker serves on")
            if ready == 2:
                break
        workers = psutil.Process(parent.pid).children()
        assert len(workers) == 2
        assert len({os.getsid(worker.pid) for worker in workers}) == 2
        assert is_serving(address, timeout_seconds=3.0)
        parent.send_signal(signal.SIGTERM)
        assert parent.wait(timeout=20) == 0
        assert not left_running(workers)
    finally:
        if parent.poll() is None:
            parent.send_signal(signal.SIGTERM)
        parent.communicate(timeout=20)


def test_a_broker_on_a_busy_port_says_so(msgcenter: Msgcenter, running_broker: str) -> None:
    outcome = msgcenter("broker", "--listen", running_broker)
    assert outcome.status == 1
    assert outcome.err.startswith(f"{running_broker} is in use by another program")


@pytest.mark.usefixtures("subscribed")
def test_alarms_are_listed_and_shown_where_they_concern_a_group(msgcenter: Msgcenter, database_url: str) -> None:
    assert "No alarms." in msgcenter("alarm", "list").out
    msgcenter("publish", "TP_TRADE", "EC_PAID", "x")
    with psycopg.connect(database_url) as connection:
        connection.execute(
            "INSERT INTO alarm (broker_id, broker, kind, thing, detail, group_id)"
            " SELECT gen_random_uuid(), 'here:1', 'LANE_SET_ASIDE', 'group SG_POINTS', 'DataCorrupted: page', group_id"
            " FROM subscriber_group"
        )
    (listed,) = msgcenter("alarm", "list", "--json").json
    assert (listed["kind"], listed["broker"], listed["state"]) == ("LANE_SET_ASIDE", "here:1", "stands")
    assert "DataCorrupted" in msgcenter("alarm", "list").out
    assert {tuple(lag["alarms"]) for lag in msgcenter("lag", "--json").json} == {("LANE_SET_ASIDE",)}

    with psycopg.connect(database_url) as connection:
        connection.execute("UPDATE alarm SET cleared_at = now()")
    assert msgcenter("alarm", "list", "--json").json == []
    (cleared,) = msgcenter("alarm", "list", "--all", "--json").json
    assert cleared["state"] == "cleared"


@pytest.mark.usefixtures("subscribed")
def test_what_a_broker_does_not_understand_is_an_alarm_beside_the_group_it_concerns(
    msgcenter: Msgcenter, database_url: str
) -> None:
    msgcenter("publish", "TP_TRADE", "EC_PAID", "x")
    with psycopg.connect(database_url) as connection:
        connection.execute("UPDATE subscriber_group SET group_order = 'KEY'")
        connection.execute("UPDATE config_version SET version = version + 1")

    (listed,) = eventually_blocking(lambda: msgcenter("alarm", "list", "--json").json)
    assert (listed["kind"], listed["thing"], listed["state"]) == ("NOT_UNDERSTOOD", "group SG_POINTS", "stands")
    assert "group-order-key" in msgcenter("alarm", "list").out
    assert {tuple(lag["alarms"]) for lag in msgcenter("lag", "--json").json} == {("NOT_UNDERSTOOD",)}

    with psycopg.connect(database_url) as connection:
        connection.execute("UPDATE subscriber_group SET group_order = 'NONE'")
        connection.execute("UPDATE config_version SET version = version + 1")
    eventually_blocking(lambda: msgcenter("alarm", "list", "--json").json == [])
