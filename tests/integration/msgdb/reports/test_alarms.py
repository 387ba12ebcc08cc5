"""Alarms in the store: what a broker says stands until it says so no more, or is gone."""

from __future__ import annotations

from uuid import UUID

import pytest
from structlog.testing import capture_logs

from msgbroker.server.alarms.board import AlarmBoard
from msgdb.postgres.connections import Connection, ConnectionConfig
from msgdb.reports.alarms import Alarm, AlarmKind, forget_alarms, list_alarms, write_alarms
from msgdb.store import MessageStore

ONE, OTHER = UUID(int=1), UUID(int=2)
FULL = Alarm(AlarmKind.REDELIVERIES_FULL, "group SG, topic TP, queue 5", "full", group_id=1, topic_id=2, queue_id=5)
ASIDE = Alarm(AlarmKind.LANE_SET_ASIDE, "group SG, topic TP, queue 5", "corrupt")


async def standing(conn: Connection) -> list[tuple[UUID, str, str]]:
    return [(row.broker_id, row.kind, row.detail) for row in await list_alarms(conn)]


async def test_what_a_broker_says_no_more_is_cleared_and_others_are_left_alone(conn: Connection) -> None:
    await write_alarms(conn, ONE, "here:1", [FULL, ASIDE])
    await write_alarms(conn, OTHER, "there:1", [FULL])
    (first, *_) = await list_alarms(conn, include_cleared=True)
    await write_alarms(conn, ONE, "here:1", [ASIDE._replace(detail="still corrupt")])

    assert await standing(conn) == [(OTHER, "REDELIVERIES_FULL", "full"), (ONE, "LANE_SET_ASIDE", "still corrupt")]
    rows = await list_alarms(conn, include_cleared=True)
    assert {(row.broker_id, row.kind) for row in rows if row.cleared_at is not None} == {(ONE, "REDELIVERIES_FULL")}
    assert first.broker == "there:1"
    assert (first.group_id, first.topic_id, first.queue_id) == (1, 2, 5)


async def test_an_alarm_that_comes_again_is_another_one(conn: Connection) -> None:
    for alarms in ([FULL], [], [FULL]):
        await write_alarms(conn, ONE, "here:1", alarms)

    first, second = await list_alarms(conn, include_cleared=True)
    assert (first.cleared_at, second.cleared_at is None) == (None, False)
    assert first.raised_at > second.raised_at


async def test_one_that_is_repeated_keeps_its_beginning(conn: Connection) -> None:
    await write_alarms(conn, ONE, "here:1", [FULL])
    (before,) = await list_alarms(conn)
    await write_alarms(conn, ONE, "here:1", [FULL])
    (after,) = await list_alarms(conn)

    assert after.raised_at == before.raised_at
    assert after.seen_at > before.seen_at


async def test_those_of_a_broker_that_is_gone_are_silent_and_then_cleared(conn: Connection) -> None:
    await write_alarms(conn, ONE, "here:1", [FULL])
    await write_alarms(conn, OTHER, "there:1", [FULL])
    await conn.execute("UPDATE alarm SET seen_at = seen_at - interval '2 minutes' WHERE broker_id = %s", (ONE,))
    assert [row.broker_id for row in await list_alarms(conn) if row.is_silent] == [ONE]

    await forget_alarms(conn)
    assert len(await list_alarms(conn)) == 2
    await conn.execute("UPDATE alarm SET seen_at = seen_at - interval '1 hour' WHERE broker_id = %s", (ONE,))
    await forget_alarms(conn)
    assert [row.broker_id for row in await list_alarms(conn)] == [OTHER]

    await conn.execute("UPDATE alarm SET cleared_at = cleared_at - interval '31 days'")
    await forget_alarms(conn)
    assert [row.broker_id for row in await list_alarms(conn, include_cleared=True)] == [OTHER]


async def test_a_board_writes_what_changed_and_repeats_what_stands(store: MessageStore, conn: Connection) -> None:
    now = 0.0
    board = AlarmBoard(store, ONE, "here:1", lambda: now)
    await board.write_if_due()
    board.raise_alarm(FULL)
    await board.write_if_due()
    (written,) = await list_alarms(conn)
    await board.write_if_due()
    (again,) = await list_alarms(conn)
    assert again == written

    now = 30.0
    await board.write_if_due()
    (repeated,) = await list_alarms(conn)
    assert repeated.seen_at > written.seen_at

    board.clear(FULL.kind, FULL.thing)
    await board.write_if_due()
    assert await list_alarms(conn) == []


async def test_a_board_keeps_what_cannot_be_written_for_later(
    store: MessageStore, conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    away = MessageStore(ConnectionConfig("postgresql://nobody@127.0.0.1:1/nowhere"))
    board = AlarmBoard(away, ONE, "here:1")
    board.raise_alarm(FULL)
    with capture_logs() as logs:
        await board.write_if_due()
    assert [entry["event"] for entry in logs] == ["alarms.store_unavailable"]

    monkeypatch.setattr(board, "_store", store)
    await board.write_if_due()
    assert await standing(conn) == [(ONE, "REDELIVERIES_FULL", "full")]


async def test_a_broker_that_leaves_takes_its_alarms_along(store: MessageStore, conn: Connection) -> None:
    board = AlarmBoard(store, ONE, "here:1")
    board.raise_alarm(FULL)
    await board.write_if_due()
    await board.leave()

    assert await list_alarms(conn) == []
