"""Which dead letters may have been purged: of those that are gone nothing is left but the jobs that deleted some."""

from __future__ import annotations

from datetime import datetime
from typing import Final, NamedTuple

from msgdb.dead_letters.wanted import WantedDeadLetters
from msgdb.jobs.specs import PurgeSpec
from msgdb.postgres.connections import Connection

_JOBS_MAX: Final = 1_000

# By the primary key, backwards: jobs are begun by people.
_LIST: Final = """
SELECT job_id, created_at, actor, spec FROM job
WHERE kind = 'PURGE' AND done > 0 AND created_at >= %(since)s ORDER BY job_id DESC LIMIT %(limit)s
"""


class PurgeJob(NamedTuple):
    """A job that deleted dead letters."""

    job_id: int
    created_at: datetime
    """What died later it did not delete."""
    actor: str
    wanted: WantedDeadLetters


async def list_purge_jobs(conn: Connection, since: datetime) -> list[PurgeJob]:
    """Return the jobs begun since then that deleted dead letters, the newest thousand of them, the newest first."""
    rows = await (await conn.execute(_LIST, {"since": since, "limit": _JOBS_MAX})).fetchall()
    return [
        PurgeJob(job_id, created_at, actor, PurgeSpec.of_json(spec).wanted) for job_id, created_at, actor, spec in rows
    ]
