"""Publishing does not slow down because somebody reads: a backup, an archive job, a forgotten session."""

from __future__ import annotations

import statistics
import time

from msgdb.append.appender import Appender
from msgdb.log.queues import ensure_queues
from msgdb.postgres.connections import Connection
from msgdb.store import MessageStore
from tests.support.appending import frame, message, new_publisher, open_appender
from tests.support.eventually import eventually

_MEASURED = 300
_BETWEEN = 2_000
_RATIO_MIN = 0.7


async def test_an_open_snapshot_elsewhere_does_not_slow_commits_down(store: MessageStore, conn: Connection) -> None:
    queues = [queue.queue_id for queue in await ensure_queues(conn, 1, 1, 4)]
    publisher = new_publisher()
    async with open_appender(store) as appender, store.connection() as reader:
        before = await _commit_seconds(appender, publisher, 1, _MEASURED, queues)
        await reader.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        await reader.execute("SELECT count(*) FROM message")

        await _commit_seconds(appender, publisher, _MEASURED + 1, _BETWEEN, queues)
        after = await _commit_seconds(appender, publisher, _MEASURED + _BETWEEN + 1, _MEASURED, queues)
        await reader.execute("ROLLBACK")

    ratio = statistics.median(before) / statistics.median(after)
    assert ratio >= _RATIO_MIN, (
        f"a commit took {statistics.median(before):.6f} s and takes {statistics.median(after):.6f} s"
    )


async def test_a_commit_leaves_no_dead_row_behind(store: MessageStore, conn: Connection) -> None:
    # What an open snapshot makes slow, as it may not be cleaned up: rows replaced in place, commit by commit.
    queues = [queue.queue_id for queue in await ensure_queues(conn, 1, 1, 4)]
    async with open_appender(store) as appender:
        await _commit_seconds(appender, new_publisher(), 1, 50, queues)

    async def counted() -> list[int]:
        rows = await conn.execute(
            "SELECT sum(n_tup_ins), sum(n_tup_upd + n_tup_del) FROM pg_stat_user_tables"
            " WHERE relname ~ '^(message|publisher_frame|queue|cursor)'"
        )
        inserted, replaced = await rows.fetchone() or (0, 0)
        return [inserted, replaced] if inserted >= 2 * 50 else []

    _, replaced = await eventually(counted)
    assert replaced == 0


async def _commit_seconds(
    appender: Appender, publisher: bytes, first: int, count: int, queues: list[int]
) -> list[float]:
    seconds: list[float] = []
    for sequence in range(first, first + count):
        out = [message(queues[sequence % len(queues)])]
        started_at = time.perf_counter()
        await appender.append([frame(publisher, sequence, out)])
        seconds.append(time.perf_counter() - started_at)
    return seconds
