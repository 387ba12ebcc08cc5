"""Messages that are exported, followed as they come, and counted by their headers and errors, as operators type it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID, uuid4

import psycopg
import pytest

from msgdb.postgres.connections import Connection
from tests.integration.msgconsole.cli.conftest import Do, Msgcenter
from tests.support.dead_letter_rows import bury
from tests.support.message_rows import NOON, StoredMessage, put_rows, run_of

_DAY = timedelta(days=1)


def test_an_export_has_every_message_and_goes_on_where_it_ended(
    msgcenter: Msgcenter, topic: str, tmp_path: Path
) -> None:
    rows = [
        StoredMessage(
            queue_id=queue_id,
            queue_offset=at,
            stored_at=NOON - _DAY + timedelta(seconds=at),
            body=b"\xff" if at == 3 else b'{"n": 12345678901234567890}',
        )
        for queue_id in (1, 2)
        for at in range(5)
    ]
    put_rows(topic, rows)

    first = msgcenter("message", "export", "--topic", "TP_TRADE", "--limit", "4", "--out", "all.jsonl")
    assert (first.status, first.out, "Exported: 4 messages." in first.err) == (0, "", True)
    # A busy machine may have had time for a line on how far it is.
    after = first.err.splitlines()[-1].partition("--after ")[2].removesuffix(".")
    second = msgcenter("message", "export", "--topic", "TP_TRADE", "--out", "all.jsonl", "--after", after)
    assert second.err.splitlines()[-1] == "Exported: 6 messages."
    exported = [json.loads(line) for line in (tmp_path / "all.jsonl").read_text().splitlines()]
    assert [(each["queue_id"], each["queue_offset"]) for each in exported] == [
        (queue_id, at) for at in range(5) for queue_id in (1, 2)
    ]
    assert exported[0]["body"] == '{"n": 12345678901234567890}'
    assert exported[6]["body_base64"] == "/w=="
    assert msgcenter("message", "export", "--topic", "TP_TRADE", "--out", "all.jsonl").status == 1

    plainly = msgcenter("message", "export", "--topic", "TP_TRADE", "--bodies", "none")
    assert len(plainly.out.splitlines()) == 10
    assert "body_bytes" in plainly.out
    assert '"body"' not in plainly.out
    encoded = msgcenter("message", "export", "--topic", "TP_TRADE", "--bodies", "base64", "--limit", "1")
    assert json.loads(encoded.out)["body_base64"] == "eyJuIjogMTIzNDU2Nzg5MDEyMzQ1Njc4OTB9"


def test_an_export_whose_reader_goes_ends(msgcenter: Msgcenter, topic: str) -> None:
    yesterday = NOON - _DAY
    put_rows(topic, [StoredMessage(queue_offset=at, body=b"x" * 8_000, stored_at=yesterday) for at in range(1_500)])
    command = [sys.executable, "-m", "msgconsole.cli", "message", "export", "--topic", "TP_TRADE"]

    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert json.loads(process.stdout.readline())["queue_offset"] == 0
    process.stdout.close()
    process.stdout = None
    _, said = process.communicate(timeout=20)
    assert (process.returncode, said) == (0, b"")
    assert msgcenter("message", "find", "--topic", "TP_TRADE").status == 0


@pytest.mark.parametrize("unbuffered", [{"PYTHONUNBUFFERED": "1"}, {"PYTHONUNBUFFERED": ""}])
def test_an_export_that_is_interrupted_says_how_to_go_on_and_no_line_is_cut(
    msgcenter: Msgcenter, topic: str, unbuffered: dict[str, str]
) -> None:
    rows = [StoredMessage(queue_offset=at, body=b"x" * 8_000, stored_at=NOON - _DAY) for at in range(2_500)]
    put_rows(topic, rows)
    command = [sys.executable, "-m", "msgconsole.cli", "message", "export", "--topic", "TP_TRADE"]

    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=os.environ | unbuffered) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        first = process.stdout.readline()
        # It waits for its reader, in the middle of a page.
        process.send_signal(signal.SIGINT)
        rest, said = process.stdout.read(), process.stderr.read()
        status = process.wait(timeout=30)

    exported = [json.loads(line)["queue_offset"] for line in [first, *rest.splitlines()]]
    assert (status, exported) == (130, list(range(len(exported))))
    assert 0 < len(exported) < len(rows)
    assert f"Exported: {len(exported):,} messages." in said
    after = said.partition("--after ")[2].split()[0].removesuffix(".")
    more = msgcenter("message", "export", "--topic", "TP_TRADE", "--after", after, "--bodies", "none").out.splitlines()
    assert [json.loads(line)["queue_offset"] for line in more] == list(range(len(exported), len(rows)))


def test_a_tail_shows_what_comes_and_what_was_there_last(msgcenter: Msgcenter, topic: str) -> None:
    put_rows(topic, [StoredMessage(queue_offset=at, body=b"old %d" % at) for at in range(5)])
    command = [sys.executable, "-m", "msgconsole.cli", "topic", "tail", "TP_TRADE", "--last", "2", "--json"]

    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    last = [json.loads(process.stdout.readline())["body"] for _ in range(2)]
    # Also a queue that was not there when it began.
    with psycopg.connect(topic) as connection:
        connection.execute(
            "INSERT INTO queue (queue_id, topic_id, generation, ordinal) OVERRIDING SYSTEM VALUE VALUES (2, 1, 2, 0)"
        )
    put_rows(topic, [StoredMessage(queue_offset=5, body=b"new"), StoredMessage(queue_id=2, queue_offset=0, body=b"2")])
    came = sorted(json.loads(process.stdout.readline())["body"] for _ in range(2))
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=20)

    assert (last, came) == (["old 3", "old 4"], ["2", "new"])
    assert (process.returncode, said) == (0, b"Shown: 4.\n")


@pytest.mark.usefixtures("topic")
def test_a_tail_whose_reader_goes_ends_with_the_next_message(database_url: str) -> None:
    put_rows(database_url, run_of(1, 1))
    command = [sys.executable, "-m", "msgconsole.cli", "topic", "tail", "TP_TRADE", "--last", "1"]

    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert b"TP_TRADE/EC_PAID" in process.stdout.readline()
    process.stdout.close()
    process.stdout = None
    put_rows(database_url, run_of(1, 1, first=1))
    _, said = process.communicate(timeout=20)
    assert (process.returncode, said) == (0, b"")


def test_a_message_that_was_stored_once_more_is_counted_once(msgcenter: Msgcenter, topic: str) -> None:
    headers = {"region": "hz"}
    put_rows(topic, [StoredMessage(queue_offset=at, message_id=UUID(int=at), headers=headers) for at in range(3)])
    copies = [(3, 0, 7), (4, 0, 8), (5, 1, 7), (6, 9, 7)]
    put_rows(
        topic,
        [
            StoredMessage(
                queue_offset=at,
                stored_at=NOON + timedelta(seconds=at),
                message_id=UUID(int=number),
                target_group=group,
                # One was mended by hand; of the last one the first place is not among those that are looked at.
                headers=headers | ({"mended": "1"} if at in {5, 6} else {}),
            )
            for at, number, group in copies
        ],
    )

    seen = msgcenter("topic", "headers", "TP_TRADE", "--json").json

    assert [(each["header"], each["messages"], each["of_messages"]) for each in seen["headers"]] == [
        ("region", 4, 4),
        ("mended", 1, 4),
    ]
    assert seen["looked_at"] == 4


def test_messages_without_headers_are_counted_as_well(msgcenter: Msgcenter, topic: str) -> None:
    assert msgcenter("topic", "headers", "TP_TRADE").out == "No headers, in 0 messages.\n"
    put_rows(topic, run_of(1, 2))

    assert msgcenter("topic", "headers", "TP_TRADE").out == "No headers, in 2 messages.\n"


def test_header_names_and_errors_are_counted(msgcenter: Msgcenter, topic: str, do: Do) -> None:
    put_rows(
        topic,
        [
            StoredMessage(
                queue_offset=at,
                stored_at=NOON + timedelta(seconds=at),
                event_code="EC_B" if at == 4 else "EC_A",
                headers={"region": f"r{at}"} | ({"amount": "1"} if at < 2 else {}),
            )
            for at in range(5)
        ],
    )
    (group,) = msgcenter("group", "list", "--json").json

    async def fail(conn: Connection) -> None:
        group_id = group["group_id"]
        for number in (1, 22):
            await bury(conn, 2, group_id=group_id, last_error=f"Timeout after {number} s\nTraceback")
        dead = await bury(conn, 1, group_id=group_id, last_error=f"no {uuid4()}", reason="REJECTED")
        await bury(conn, 1, last_error="of another group")
        await conn.execute("INSERT INTO redrive (dead_letter_id, job_id) VALUES (%s, 1)", (dead[0] - 1,))
        await conn.execute(
            "INSERT INTO redelivery (group_id, member, queue_id, queue_offset, stored_at, attempt, due_at, last_error)"
            " SELECT %s, '', 1, o, stored_at, 3, now(), 'refused by 10.0.0.' || o FROM message, generate_series(1, 3) o"
            " WHERE queue_offset = o",
            (group_id,),
        )

    do(fail)
    headers = msgcenter("topic", "headers", "TP_TRADE", "--json").json
    assert [
        (each["event_code"], each["header"], each["messages"], each["of_messages"]) for each in headers["headers"]
    ] == [
        ("EC_A", "region", 4, 4),
        ("EC_A", "amount", 2, 4),
        ("EC_B", "region", 1, 1),
    ]
    assert (headers["headers"][0]["example"], headers["looked_at"]) == ("r3", 5)
    assert "region" in msgcenter("topic", "headers", "TP_TRADE").out

    counted = msgcenter("group", "errors", "SG_POINTS", "--json").json["errors"]
    assert [(each["state"], each["error"], each["messages"]) for each in counted] == [
        ("RETRYING", "refused by #.#.#.#", 3),
        ("DEAD", "Timeout after # s", 3),
        ("DEAD", "no #", 1),
    ]
    newest = msgcenter("message", "show", counted[0]["newest"], "--json").json
    assert newest["queue_offset"] == 3
    assert "Timeout after # s" in msgcenter("group", "errors", "SG_POINTS", "--topic", "TP_TRADE").out
    later = f"{max(NOON, datetime.now(UTC)) + timedelta(hours=1):%Y-%m-%dT%H:%M}"
    assert msgcenter("group", "errors", "SG_POINTS", "--since", later).out == "No errors.\n"
    assert msgcenter("group", "errors", "SG_TYPO").err.endswith("(GROUP_NOT_FOUND)\n")
