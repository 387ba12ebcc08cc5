"""Failures of expressions in the store: added up by whichever broker, remembered for weeks, then forgotten."""

from __future__ import annotations

import asyncio

from msgdb.postgres.connections import Connection
from msgdb.reports.expression_failures import (
    ExpressionFailure,
    find_expression_failure,
    list_expression_failures,
    write_expression_failures,
)
from msgdb.store import MessageStore
from tests.support.waiting import until_someone_waits_for_a_lock

NO_REGION = 'NOT_FOUND: Key not found in map : "region"'
FIRST = ExpressionFailure(1, 10, 3, "region", NO_REGION)
OTHER = ExpressionFailure(2, 20, 1, None, "INVALID_ARGUMENT: cannot convert string to int")


async def test_counts_are_added_and_the_last_failure_is_the_one_that_is_told(conn: Connection) -> None:
    await write_expression_failures(conn, [FIRST, OTHER])
    (before, _) = await list_expression_failures(conn)
    await write_expression_failures(conn, [FIRST._replace(failures=4, last_header="vip", last_error="no vip")])

    first, other = await list_expression_failures(conn)
    assert (first.failures, first.last_header, first.last_error) == (7, "vip", "no vip")
    assert (first.first_failed_at, first.last_failed_at > before.last_failed_at) == (before.first_failed_at, True)
    assert other[:5] == OTHER


async def test_those_of_one_subscription_can_be_asked_for(conn: Connection) -> None:
    await write_expression_failures(conn, [FIRST, OTHER])

    found = await find_expression_failure(conn, OTHER.subscription_id)
    assert found is not None
    assert found[:5] == OTHER
    assert await find_expression_failure(conn, 30) is None


async def test_two_brokers_that_add_to_the_same_rows_wait_for_each_other_and_lose_nothing(store: MessageStore) -> None:
    async with store.connection() as one, store.connection() as other, store.connection() as watching:
        async with one.transaction():
            await write_expression_failures(one, [OTHER, FIRST])
            adding = asyncio.create_task(write_expression_failures(other, [FIRST, OTHER]))
            await until_someone_waits_for_a_lock(watching)
        await adding

        assert [row.failures for row in await list_expression_failures(one)] == [6, 2]


async def test_a_row_that_is_added_to_stays_on_its_page(conn: Connection) -> None:
    for _ in range(5):
        await write_expression_failures(conn, [FIRST, OTHER])
    await conn.execute("SELECT pg_stat_force_next_flush()")

    cursor = await conn.execute(
        "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'expression_failure'"
    )
    assert await cursor.fetchone() == (8, 8)
