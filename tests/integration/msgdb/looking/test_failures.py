"""What a group's messages fail of, counted; and that not all of them were looked at, where that is so."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from msgdb.looking import failures
from msgdb.looking.failures import Kinds, list_failure_kinds
from msgdb.postgres.connections import Connection
from tests.support.dead_letter_rows import bury
from tests.support.rows import GROUP, make_queue

_WAITING = """
INSERT INTO redelivery (group_id, member, queue_id, queue_offset, stored_at, attempt, due_at, last_error)
SELECT %s, '', %s, o, clock_timestamp() - interval '1 hour', 2, now(), 'no' FROM generate_series(1, 3) o
"""
LATER = datetime.now(UTC) - timedelta(minutes=1)


async def test_that_not_all_were_looked_at_is_told_though_none_of_those_is_meant(
    conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failures, "SCANNED_MAX", 3)
    await bury(conn, 2, topic="TP_STOCK")
    await bury(conn, 2, topic="TP_TRADE")
    assert await list_failure_kinds(conn, GROUP, topic="TP_NONE") == Kinds([], [], is_cut=True)

    monkeypatch.setattr(failures, "SCANNED_MAX", 5)
    assert await list_failure_kinds(conn, GROUP, topic="TP_NONE") == Kinds([], [], is_cut=False)


async def test_that_not_all_that_wait_were_looked_at_is_told_as_well(
    conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    await conn.execute(_WAITING, (GROUP, await make_queue(conn)))
    monkeypatch.setattr(failures, "SCANNED_MAX", 3)
    assert await list_failure_kinds(conn, GROUP, since=LATER) == Kinds([], [], is_cut=True)

    monkeypatch.setattr(failures, "SCANNED_MAX", 4)
    assert await list_failure_kinds(conn, GROUP, since=LATER) == Kinds([], [], is_cut=False)
    (kind,) = (await list_failure_kinds(conn, GROUP)).retrying
    assert (kind.error, kind.messages) == ("no", 3)
