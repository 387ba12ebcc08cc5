"""Finding messages and looking at them, as operators type it."""

from __future__ import annotations

import asyncio
import json
import shlex
import subprocess
import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from uuid import UUID, uuid4

import psycopg
import pytest

from msgconsole.cli.printing import output
from msgconsole.operations.looking.trace import COPIES_MAX
from msgdb import ids
from msgdb.log.copies import COPIES_MAX as STORED_MAX
from msgdb.looking.by_key import COMPARED_MAX
from msgdb.postgres.connections import Connection
from msgdb.store import MessageStore
from tests.integration.msgconsole.cli.conftest import Do, Msgcenter, Outcome
from tests.support.archive_runs import archive_day, days_ago
from tests.support.dead_letter_rows import bury
from tests.support.examples import examples_of
from tests.support.jobs import buried
from tests.support.message_rows import NOON, StoredMessage, drop_day, put_rows, run_of
from tests.support.rows import GROUP
from tests.support.shown_message import EXAMPLE_ID, put_example
from tests.support.typed_commands import typed_in

_DAY = timedelta(days=1)


def found(outcome: Outcome) -> list[tuple[int, int]]:
    """Return the queues and offsets of what was found."""
    return [(each["queue_id"], each["queue_offset"]) for each in outcome.json["messages"]]


def minted(days: int) -> UUID:
    """Return an id of a day before today."""
    return UUID(int=ids.mint_run(round((NOON - days * _DAY).timestamp() * 1_000_000)))


def flat(outcome: Outcome) -> str:
    return " ".join(outcome.err.replace("│", " ").split())


def test_the_body_is_that_of_the_message_that_is_shown(msgcenter: Msgcenter, topic: str) -> None:
    message_id = minted(9)
    # The day that its publisher stored it in is gone; it was redriven twice since, edited for each group.
    first = StoredMessage(queue_offset=1, message_id=message_id, body=b"for one", target_group=1)
    second = StoredMessage(
        queue_offset=2, message_id=message_id, body=b"for another", target_group=2, stored_at=NOON + timedelta(hours=1)
    )
    put_rows(topic, [first, second])

    shown = msgcenter("message", "show", str(message_id), "--json").json
    body = msgcenter("message", "body", str(message_id), "--as", "text")

    assert (shown["queue_offset"], body.out.strip()) == (1, "for one")


def test_a_message_is_found_by_its_id_its_key_and_its_time(msgcenter: Msgcenter, topic: str) -> None:
    message_id = minted(0)
    others = run_of(1, 5) + run_of(2, 5, stored_at=NOON + timedelta(seconds=30))
    at = NOON + timedelta(seconds=5)
    meant = StoredMessage(queue_offset=5, message_id=message_id, key="order-4711", event_code="EC_B", stored_at=at)
    put_rows(topic, [*others, meant])

    by_id = msgcenter("message", "find", str(message_id), "--json")
    assert (found(by_id), by_id.json["is_complete"]) == ([(1, 5)], True)
    assert found(msgcenter("message", "find", "--key", "order-4711", "--json")) == [(1, 5)]
    table = msgcenter("message", "find", "--key", "order-4711", "--topic", "TP_TRADE")
    assert (str(message_id) in table.out, table.err) == (True, "")
    assert found(msgcenter("message", "find", "--topic", "TP_TRADE", "--event-code", "EC_B", "--json")) == [(1, 5)]
    span = ("--since", f"{NOON:%Y-%m-%dT%H:%M:%S}", "--until", f"{NOON + timedelta(seconds=2):%Y-%m-%dT%H:%M:%S}")
    assert found(msgcenter("message", "find", "--topic", "TP_TRADE", *span, "--json")) == [(1, 1), (1, 0)]
    assert found(msgcenter("message", "find", "--topic", "TP_TRADE", *span, "--oldest-first", "--json")) == [
        (1, 0),
        (1, 1),
    ]


def test_by_its_id_a_message_is_found_wherever_it_was_stored_once_more(msgcenter: Msgcenter, topic: str) -> None:
    message_id = minted(3)
    first = StoredMessage(queue_offset=0, message_id=message_id, stored_at=NOON - 3 * _DAY)
    redriven = StoredMessage(queue_offset=1, message_id=message_id, target_group=7, redrives=1)
    put_rows(topic, [first, redriven])

    answer = msgcenter("message", "find", str(message_id), "--json")
    assert (found(answer), answer.json["is_complete"]) == ([(1, 0), (1, 1)], True)

    put_rows(topic, [replace(redriven, queue_offset=2 + at) for at in range(STORED_MAX)])
    often = msgcenter("message", "find", str(message_id), "--json").json
    assert (len(often["messages"]), often["is_complete"]) == (STORED_MAX, False)
    assert often["why_not"] == [f"it was stored more than {STORED_MAX} times"]


def test_what_was_stored_once_more_is_told_apart_with_whom_it_is_for(
    msgcenter: Msgcenter, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    group_id = msgcenter("group", "show", "SG_POINTS", "--json").json["group_id"]
    message_id = minted(0)
    first = StoredMessage(queue_offset=0, message_id=message_id, key="order-4711")
    other = StoredMessage(queue_offset=1, message_id=minted(0), key="order-4712")
    redriven = replace(first, queue_offset=2, target_group=group_id, redrives=1)
    replayed = replace(first, queue_offset=3, target_group=group_id)
    of_deleted = replace(first, queue_offset=4, target_group=group_id + 1)
    put_rows(topic, [first, other, redriven, replayed, of_deleted])
    told = {0: (None, None), 2: ("SG_POINTS", "redriven"), 3: ("SG_POINTS", "replayed")}
    told[4] = (f"(deleted: {group_id + 1})", "replayed")

    for named in ((str(message_id),), ("--key", "order-4711"), ("--key", "order-4711", "--topic", "TP_TRADE")):
        messages = msgcenter("message", "find", *named, "--json").json["messages"]
        assert {each["queue_offset"]: (each["for_group"], each["copy"]) for each in messages} == told
        monkeypatch.setattr(output, "_PIPED_WIDTH", 80)
        table = msgcenter("message", "find", *named).out
        # What tells them apart is shown, whole: an id, a time and a group that is gone are as long as a line.
        assert max(len(line) for line in table.splitlines()) <= 84
        assert (table.count("redriven"), table.count("replayed"), table.count("SG_POINTS")) == (1, 2, 2)
        assert table.count(str(message_id)) == 4
    alone = msgcenter("message", "find", "--key", "order-4712")
    assert ("copy" in alone.out, "key" in alone.out) == (False, True)
    (record,) = msgcenter("message", "find", "--key", "order-4712", "--json").json["messages"]
    assert (record["for_group"], record["copy"]) == (None, None)


def test_what_is_no_id_may_be_a_key_and_that_is_said(msgcenter: Msgcenter) -> None:
    outcome = msgcenter("message", "find", "4711")

    assert outcome.status == 2
    assert "'4711' is no message id; if it is a key: msgcenter message find --key 4711" in flat(outcome)


def test_a_page_says_how_the_next_one_goes_on(msgcenter: Msgcenter, topic: str) -> None:
    put_rows(
        topic, [StoredMessage(queue_offset=at, key="k", stored_at=NOON + timedelta(seconds=at)) for at in range(5)]
    )

    for how in (("--key", "k"), ("--topic", "TP_TRADE")):
        told = msgcenter("message", "find", *how, "--limit", "3")
        assert "Incomplete: there may be more." in told.err
        first = msgcenter("message", "find", *how, "--limit", "3", "--json")
        assert f"Go on with --after {first.json['after']}." in told.err
        second = msgcenter("message", "find", *how, "--limit", "3", "--after", first.json["after"], "--json")
        assert (found(first), found(second)) == ([(1, 4), (1, 3), (1, 2)], [(1, 1), (1, 0)])
        assert (second.json["is_complete"], second.json["after"]) == (True, None)


def test_looking_by_headers_is_bounded_and_says_how_far_it_got(msgcenter: Msgcenter, topic: str) -> None:
    put_rows(topic, run_of(1, 1))
    with psycopg.connect(topic) as connection:
        connection.execute(
            "INSERT INTO message (queue_id, queue_offset, stored_at, message_id, namespace, topic, event_code, headers,"
            " body, born_at, stress) SELECT 1, o, %s + o * interval '1 millisecond', gen_random_uuid(), 'default',"
            " 'TP_TRADE', 'EC', CASE o WHEN 7 THEN '{\"region\": \"sh\"}'::jsonb END, '', now(), false"
            " FROM generate_series(1, 120000) o",
            (NOON,),
        )

    looking = ("message", "find", "--topic", "TP_TRADE", "--header", "region=sh", "--json")
    first = msgcenter(*looking).json
    assert (first["messages"], first["is_complete"]) == ([], False)
    assert 100_000 <= first["looked_at"] < 120_000
    (why,) = first["why_not"]
    assert why.startswith(f"only {first['looked_at']:,} messages were looked at: those that were stored since ")
    second = msgcenter(*looking, "--after", first["after"]).json
    assert ([each["queue_offset"] for each in second["messages"]], second["is_complete"]) == ([7], True)


def test_a_key_that_very_many_have_is_looked_for_in_the_log(msgcenter: Msgcenter, topic: str) -> None:
    put_rows(topic, [StoredMessage(queue_offset=0, key="k")])
    with psycopg.connect(topic) as connection:
        connection.execute(
            "INSERT INTO message (queue_id, queue_offset, stored_at, message_id, namespace, topic, event_code, key,"
            " body, born_at, stress) SELECT 9, o, %s, gen_random_uuid(), 'other', 'TP_TRADE', 'EC', 'k', '', now(),"
            " false FROM generate_series(1, %s) o",
            (NOON, COMPARED_MAX + 1),
        )

    answer = msgcenter("message", "find", "--key", "k", "--json")

    assert (found(answer), answer.json["is_complete"], answer.json["looked_at"]) == ([(1, 0)], True, 1)


def test_what_is_in_the_archive_or_gone_is_said(msgcenter: Msgcenter, topic: str, do: Do) -> None:
    for days in (0, 2, 3):
        put_rows(topic, run_of(1, 1, first=3 - days, stored_at=NOON - days * _DAY))
    do(lambda conn: archive_day(conn, days_ago(3)))
    for days in (2, 3):
        drop_day(topic, NOON - days * _DAY, [(1, 3)])

    archived = msgcenter("message", "find", str(minted(3)), "--json").json
    (why,) = archived["why_not"]
    assert why.startswith(f"by its id it is of {days_ago(3)}, which is not in the log any more; the archive has it")
    gone = msgcenter("message", "show", str(minted(2)))
    assert (gone.status, "in no archive that is known" in gone.err, "(THING_NOT_FOUND)" in gone.err) == (1, True, True)
    assert msgcenter("message", "find", str(minted(0)), "--json").json["is_complete"]
    by_time = msgcenter("message", "find", "--topic", "TP_TRADE")
    assert f"; the archive has {days_ago(3)}." in by_time.err
    assert msgcenter("message", "find", "--topic", "TP_TRADE", "--since", f"{days_ago(0)}").err == ""
    assert (
        "no archive is known that has it" in msgcenter("message", "find", "--key", "k", "--since", f"{days_ago(2)}").err
    )


def test_a_topic_that_was_deleted_is_looked_through_as_long_as_it_has_messages(
    msgcenter: Msgcenter, topic: str
) -> None:
    put_rows(topic, [StoredMessage(queue_offset=0, key="k")])
    assert msgcenter("topic", "delete", "TP_TRADE", "--no-wait").status == 0

    for how in (("--key", "k"), ("--topic", "TP_TRADE"), ("--topic", "TP_TRADE", "--key", "k")):
        assert found(msgcenter("message", "find", *how, "--json")) == [(1, 0)]
    assert msgcenter("message", "find", "--topic", "TP_NONE").err.endswith("(TOPIC_NOT_FOUND)\n")
    assert msgcenter("message", "find", "--key", "k", "-n", "typo").err.endswith("(NAMESPACE_NOT_FOUND)\n")


@pytest.mark.usefixtures("topic")
def test_another_namespaces_messages_are_not_told_of(msgcenter: Msgcenter, database_url: str) -> None:
    message_id = minted(0)
    put_rows(database_url, [StoredMessage(queue_offset=0, message_id=message_id, namespace="other", key="k")])

    assert found(msgcenter("message", "find", str(message_id), "--json")) == []
    assert found(msgcenter("message", "find", "--key", "k", "--json")) == []
    assert msgcenter("message", "body", str(message_id)).status == 1
    traced = msgcenter("message", "trace", str(message_id))
    assert (traced.status, traced.out) == (1, "")
    assert traced.err.endswith("(THING_NOT_FOUND)\n")


def test_of_a_message_that_was_stored_often_the_newest_places_are_traced(msgcenter: Msgcenter, topic: str) -> None:
    message_id = minted(0)
    rows = [
        StoredMessage(queue_offset=at, message_id=message_id, target_group=7, stored_at=NOON + timedelta(seconds=at))
        for at in range(STORED_MAX + 2)
    ]
    put_rows(topic, [replace(rows[0], target_group=None), *rows[1:COPIES_MAX]])
    whole = msgcenter("message", "trace", str(message_id), "--json").json
    put_rows(topic, rows[COPIES_MAX : COPIES_MAX + 2])
    newest = msgcenter("message", "trace", str(message_id), "--json").json
    put_rows(topic, rows[COPIES_MAX + 2 :])
    some = msgcenter("message", "trace", str(message_id), "--json").json

    assert [each["queue_offset"] for each in whole["copies"]] == list(range(COPIES_MAX))
    assert [each["queue_offset"] for each in newest["copies"]] == list(range(2, COPIES_MAX + 2))
    assert [each["queue_offset"] for each in some["copies"]] == list(range(STORED_MAX + 2 - COPIES_MAX, STORED_MAX + 2))
    said = [[each for each in story["missing"] if "places in the log" in each] for story in (whole, newest, some)]
    assert said == [
        [],
        [f"Only its newest {COPIES_MAX} places in the log are told."],
        [f"Only its newest {COPIES_MAX} places in the log are told."],
    ]


def test_another_namespaces_dead_letter_is_not_shown_nor_edited(msgcenter: Msgcenter, topic: str, do: Do) -> None:
    (own,) = do(lambda conn: bury(conn, 1))
    (theirs,) = do(lambda conn: bury(conn, 1, namespace="other", topic="TP_SECRET"))

    assert msgcenter("dead-letters", "show", str(own)).status == 0
    shown = msgcenter("dead-letters", "show", str(theirs))
    assert (shown.status, shown.out) == (1, "")
    assert shown.err.endswith("(THING_NOT_FOUND)\n")
    assert msgcenter("namespace", "create", "other", "--no-wait").status == 0
    assert msgcenter("dead-letters", "show", str(theirs), "-n", "other").status == 0
    edited = msgcenter("dead-letters", "redrive", str(theirs), "--body", "x" * 9_000, "--reason", "try")
    assert (edited.status, "TP_SECRET" in edited.err) == (1, False)


@pytest.mark.parametrize("named", [("0" * 32,), ("--topic", "TP_TRADE", "--key", "k")])
def test_a_namespace_that_is_not_there_has_no_traces(msgcenter: Msgcenter, named: tuple[str, ...]) -> None:
    assert msgcenter("message", "trace", *named, "-n", "typo").err.endswith("(NAMESPACE_NOT_FOUND)\n")


@pytest.mark.parametrize(
    "arguments",
    [
        ("message", "find", "--key", "a\udcffb"),
        ("message", "trace", "--topic", "TP_TRADE", "--key", "a\udcffb"),
        ("dead-letters", "list", "--error", "a\udcffb"),
        ("group", "reset", "SG_POINTS", "--to-end", "--reason", "a\udcffb"),
        ("job", "list", "--namespace", "a\udcffb"),
    ],
    ids=" ".join,
)
@pytest.mark.usefixtures("topic")
def test_bytes_that_are_no_text_are_refused(msgcenter: Msgcenter, arguments: tuple[str, ...]) -> None:
    # As Python gives a command what was typed in another encoding.
    refused = msgcenter(*arguments)

    assert (refused.status, refused.out) == (1, "")
    assert refused.err == "the message store refuses: text that is not Unicode: 'a\\udcffb' (DATABASE_REFUSED)\n"


def test_a_body_that_is_no_text_is_edited_in_as_it_was_typed(msgcenter: Msgcenter, topic: str, do: Do) -> None:
    (letter,) = do(lambda conn: bury(conn, 1))

    planned = msgcenter("dead-letters", "redrive", str(letter), "--body", "a\udcffb", "--dry-run")

    assert (planned.status, planned.err) == (0, "")


def test_all_there_is_of_a_message_is_shown(msgcenter: Msgcenter, topic: str, do: Do) -> None:
    message_id = minted(0)
    (group,) = msgcenter("group", "list", "--json").json
    row = StoredMessage(queue_offset=0, message_id=message_id, key="k", headers={"region": "hz"}, born_host="h-1")
    again = StoredMessage(queue_offset=1, message_id=message_id, target_group=group["group_id"], redrives=1)
    put_rows(topic, [row, again])

    async def die(conn: Connection) -> None:
        (dead_letter_id,) = await bury(conn, 1, queue_id=1, last_error="Timeout")
        await conn.execute(
            "UPDATE dead_letter SET queue_offset = 0, stored_at = %s WHERE id = %s", (NOON, dead_letter_id)
        )
        await bury(conn, 3)
        await conn.execute("INSERT INTO redrive (dead_letter_id, job_id) VALUES (%s, 1)", (dead_letter_id,))

    do(die)
    shown = msgcenter("message", "show", str(message_id), "--json").json

    assert (shown["message_id"], shown["key"], shown["headers"]) == (str(message_id), "k", {"region": "hz"})
    assert (shown["queue_id"], shown["queue_offset"], shown["body_bytes"], shown["born_host"]) == (1, 0, 4, "h-1")
    assert [(each["for_group"], each["redrives"]) for each in shown["stored_again"]] == [("SG_POINTS", 1)]
    (death,) = shown["dead_letters"]
    assert (death["last_error"], death["redriven_at"] is not None) == ("Timeout", True)
    # Not of the group that has the name now.
    assert death["group"] == f"SG_POINTS (deleted: {GROUP})"
    do(lambda conn: conn.execute("UPDATE dead_letter SET group_id = %s", (group["group_id"],)))
    (death,) = msgcenter("message", "show", str(message_id), "--json").json["dead_letters"]
    assert death["group"] == "SG_POINTS"
    text = msgcenter("message", "show", str(message_id)).out
    assert "Stored once more:" in text
    assert "Dead letters:" in text


@pytest.mark.parametrize(
    "body, form, printed",
    [
        (b'{"id":12345678901234567890123,"a":[1.10]}', "auto", '{\n  "id": 12345678901234567890123,\n  "a": [\n'),
        (b'{"id":1}', "text", '{"id":1}\n'),
        ("订单\x1b[1m".encode(), "auto", "订单\\x1b[1m\n"),
        (b"\xff\x00abc", "auto", "00000000  ff 00 61 62 63\n"),
        (b"0123456789abcdef0", "hex", "00000000  30 31 32 33 34 35 36 37 38 39 61 62 63 64 65 66\n00000010  30\n"),
        (b"", "auto", "\n"),
    ],
)
def test_a_body_is_printed_as_it_is_asked_for(
    msgcenter: Msgcenter, topic: str, body: bytes, form: str, printed: str
) -> None:
    message_id = minted(0)
    put_rows(topic, [StoredMessage(queue_offset=0, message_id=message_id, body=body)])

    assert msgcenter("message", "body", str(message_id), "--as", form).out.startswith(printed)


def test_a_bodys_bytes_come_untouched(msgcenter: Msgcenter, topic: str, tmp_path: Path) -> None:
    message_id = minted(0)
    body = bytes(range(256))
    put_rows(topic, [StoredMessage(queue_offset=0, message_id=message_id, body=body)])

    assert msgcenter("message", "body", str(message_id), "--out", "body.bin").status == 0
    assert (tmp_path / "body.bin").read_bytes() == body
    again = msgcenter("message", "body", str(message_id), "--out", "body.bin")
    assert (again.status, again.err) == (1, "File exists: body.bin (SYSTEM_ERROR)\n")
    command = [sys.executable, "-m", "msgconsole.cli", "message", "body", str(message_id), "--as", "raw"]
    assert subprocess.run(command, capture_output=True, check=True).stdout == body
    for form, said in (("text", "the body is no text"), ("json", "the body is no text")):
        assert said in flat(msgcenter("message", "body", str(message_id), "--as", form))


@pytest.mark.usefixtures("topic")
def test_every_example_of_these_commands_works_as_typed(msgcenter: Msgcenter, database_url: str) -> None:
    put_example(database_url)
    put_rows(database_url, run_of(1, 10))
    looking = {"find", "show", "body", "export", "tail", "headers", "errors"}

    typed = [each for each in examples_of("message", "topic", "group") if each[1] in looking]

    assert {each[1] for each in typed} == looking
    for example in typed:
        done = msgcenter(*example)
        assert done.status == 0, (example, done.err)
    assert str(EXAMPLE_ID) in msgcenter("message", "find", "--key", "order-4711").out


def test_what_the_page_of_the_command_line_says_of_finding_works_as_typed(
    msgcenter: Msgcenter, database_url: str, tmp_path: Path
) -> None:
    assert msgcenter("topic", "create", "TP_PAYMENT", "--no-wait").status == 0
    assert msgcenter("group", "create", "SG_LEDGER", "--no-wait").status == 0
    at = NOON - _DAY
    row = StoredMessage(queue_offset=0, topic="TP_PAYMENT", key="payment-1", stored_at=at, headers={"region": "hz"})
    put_rows(database_url, [replace(row, queue_offset=offset, message_id=uuid4()) for offset in range(5)])

    for typed in typed_in("command-line.md", "Finding messages", 0):
        done = msgcenter(*shlex.split(typed, comments=True)[1:])
        assert done.status == 0, (typed, done.err)

    assert len((tmp_path / "payments.jsonl").read_text().splitlines()) == 5


@pytest.mark.parametrize(
    "arguments, status, said",
    [
        (("message", "find"), 2, "give the id of a message, or --key, or --topic"),
        (("message", "find", str(EXAMPLE_ID), "--key", "k"), 2, "and not both"),
        (("message", "find", "--topic", "TP", "--after", "x"), 1, "is what an answer says how to go on with"),
        (("message", "find", "--topic", "TP", "--after", "1-2-99999999999999999999"), 1, "(INVALID_SETTING)"),
        (("message", "find", "--topic", "TP", "--header", "x"), 2, "is not name=value"),
        (("message", "find", "--key", "a\0b"), 1, "no NUL (INVALID_SETTING)"),
        (("message", "show", "x"), 2, "is no message id"),
        (("message", "body", str(EXAMPLE_ID), "--as", "xml"), 2, "'xml' is not one of"),
        (("message", "export"), 2, "--topic"),
        (("topic", "tail", "TP_NONE"), 1, "(TOPIC_NOT_FOUND)"),
        (("topic", "tail", "TP", "--expression", "headers.a +"), 1, "(INVALID_EXPRESSION)"),
        (("topic", "headers", "TP_NONE"), 1, "(TOPIC_NOT_FOUND)"),
    ],
)
def test_what_is_mistyped_is_said(msgcenter: Msgcenter, arguments: tuple[str, ...], status: int, said: str) -> None:
    outcome = msgcenter(*arguments)

    assert (outcome.status, said in flat(outcome)) == (status, True), outcome.err


def test_a_redriven_message_is_shown_with_what_became_of_it_and_a_tail_takes_nothing_from_its_group(
    msgcenter: Msgcenter, running_broker: str, database_url: str
) -> None:
    for arguments in (
        ("topic", "create", "TP_TRADE"),
        ("event-code", "create", "TP_TRADE", "EC_PAID"),
        ("group", "create", "SG_POINTS", "--retry-schedule", "none"),
        ("subscription", "create", "SG_POINTS", "TP_TRADE", "EC_PAID"),
    ):
        assert msgcenter(*arguments).status == 0

    async def die() -> None:
        async with MessageStore.open(database_url, pool_size=2) as store:
            await buried(running_broker, store, 1)

    asyncio.run(die())
    (message,) = msgcenter("message", "find", "--topic", "TP_TRADE", "--json").json["messages"]
    redriven = msgcenter("dead-letters", "redrive", "--group", "SG_POINTS", "--reason", "the warehouse is open again")
    assert redriven.status == 0, redriven.err

    tailed = msgcenter("topic", "tail", "TP_TRADE", "--last", "2", "--count", "2", "--json")
    assert [json.loads(line)["redrives"] for line in tailed.out.splitlines()] == [0, 1]
    received = msgcenter("subscribe", "--group", "SG_POINTS", "--topic", "TP_TRADE", "--count", "1", "--json")
    assert received.json["message_id"] == message["message_id"]
    shown = msgcenter("message", "show", message["message_id"], "--json").json
    assert [(each["for_group"], each["redrives"]) for each in shown["stored_again"]] == [("SG_POINTS", 1)]
    (death,) = shown["dead_letters"]
    assert (death["group"], death["reason"], death["redriven_at"] is not None) == ("SG_POINTS", "REJECTED", True)
    # What was redriven is open no more.
    assert msgcenter("group", "errors", "SG_POINTS").out == "No errors.\n"
