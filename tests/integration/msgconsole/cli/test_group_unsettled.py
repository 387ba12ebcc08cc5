"""`msgcenter group unsettled`, as operators type it."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from msgbroker.client import Message, SyncMessageCenter
from msgconsole.cli.printing import output
from tests.integration.msgconsole.cli.conftest import Msgcenter, Outcome
from tests.support.eventually import eventually_blocking
from tests.support.examples import examples_of

INSTANCE = "shop-1:4711"


@pytest.fixture
def blocked(msgcenter: Msgcenter, running_broker: str) -> Iterator[str]:
    """Let an instance of SG_POINTS hang with one message, and fail another one; return the id of the first."""
    for arguments in (
        ("topic", "create", "TP_TRADE", "--queues", "1"),
        ("event-code", "create", "TP_TRADE", "EC_PAID"),
        ("group", "create", "SG_POINTS", "--retry-schedule", "600"),
        ("subscription", "create", "SG_POINTS", "TP_TRADE", "EC_PAID"),
    ):
        outcome = msgcenter(*arguments)
        assert outcome.status == 0, outcome.err
    going_on = threading.Event()

    def handle(message: Message) -> None:
        if message.body == b"fails":
            raise RuntimeError("the warehouse is closed")
        going_on.wait(60)

    with SyncMessageCenter(running_broker, instance_id=INSTANCE) as center:
        center.subscriber(group="SG_POINTS", topic="TP_TRADE", concurrency=1)(handle)
        center.start()
        center.publish("TP_TRADE", "EC_PAID", "fails", key="order-1")
        hanging = center.publish("TP_TRADE", "EC_PAID", "hangs", key="order-2")

        def has_both() -> bool:
            rows = msgcenter("group", "unsettled", "SG_POINTS", "--json").json["messages"]
            return [(row["state"], row["last_error"] is not None) for row in rows] == [
                ("RETRYING", True),
                ("IN_FLIGHT", False),
            ]

        eventually_blocking(has_both, 30)
        yield str(hanging.message_id)
        going_on.set()


def flat(outcome: Outcome) -> str:
    return " ".join(outcome.out.split())


def test_what_blocks_a_group_is_read_in_eighty_columns_with_what_to_do(
    msgcenter: Msgcenter, blocked: str, running_broker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    wide = msgcenter("group", "unsettled", "SG_POINTS")
    monkeypatch.setattr(output, "_PIPED_WIDTH", 80)
    narrow = msgcenter("group", "unsettled", "SG_POINTS")

    assert (narrow.status, narrow.err) == (0, "")
    assert max(len(line) for line in narrow.out.splitlines()) <= 80
    said = flat(wide)
    assert "RETRYING" in said
    assert "TP_TRADE/EC_PAID, key order-1, queue 1 offset 0: attempt 2 is due at " in said
    assert "the warehouse is closed" in said
    assert f"{blocked} TP_TRADE/EC_PAID, key order-2, queue 1 offset 1: held for " in said
    assert f" s: instance {INSTANCE} " in said
    assert f"at broker {running_broker} has it, as attempt 1, since " in said
    assert "What to do with one of them: msgcenter message status ID --group SG_POINTS" in said
    # What it tells to type can be typed.
    (skip,) = [line.strip() for line in wide.out.splitlines() if "message skip" in line]
    typed = skip.replace("ID", blocked).replace("...", "hangs").removeprefix("msgcenter ").split()
    assert msgcenter(*typed, "--dry-run").status == 0
    (disconnect,) = [line.strip() for line in wide.out.splitlines() if "instance disconnect" in line]
    typed = disconnect.replace("INSTANCE", INSTANCE).replace("...", "hangs").removeprefix("msgcenter ").split()
    assert msgcenter(*typed, "--dry-run").status == 0


def test_programs_read_all_of_it_and_only_what_is_asked_for(
    msgcenter: Msgcenter, blocked: str, running_broker: str
) -> None:
    report = msgcenter("group", "unsettled", "SG_POINTS", "--json").json
    in_flight = msgcenter("group", "unsettled", "SG_POINTS", "--state", "in_flight", "--json").json["messages"]
    of_instance = msgcenter("group", "unsettled", "SG_POINTS", "--instance", INSTANCE, "--json").json["messages"]
    shelved = msgcenter("group", "unsettled", "SG_POINTS", "--state", "shelved")
    first = msgcenter("group", "unsettled", "SG_POINTS", "--limit", "1")

    failed, hanging = report["messages"]
    assert (report["is_complete"], report["why_not"], report["next"]) == (True, [], [])
    assert (failed["state"], failed["attempt"], failed["key"]) == ("RETRYING", 2, "order-1")
    assert (hanging["message_id"], hanging["instance_id"], hanging["broker"]) == (blocked, INSTANCE, running_broker)
    assert [row["message_id"] for row in in_flight] == [row["message_id"] for row in of_instance] == [blocked]
    assert shelved.out == "Nothing that is asked for is begun and not settled.\n"
    assert "Only the first 1: there are more (--limit)." in first.err


def test_the_lag_of_a_group_tells_where_to_look(msgcenter: Msgcenter, blocked: str) -> None:
    hint = "What it has not settled, and who has it: msgcenter group unsettled SG_POINTS\n"

    assert msgcenter("lag", "--group", "SG_POINTS").out.endswith(hint)
    assert hint not in msgcenter("lag").out


@pytest.mark.parametrize(
    "typed, status, says",
    [
        (("SG_TYPO",), 1, "(GROUP_NOT_FOUND)"),
        (("SG_POINTS", "--topic", "TP_TYPO"), 1, "(TOPIC_NOT_FOUND)"),
        (("SG_POINTS", "--queue", "1"), 1, "there is no queue '1 of what SG_POINTS subscribes to' (THING_NOT_FOUND)"),
        (("SG_POINTS", "--state", "delivered"), 2, "--state"),
        (("SG_POINTS", "--state", "shelved", "--instance", "a"), 1, "(INVALID_SETTING)"),
        (("SG_POINTS", "--limit", "0"), 2, "--limit"),
    ],
)
def test_what_cannot_be_asked_is_refused(
    msgcenter: Msgcenter, topic: str, typed: tuple[str, ...], status: int, says: str
) -> None:
    refused = msgcenter("group", "unsettled", *typed)

    assert (refused.status, refused.out) == (status, "")
    assert says in refused.err


def test_the_example_of_its_help_runs(msgcenter: Msgcenter, blocked: str) -> None:
    (example,) = [each for each in examples_of("group") if "unsettled" in each]

    outcome = msgcenter(*example)

    assert outcome.status == 0, outcome.err
    assert blocked in flat(outcome)
