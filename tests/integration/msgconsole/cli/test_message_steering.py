"""`msgcenter message skip` and `retry-now`, as operators type them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from msgdb.log.copies import COPIES_MAX
from tests.integration.msgconsole.cli.conftest import Msgcenter, Outcome
from tests.support.message_rows import StoredMessage, put_rows

WHY = ("--reason", "the warehouse does not know it")


@pytest.fixture
def stored(msgcenter: Msgcenter, running_broker: str) -> list[str]:
    """Register a group that nobody is connected for, and publish three messages; return their ids."""
    for arguments in (
        ("topic", "create", "TP_TRADE", "--queues", "1"),
        ("event-code", "create", "TP_TRADE", "EC_PAID"),
        ("group", "create", "SG_POINTS"),
        ("subscription", "create", "SG_POINTS", "TP_TRADE", "EC_PAID"),
    ):
        outcome = msgcenter(*arguments)
        assert outcome.status == 0, outcome.err
    receipts = [
        msgcenter("publish", "TP_TRADE", "EC_PAID", body, "--key", "one", "--json").json[0] for body in ("a", "b", "c")
    ]
    return [receipt["message_id"] for receipt in receipts]


def test_a_message_is_skipped_and_another_one_overtakes(msgcenter: Msgcenter, stored: list[str]) -> None:
    a, b, c = stored
    of_group = ("--group", "SG_POINTS")
    tried = msgcenter("message", "skip", a, *of_group, "--dry-run")
    assert tried.status == 0, tried.err
    assert "is not settled: not read yet, or with an instance." in tried.out
    assert tried.out.endswith(
        "It would be a dead letter; 0 others of the queue at most would come again. Nothing was changed.\n"
    )
    plan = msgcenter("message", "retry-now", c, *of_group, "--dry-run", "--json").json
    assert (plan["message_id"], plan["standing"], plan["attempt"], plan["others"]) == (c, "UNSETTLED", 1, 0)
    assert msgcenter("act", "list", "--json").json == []

    done = msgcenter("message", "skip", a, *of_group, *WHY)
    assert (done.status, done.out) == (0, f"Message {a} is skipped: it is dead letter 1.\n")
    by_place = ("--queue", str(plan["queue_id"]), "--offset", str(plan["queue_offset"]))
    hurried = msgcenter("message", "retry-now", *by_place, *of_group, *WHY, "--json").json
    assert (hurried["plan"]["message_id"], hurried["dead_letter_id"], hurried["waiting_for"]) == (c, None, [])

    arguments = ("subscribe", *of_group, "--topic", "TP_TRADE", "--count", "2", "--json")
    came = [line for line in msgcenter(*arguments).out.splitlines() if line]
    assert [c in came[0], b in came[1]] == [True, True]
    (letter,) = msgcenter("dead-letters", "list", "--why", "skipped", "--json").json
    assert (letter["id"], letter["message_id"], letter["attempts"]) == (1, a, 0)
    acts = msgcenter("act", "list", "--action", "message.", "--json").json
    assert [act["action"] for act in acts] == ["message.retry-now", "message.skip"]


def test_what_was_skipped_by_hand_is_part_of_its_trace(msgcenter: Msgcenter, stored: list[str]) -> None:
    assert msgcenter("message", "skip", stored[0], "--group", "SG_POINTS", *WHY).status == 0

    (copy,) = msgcenter("message", "trace", stored[0], "--json").json["copies"]
    (other,) = msgcenter("message", "trace", stored[1], "--json").json["copies"]

    line = copy["lines"][-1]
    assert (line["what"], line["group"], line["detail"]) == ("DEAD_LETTERED", "SG_POINTS", "SKIPPED")
    assert (line["broker"], line["attempt"]) == (None, 0)
    assert line["at"] > copy["stored_at"]
    assert {line["what"] for line in other["lines"]} <= {"PUBLISHED", "STORED"}


def test_what_lies_in_a_topic_that_was_deleted_as_well_is_skipped_where_it_is_now(
    msgcenter: Msgcenter, stored: list[str], database_url: str
) -> None:
    # As it was stored before the topic was made again, and what it was before was redriven.
    put_rows(database_url, [StoredMessage(queue_id=999, queue_offset=0, message_id=UUID(stored[0]))])

    plan = msgcenter("message", "skip", stored[0], "--group", "SG_POINTS", "--dry-run", "--json").json

    assert (plan["message_id"], plan["queue_id"]) == (stored[0], 1)
    gone = ("message", "skip", "--queue", "999", "--offset", "0", "--group", "SG_POINTS", "--dry-run")
    assert msgcenter(*gone).err.endswith("(THING_NOT_FOUND)\n")


def stored_again(message_id: str, group_id: int, count: int) -> list[StoredMessage]:
    """Return a message as it is stored once more for a group, so many times, and later than whatever is published."""
    at = datetime.now(UTC) + timedelta(hours=1)
    return [
        StoredMessage(queue_id=1, queue_offset=3 + n, message_id=UUID(message_id), target_group=group_id, stored_at=at)
        for n in range(count)
    ]


def test_however_often_a_message_was_stored_once_more_for_others_a_group_is_rid_of_it(
    msgcenter: Msgcenter, stored: list[str], database_url: str
) -> None:
    put_rows(database_url, stored_again(stored[0], 999, COPIES_MAX + 1))

    plan = msgcenter("message", "skip", stored[0], "--group", "SG_POINTS", "--dry-run", "--json").json

    assert (plan["message_id"], plan["queue_offset"]) == (stored[0], 0)


def test_of_more_places_than_are_looked_at_one_must_be_named(
    msgcenter: Msgcenter, stored: list[str], database_url: str
) -> None:
    put_rows(database_url, stored_again(stored[0], 1, COPIES_MAX))

    outcome = msgcenter("message", "skip", stored[0], "--group", "SG_POINTS", "--dry-run")
    named = msgcenter("message", "skip", "--queue", "1", "--offset", "3", "--group", "SG_POINTS", "--dry-run")

    assert outcome.status == 1
    assert f"more than {COPIES_MAX} that SG_POINTS has: say which, by its queue and offset" in flat(outcome)
    assert named.status == 0, named.err


def test_what_is_settled_is_refused(msgcenter: Msgcenter, stored: list[str]) -> None:
    assert msgcenter("message", "skip", stored[0], "--group", "SG_POINTS", *WHY).status == 0

    again = msgcenter("message", "skip", stored[0], "--group", "SG_POINTS", *WHY)

    assert again.status == 1
    assert f"message {stored[0]} is DEAD_LETTER for group SG_POINTS" in flat(again)
    assert again.err.endswith("to redrive dead letter 1 delivers it again (MESSAGE_STATE)\n")


def flat(outcome: Outcome) -> str:
    return " ".join(outcome.err.replace("│", " ").split())


@pytest.mark.parametrize("command", ["skip", "retry-now"])
@pytest.mark.parametrize(
    "arguments, said",
    [
        (("--queue", "1", "--offset", "0"), "say why"),
        (WHY, "give the message's id, or --queue and --offset"),
        (("--queue", "1", *WHY), "give the message's id, or --queue and --offset"),
        (("01a1f7af-5fdb-73ea-9123-a5b22c700000", "--offset", "1", *WHY), "give the message's id, or"),
        (("not-an-id", *WHY), "UUID"),
    ],
)
def test_what_is_mistyped_is_said(msgcenter: Msgcenter, command: str, arguments: tuple[str, ...], said: str) -> None:
    outcome = msgcenter("message", command, "--group", "SG_POINTS", *arguments)

    assert (outcome.status, said in flat(outcome)) == (2, True), outcome.err
