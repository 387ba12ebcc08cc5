"""What operators ask of brokers: each row is carried out once or never, and only what was done is an act."""

from __future__ import annotations

import asyncio
from uuid import UUID, uuid4

import pytest

from msgbroker.contract.errors import InvalidSettingError
from msgdb.acts import list_acts
from msgdb.postgres.connections import Connection
from msgdb.requests import (
    _OF_BROKER,
    NewRequest,
    Request,
    RequestOutcome,
    ask,
    expire,
    find_outcomes,
    list_requests,
    note_disconnected,
    note_gone,
)
from msgdb.store import MessageStore
from tests.support.waiting import until_someone_waits_for_a_lock

BROKER = UUID(int=7)
BY_ADA = {"actor": "ada", "reason": "it hangs"}
_MORE = """
INSERT INTO broker_request (broker_id, group_id, attachment, thing, actor, reason, expires_at)
SELECT gen_random_uuid(), 1, 'a', 't', 'a', 'r', expires_at FROM broker_request LIMIT 1000
"""
ONE = NewRequest(BROKER, 3, "shop#1", "instance shop of SG")


async def asked(conn: Connection, *requests: NewRequest, seconds: float = 60.0) -> list[int]:
    return list(await ask(conn, requests or (ONE,), seconds=seconds, **BY_ADA))


async def only(conn: Connection) -> Request:
    (request,) = await list_requests(conn, BROKER)
    return request


async def test_a_broker_sees_what_is_asked_of_it_and_no_other(conn: Connection) -> None:
    two = ONE._replace(attachment="shop#2")
    ids = await asked(conn, ONE, two, ONE._replace(broker_id=uuid4()))

    found = await list_requests(conn, BROKER)

    assert [(each.request_id, each.attachment, each.is_done) for each in found] == [
        (ids[0], "shop#1", False),
        (ids[1], "shop#2", False),
    ]


async def test_what_was_done_lately_does_not_hide_what_is_asked(conn: Connection) -> None:
    done = await asked(conn, *(ONE._replace(attachment=f"shop#{number}") for number in range(1_000)))
    await conn.execute("UPDATE broker_request SET outcome = 'DISCONNECTED', ended_at = clock_timestamp()")
    (request_id,) = await asked(conn, ONE._replace(attachment="shop#1000"))

    found = [each.request_id for each in await list_requests(conn, BROKER)]

    assert request_id in found
    assert len(found) == len(done)


async def test_what_was_done_is_an_act_and_is_done_once(conn: Connection) -> None:
    (request_id,) = await asked(conn)
    request = await only(conn)

    assert await note_disconnected(conn, request, namespace="shop")
    assert not await note_disconnected(conn, request, namespace="shop")

    (act,) = await list_acts(conn)
    assert (act.actor, act.action, act.thing, act.reason) == ("ada", "instance.disconnect", ONE.thing, "it hangs")
    assert act.detail == {"request_id": request_id, "attachment": "shop#1"}
    assert act.namespace == "shop"
    assert (await only(conn)).is_done
    assert await find_outcomes(conn, [request_id]) == {request_id: RequestOutcome.DISCONNECTED}


async def test_what_is_not_committed_is_neither_done_nor_an_act(store: MessageStore, conn: Connection) -> None:
    (request_id,) = await asked(conn)
    request = await only(conn)

    async def fail() -> None:
        async with store.transaction() as other:
            await note_disconnected(other, request, namespace="shop")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()

    assert (await list_acts(conn), await find_outcomes(conn, [request_id])) == ([], {})
    assert not (await only(conn)).is_done


async def test_what_was_gone_is_no_act_and_is_not_seen_again(conn: Connection) -> None:
    (request_id,) = await asked(conn)
    await note_gone(conn, await only(conn))

    assert (await list_acts(conn), await list_requests(conn, BROKER)) == ([], [])
    assert await find_outcomes(conn, [request_id]) == {request_id: RequestOutcome.GONE}


async def test_what_nobody_took_in_time_nobody_takes_any_more(conn: Connection) -> None:
    (request_id,) = await asked(conn)
    request = await only(conn)
    await conn.execute("UPDATE broker_request SET expires_at = clock_timestamp()")

    assert await list_requests(conn, BROKER) == []
    assert not await note_disconnected(conn, request, namespace="shop")
    await expire(conn, [request_id])
    assert await find_outcomes(conn, [request_id]) == {request_id: RequestOutcome.EXPIRED}
    assert await list_acts(conn) == []


@pytest.mark.parametrize("is_broker_first", [True, False])
async def test_of_the_broker_and_of_whoever_gives_up_the_first_one_wins(
    store: MessageStore, conn: Connection, *, is_broker_first: bool
) -> None:
    (request_id,) = await asked(conn)
    request = await only(conn)

    async def give_up() -> None:
        async with store.transaction() as other:
            await expire(other, [request_id])

    async def carry_out() -> None:
        async with store.transaction() as other:
            await note_disconnected(other, request, namespace="shop")

    async with store.transaction() as first:
        if is_broker_first:
            assert await note_disconnected(first, request, namespace="shop")
        else:
            await expire(first, [request_id])
        second = asyncio.create_task(give_up() if is_broker_first else carry_out())
        await until_someone_waits_for_a_lock(conn)
    await second

    expected = RequestOutcome.DISCONNECTED if is_broker_first else RequestOutcome.EXPIRED
    assert await find_outcomes(conn, [request_id]) == {request_id: expected}
    assert len(await list_acts(conn)) == is_broker_first


@pytest.mark.parametrize("said", [{"actor": "ada", "reason": " "}, {"actor": "", "reason": "why"}])
async def test_who_asks_says_who_and_why(conn: Connection, said: dict[str, str]) -> None:
    with pytest.raises(InvalidSettingError):
        await ask(conn, [ONE], seconds=60.0, **said)

    assert await list_requests(conn, BROKER) == []


async def test_what_is_long_over_is_forgotten_as_something_new_is_asked(conn: Connection) -> None:
    old = await asked(conn)
    await conn.execute("UPDATE broker_request SET expires_at = clock_timestamp() - interval '2 hours'")
    new = await asked(conn)

    rows = await (await conn.execute("SELECT request_id FROM broker_request")).fetchall()
    assert ([row[0] for row in rows], old != new) == (new, True)


async def test_a_broker_finds_what_is_asked_of_it_by_the_index(conn: Connection) -> None:
    await asked(conn, *(ONE._replace(broker_id=uuid4()) for _ in range(1_000)))
    for _ in range(9):
        await conn.execute(_MORE)
    await conn.execute("ANALYZE broker_request")

    rows = await conn.execute(f"EXPLAIN {_OF_BROKER}", {"broker_id": BROKER, "limit": 10})
    plan = "\n".join(row[0] for row in await rows.fetchall())
    assert "broker_request_broker_id_idx" in plan
