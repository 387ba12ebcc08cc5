"""`msgcenter message status`, as it is typed and read."""

from __future__ import annotations

import asyncio

import pytest

from msgdb.store import MessageStore
from tests.integration.msgconsole.cli.conftest import Msgcenter, Outcome
from tests.support.rows import put_messages


@pytest.fixture
def stored(msgcenter: Msgcenter, database_url: str) -> tuple[str, str]:
    """Register a topic with groups, store a message in its first queue, and return its queue and its id."""
    for arguments in (
        ("topic", "create", "TP_TRADE", "--queues", "1"),
        ("event-code", "create", "TP_TRADE", "EC_PAID"),
        ("group", "create", "SG_ALL"),
        ("group", "create", "SG_HZ"),
        ("subscription", "create", "SG_ALL", "TP_TRADE"),
        ("subscription", "create", "SG_HZ", "TP_TRADE", "EC_PAID", "--expression", 'headers.vip == "1"'),
    ):
        assert msgcenter(*arguments).status == 0

    async def store() -> tuple[str, str]:
        async with MessageStore.open(database_url, pool_size=1) as opened, opened.connection() as conn:
            found = await (await conn.execute("SELECT queue_id FROM queue")).fetchone()
            assert found is not None
            (row,) = await put_messages(conn, found[0], range(1))
            return str(found[0]), row.message_id.hex()

    return asyncio.run(store())


def flat(outcome: Outcome) -> str:
    return " ".join((outcome.out + outcome.err).replace("│", " ").split())


def test_people_read_what_became_of_it_and_why(msgcenter: Msgcenter, stored: tuple[str, str]) -> None:
    queue_id, message_id = stored
    by_id = msgcenter("message", "status", message_id)
    by_place = msgcenter("message", "status", "--queue", queue_id, "--offset", "0")

    assert (by_id.status, by_id.out) == (0, by_place.out)
    said = flat(by_id)
    assert ", TP_TRADE/EC_PAID, key key-0 Queue 1, offset 0, stored at 20" in said
    assert "SG_ALL PENDING NOW no broker serves its lane" in said
    assert (
        "SG_HZ NOT_MATCHED NOW EXPRESSION_FAILED: the expression of the subscription to TP_TRADE/EC_PAID failed" in said
    )
    assert "header 'vip' is missing" in said


def test_what_may_be_so_instead_stands_below(msgcenter: Msgcenter, stored: tuple[str, str], database_url: str) -> None:
    queue_id, message_id = stored

    async def settle() -> None:
        async with MessageStore.open(database_url, pool_size=1) as opened, opened.connection() as conn:
            # Both groups have a cursor behind it.
            groups = "SELECT g, '', %s, 1 FROM generate_series(1, 2) g"
            await conn.execute(f"INSERT INTO cursor (group_id, member, queue_id, acked_offset) {groups}", (queue_id,))

    asyncio.run(settle())
    assert msgcenter("subscription", "update", "SG_HZ", "TP_TRADE", "EC_PAID", "--direct").status == 0

    told = msgcenter("message", "status", message_id, "--group", "SG_HZ")
    (place,) = msgcenter("message", "status", message_id, "--group", "SG_HZ", "--json").json["places"]

    assert "SG_HZ NOT_MATCHED THEN EXPRESSION_FAILED: " in flat(told)
    assert "or DELIVERED by the subscription to TP_TRADE/EC_PAID; if that was after" in flat(told)
    assert "after subscription.update SG_HZ TP_TRADE/EC_PAID of" in flat(told)
    (group,) = place["groups"]
    assert (group["state"], group["why"], group["is_certain"]) == ("NOT_MATCHED", "EXPRESSION_FAILED", False)
    assert [other["state"] for other in group["others"]] == ["DELIVERED"]


def test_programs_read_all_of_it(msgcenter: Msgcenter, stored: tuple[str, str]) -> None:
    found = msgcenter("message", "status", stored[1], "--json").json

    assert (found["is_complete"], found["unanswered"], found["topic"], found["event_code"]) == (
        True,
        [],
        "TP_TRADE",
        "EC_PAID",
    )
    groups = {each["group"]: each for each in found["places"][0]["groups"]}
    assert {name: (each["state"], each["basis"], each["is_certain"]) for name, each in groups.items()} == {
        "SG_ALL": ("PENDING", "NOW", True),
        "SG_HZ": ("NOT_MATCHED", "NOW", True),
    }


@pytest.mark.parametrize(
    "arguments, status, said",
    [
        ((), 2, "give the message's id, or --queue and --offset"),
        (("--queue", "1"), 2, "give the message's id, or --queue and --offset"),
        (("--offset", "1"), 2, "give the message's id, or --queue and --offset"),
        (("4711",), 2, "should be a valid UUID"),
        (("--queue", "99", "--offset", "0"), 1, "'queue 99 offset 0' in a live day of namespace 'default' (THING"),
        (("--queue", "1", "--offset", "0", "--group", "SG_NO"), 1, "(GROUP_NOT_FOUND)"),
        (("--queue", "1", "--offset", "0", "-n", "nobody"), 1, "(NAMESPACE_NOT_FOUND)"),
    ],
)
@pytest.mark.usefixtures("stored")
def test_what_is_not_there_is_refused(msgcenter: Msgcenter, arguments: tuple[str, ...], status: int, said: str) -> None:
    done = msgcenter("message", "status", *arguments)

    assert (done.status, said in flat(done)) == (status, True), done.err
