"""What waits for a standby, and what does not."""

from __future__ import annotations

import asyncio
import time

import psycopg

from msgbroker.contract.errors import StoreUnavailableError
from msgdb.append.appender import Appender
from msgdb.append.plan import AppendFrame, FrameResult, Held
from tests.support.eventually import eventually
from tests.support.replicated_postgres import ReplicatedPostgres

_COMMITTING = """
SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'SyncRep' AND query LIKE '%COMMIT%'
"""


async def store_all(appender: Appender, frames: list[AppendFrame]) -> list[FrameResult]:
    """Append until all is stored, as publishers and committer do between them."""
    deadline = time.monotonic() + 60
    around_held = False
    while True:
        assert time.monotonic() < deadline
        try:
            results = await appender.append(frames, around_held=around_held)
        except StoreUnavailableError:
            around_held = False
            continue
        if not any(isinstance(result, Held) for result in results):
            return results
        around_held = not around_held


async def committing(synchronous: ReplicatedPostgres) -> int:
    """Return the session whose commit waits for the standby, once there is one."""
    with psycopg.connect(synchronous.primary_url, autocommit=True) as connection:
        row = await eventually(lambda: connection.execute(_COMMITTING).fetchone(), what="a commit that waits")
        assert row is not None
        return int(row[0])


async def assert_waits(*storing: asyncio.Task[list[FrameResult]]) -> None:
    """Check that none of these ends for longer than any patience of an append."""
    done, _ = await asyncio.wait(storing, timeout=5.0, return_when=asyncio.FIRST_COMPLETED)
    assert not done, [task.result() for task in done]
