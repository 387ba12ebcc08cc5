"""`msgcenter group drain`, as operators type it."""

from __future__ import annotations

import json

import pytest

from tests.integration.msgconsole.cli.conftest import Msgcenter
from tests.support.examples import examples_of


@pytest.fixture
def stored(msgcenter: Msgcenter, running_broker: str) -> str:
    """Register a group that nobody is connected for, and publish two messages; return the broker's address."""
    for arguments in (
        ("topic", "create", "TP_TRADE", "--queues", "1"),
        ("event-code", "create", "TP_TRADE", "EC_PAID"),
        ("group", "create", "SG_POINTS"),
        ("subscription", "create", "SG_POINTS", "TP_TRADE", "EC_PAID"),
        ("publish", "TP_TRADE", "EC_PAID", "x", "--count", "2"),
    ):
        outcome = msgcenter(*arguments)
        assert outcome.status == 0, outcome.err
    return running_broker


@pytest.mark.usefixtures("stored")
def test_it_says_what_is_left_and_fails_where_that_takes_too_long_and_ends_well_once_all_is_settled(
    msgcenter: Msgcenter,
) -> None:
    late = msgcenter("group", "drain", "SG_POINTS", "--timeout", "2")
    assert late.status == 1
    first, *_, last = late.out.splitlines()
    waits = (
        "2 messages left, 2 of them not tried yet or with an instance; "
        "no broker serves these queues: is an instance of the group connected?"
    )
    assert first == f"SG_POINTS: {waits} ..."
    assert last == f"Group SG_POINTS is not empty: {waits}."
    told = msgcenter("group", "drain", "SG_POINTS", "--timeout", "0", "--json")
    record = json.loads(told.out)
    assert (told.status, record["unsettled"], record["is_empty"]) == (1, 2, False)
    assert [(each["behind"], each["is_served"]) for each in record["queues"]] == [(2, False)]

    arguments = ("subscribe", "--group", "SG_POINTS", "--topic", "TP_TRADE", "--count", "2")
    assert msgcenter(*arguments).status == 0
    done = msgcenter("group", "drain", "SG_POINTS", "--timeout", "10")
    assert (done.status, done.out.splitlines()[-1]) == (
        0,
        "Group SG_POINTS is empty: all that was stored as the wait began is settled.",
    )


def test_its_example_works_as_typed(msgcenter: Msgcenter) -> None:
    assert msgcenter("topic", "create", "TP_TRADE").status == 0
    assert msgcenter("group", "create", "SG_POINTS").status == 0
    assert msgcenter("subscription", "create", "SG_POINTS", "TP_TRADE").status == 0

    (example,) = [typed for typed in examples_of("group") if typed[1] == "drain"]
    done = msgcenter(*example)

    assert done.status == 0, done.err


def test_what_is_not_registered_is_refused(msgcenter: Msgcenter) -> None:
    refused = msgcenter("group", "drain", "SG_NOBODY")

    assert (refused.status, refused.err.endswith("(GROUP_NOT_FOUND)\n")) == (1, True)
