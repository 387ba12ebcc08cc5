"""Which dead letters may have been purged: of those that are gone nothing is left but the jobs that deleted some."""

from __future__ import annotations

from datetime import datetime
from typing import Final, NamedTuple

from msgdb.dead_letters.wanted import WantedDeadLetters
from msgdb.jobs.specs import PurgeSpec
from msgdb.postgres.connections import Connection

_PAGE: Final = 1_000
_NEWEST: Final = 2**63 - 1

# By the primary key, backwards: jobs are begun by people, and kept for 90 days.
_LIST: Final = """
SELECT job_id, created_at, actor, spec FROM job
WHERE job_id < %(before_id)s AND kind = 'PURGE' AND done > 0 AND created_at >= %(since)s
ORDER BY job_id DESC LIMIT %(limit)s
"""


class PurgeJob(NamedTuple):
    """A job that deleted dead letters."""

    job_id: int
    created_at: datetime
    """What died later it did not delete."""
    actor: str
    wanted: WantedDeadLetters


async def list_purge_jobs(conn: Connection, since: datetime) -> list[PurgeJob]:
    """Return all jobs begun since then that deleted dead letters, the newest first."""
    found: list[PurgeJob] = []
    is_all = False
    while not is_all:
        before_id = found[-1].job_id if found else _NEWEST
        rows = await (await conn.execute(_LIST, {"since": since, "before_id": before_id, "limit": _PAGE})).fetchall()
        found += [
            PurgeJob(job_id, created_at, actor, PurgeSpec.of_json(spec).wanted)
            for job_id, created_at, actor, spec in rows
        ]
        is_all = len(rows) < _PAGE
    return found
