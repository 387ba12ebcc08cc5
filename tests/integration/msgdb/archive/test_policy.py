"""What must be archived, who said so, and how long that is kept."""

from __future__ import annotations

from datetime import date

import pytest

from msgbroker.contract.errors import InvalidSettingError
from msgdb.acts import list_acts
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
