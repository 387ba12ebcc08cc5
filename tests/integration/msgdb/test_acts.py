"""Acts: what is written down of who did what, and how it is read again."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from msgbroker.contract.errors import InvalidSettingError, ThingNotFoundError
from msgbroker.contract.limits import REASON_CHARS_MAX
from msgdb.acts import Act, forget_acts, get_act, list_acts, write_act
from msgdb.postgres.connections import Connection

ACTOR = "ada"


async def do(conn: Connection, thing: str, *, actor: str = ACTOR, reason: str = "why") -> int:
    return await write_act(conn, actor=actor, action="test.do", namespace="shop", thing=thing, reason=reason)


async def test_acts_are_paged_the_newest_first(conn: Connection) -> None:
    for number in range(5):
        await do(conn, str(number))

    first: list[Act] = await list_acts(conn, limit=2)
    second = await list_acts(conn, before_id=first[-1].act_id, limit=10)

    assert [act.thing for act in first] == ["4", "3"]
    assert [act.thing for act in second] == ["2", "1", "0"]


@pytest.mark.parametrize(
    "actor, reason", [("", "why"), ("  ", "why"), ("ada", "\n"), ("ada", "x" * (REASON_CHARS_MAX + 1)), ("ada", "a\0b")]
)
async def test_an_act_says_who_and_why_within_bounds(conn: Connection, actor: str, reason: str) -> None:
    with pytest.raises(InvalidSettingError):
        await do(conn, "thing", actor=actor, reason=reason)
    assert await list_acts(conn) == []


async def test_acts_are_kept_for_a_year(conn: Connection) -> None:
    for age in ("365 days", "367 days"):
        act_id = await do(conn, age)
        await conn.execute(f"UPDATE act SET at = clock_timestamp() - interval '{age}' WHERE act_id = %s", (act_id,))

    assert await forget_acts(conn) == 1

    assert [act.thing for act in await list_acts(conn)] == ["365 days"]


async def test_acts_are_forgotten_a_thousand_at_a_time_the_oldest_first(conn: Connection) -> None:
    await conn.execute(
        "INSERT INTO act (at, actor, action, thing, reason)"
        " SELECT now() - interval '2 years' - n * interval '1 minute', 'ada', 'test.do', n::text, 'why'"
        " FROM generate_series(1, 1500) n"
    )

    assert await forget_acts(conn) == 1_000
    left = {int(act.thing) for act in await list_acts(conn, limit=1_000)}
    assert left == set(range(1, 501))
    assert await forget_acts(conn) == 500
    assert await forget_acts(conn) == 0


async def test_acts_are_listed_by_what_was_done(conn: Connection) -> None:
    for action, namespace in (("archive.waive", None), ("group.move", "shop"), ("archive.require", None)):
        await write_act(conn, actor=ACTOR, action=action, namespace=namespace, thing="thing", reason="why")

    assert [act.action for act in await list_acts(conn, action="archive.")] == ["archive.require", "archive.waive"]
    assert [act.action for act in await list_acts(conn, action="group.move")] == ["group.move"]
    assert await list_acts(conn, action="%") == []


async def test_an_act_is_looked_up_with_all_that_is_known_of_it(conn: Connection) -> None:
    said: dict[str, Any] = {"actor": ACTOR, "reason": "why", "detail": {"count": 2**63}}
    act_id = await write_act(conn, action="test.do", namespace="shop", thing="thing", **said)

    assert (await get_act(conn, act_id)).detail == {"count": 2**63}
    with pytest.raises(ThingNotFoundError, match="act"):
        await get_act(conn, act_id + 1)


async def test_the_acts_of_a_namespace_are_told_without_those_of_others_and_of_the_center(conn: Connection) -> None:
    for action, namespace in (("a.do", "shop"), ("a.do", "default"), ("archive.waive", None), ("b.do", "shop")):
        await write_act(conn, actor=ACTOR, action=action, namespace=namespace, thing=action, reason="why")
    # As versions of before write one.
    await conn.execute("INSERT INTO act (actor, action, thing, reason) VALUES ('ada', 'a.do', 'of before', 'why')")

    every = await list_acts(conn)
    first, second = await list_acts(conn, namespace="shop")

    assert [(act.thing, act.namespace, act.is_namespace_noted) for act in every] == [
        ("of before", None, False),
        ("b.do", "shop", True),
        ("archive.waive", None, True),
        ("a.do", "default", True),
        ("a.do", "shop", True),
    ]
    assert [first.action, second.action] == ["b.do", "a.do"]
    assert await list_acts(conn, namespace="shop", before_id=first.act_id) == [second]
    assert await list_acts(conn, namespace="shop", action="b.", actor=ACTOR) == [first]
    assert await list_acts(conn, namespace="shop", until=second.at) == []
    assert await list_acts(conn, namespace="") == []


@pytest.mark.parametrize("action, namespace", [("group.reset", None), ("archive.waive", "shop"), ("lanes.x", "shop")])
async def test_an_act_says_which_namespace_it_is_of(conn: Connection, action: str, namespace: str | None) -> None:
    with pytest.raises(AssertionError, match="namespace"):
        await write_act(conn, actor=ACTOR, action=action, namespace=namespace, thing="thing", reason="why")


async def test_acts_are_listed_by_who_did_them_and_when(conn: Connection) -> None:
    for actor, age in (("cli:ada", "3 hours"), ("cli:bo_b", "2 hours"), ("cli:ada", "1 hour")):
        act_id = await do(conn, age, actor=actor)
        await conn.execute(f"UPDATE act SET at = clock_timestamp() - interval '{age}' WHERE act_id = %s", (act_id,))
    now = datetime.now(UTC)
    since, until = now - timedelta(minutes=150), now - timedelta(minutes=90)

    assert [act.thing for act in await list_acts(conn, actor="ada")] == ["1 hour", "3 hours"]
    assert [act.thing for act in await list_acts(conn, since=since)] == ["1 hour", "2 hours"]
    assert [act.thing for act in await list_acts(conn, until=until)] == ["2 hours", "3 hours"]
    assert [act.thing for act in await list_acts(conn, since=since, until=until)] == ["2 hours"]
    assert await list_acts(conn, actor="ada", since=since, until=until) == []
    assert await list_acts(conn, actor="%") == []
