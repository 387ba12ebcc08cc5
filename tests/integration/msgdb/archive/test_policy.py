"""What must be archived, who said so, and how long that is kept."""

from __future__ import annotations

from datetime import date

import pytest

from msgbroker.contract.errors import InvalidSettingError
from msgdb.archive.acts import TEXT_CHARS_MAX, Act, forget_acts, list_acts, write_act
from msgdb.archive.policy import find_policy, list_policies, require, stop_requiring
from msgdb.names import DEAD_LETTER, MESSAGE
from msgdb.postgres.connections import Connection
from tests.support.archive_runs import ACTOR, days_ago


async def told(conn: Connection) -> list[tuple[str, str, str, str]]:
    return [(act.actor, act.action, act.thing, act.reason) for act in await list_acts(conn)]


@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Pacific/Kiritimati"])
async def test_from_today_on_is_from_today_on_in_utc(conn: Connection, zone: str) -> None:
    await conn.execute(f"SET timezone = '{zone}'")

    async with conn.transaction():
        await require(conn, MESSAGE, actor=ACTOR, reason="audit")

    policy = await find_policy(conn, MESSAGE)
    assert policy is not None
    assert policy.required_from == days_ago(0)


async def test_an_archive_is_required_with_the_act_that_says_who_and_why(conn: Connection) -> None:
    async with conn.transaction():
        policy = await require(conn, MESSAGE, actor=ACTOR, reason="audit", from_day=date(2026, 1, 1))

    assert (policy.table, policy.required_from) == (MESSAGE, date(2026, 1, 1))
    assert await find_policy(conn, MESSAGE) == policy
    (act,) = await list_acts(conn)
    assert (act.actor, act.action, act.thing, act.reason) == (ACTOR, "archive.require", MESSAGE, "audit")
    assert act.detail == {"required_from": "2026-01-01"}


async def test_what_is_required_may_be_said_anew(conn: Connection) -> None:
    async with conn.transaction():
        await require(conn, MESSAGE, actor=ACTOR, reason="audit")
        await require(conn, DEAD_LETTER, actor=ACTOR, reason="audit")
        await require(conn, MESSAGE, actor=ACTOR, reason="the past, too", from_day=date(2026, 1, 1))

    policies = {policy.table: policy.required_from for policy in await list_policies(conn)}
    assert policies == {MESSAGE: date(2026, 1, 1), DEAD_LETTER: days_ago(0)}


async def test_what_is_required_already_stays_required(conn: Connection) -> None:
    async with conn.transaction():
        await require(conn, MESSAGE, actor=ACTOR, reason="audit", from_day=date(2026, 1, 1))
        again = await require(conn, MESSAGE, actor=ACTOR, reason="said once more")

    assert again.required_from == date(2026, 1, 1)
    assert (await list_acts(conn))[0].detail == {"required_from": "2026-01-01"}


async def test_it_is_required_no_longer_with_the_act_that_says_who_and_why(conn: Connection) -> None:
    async with conn.transaction():
        await require(conn, MESSAGE, actor=ACTOR, reason="audit")
        assert await stop_requiring(conn, MESSAGE, actor="bob", reason="no disk")

    assert await find_policy(conn, MESSAGE) is None
    assert (await told(conn))[0] == ("bob", "archive.stop_requiring", MESSAGE, "no disk")


async def test_what_was_not_required_is_not_stopped_and_no_act(conn: Connection) -> None:
    async with conn.transaction():
        assert not await stop_requiring(conn, MESSAGE, actor=ACTOR, reason="no disk")

    assert await told(conn) == []


async def test_a_policy_that_is_taken_back_leaves_no_act(conn: Connection) -> None:
    async with conn.transaction(force_rollback=True):
        await require(conn, MESSAGE, actor=ACTOR, reason="audit")

    assert await find_policy(conn, MESSAGE) is None
    assert await told(conn) == []


@pytest.mark.parametrize("table", ["publisher_frame", "nothing"])
async def test_of_a_table_that_is_not_archived_nothing_is_required(conn: Connection, table: str) -> None:
    with pytest.raises(InvalidSettingError, match="message, dead_letter"):
        await require(conn, table, actor=ACTOR, reason="audit")
    with pytest.raises(InvalidSettingError, match="message, dead_letter"):
        await stop_requiring(conn, table, actor=ACTOR, reason="audit")


# --- acts -------------------------------------------------------------------------------------------------------------


async def do(conn: Connection, thing: str, *, actor: str = ACTOR, reason: str = "why") -> int:
    return await write_act(conn, actor=actor, action="test.do", thing=thing, reason=reason)


async def test_acts_are_paged_the_newest_first(conn: Connection) -> None:
    for number in range(5):
        await do(conn, str(number))

    first: list[Act] = await list_acts(conn, limit=2)
    second = await list_acts(conn, before_id=first[-1].act_id, limit=10)

    assert [act.thing for act in first] == ["4", "3"]
    assert [act.thing for act in second] == ["2", "1", "0"]


@pytest.mark.parametrize(
    "actor, reason", [("", "why"), ("  ", "why"), ("ada", "\n"), ("ada", "x" * (TEXT_CHARS_MAX + 1)), ("ada", "a\0b")]
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
