"""Jobs as operators see them: which there are, how far each is, and which messages one could not do."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final, NamedTuple

from msgbroker.contract.errors import ThingNotFoundError
from msgdb.jobs.records import JobFailure
from msgdb.postgres.connections import Connection

PAGE_MAX: Final = 1_000
KEPT_DAYS: Final = 90
"""How long jobs that have ended are kept."""
_FORGOTTEN_AT_ONCE: Final = 100


class JobStatus(NamedTuple):
    """A job as operators see it."""

    job_id: int
    kind: str
    state: str
    namespace: str
    thing: str
    """What it is about, for people."""
    total: int
    """How many messages were counted before it began."""
    done: int
    failed: int
    skipped: int
    """Messages that were left as they are, though they were counted."""
    scanned: int
    """How many offsets of the log it has looked at."""
    rate: float
    """How many messages a second it does at most."""
    actor: str
    reason: str
    created_at: datetime
    started_at: datetime | None
    changed_at: datetime
    """When it went on last."""
    ended_at: datetime | None
    is_in_step: bool
    """Whether messages of it are on their way into the store: that is ended, whatever becomes of the job."""
    waits_seconds: float
    """How long it waits before it is tried again; 0: it does not."""
    tries: int
    """How often in a row it could not go on."""
    last_error: str | None


_COLUMNS: Final = """
job_id, kind, state, namespace, thing, total, done, failed, skipped, scanned, rate, actor, reason, created_at,
started_at, changed_at, ended_at, batch IS NOT NULL,
CASE WHEN state = 'RUNNING' THEN greatest(0, extract(epoch FROM not_before - clock_timestamp()))::float8 ELSE 0 END,
tries, last_error
"""
# By the primary key, backwards. Nobody has so many jobs in 90 days that leaving some out would take long.
_WANTED: Final = "job_id < %(before_id)s AND (NOT %(only_open)s OR state IN ('RUNNING', 'PAUSED'))"
_LIST: Final = f"SELECT {_COLUMNS} FROM job WHERE {_WANTED} ORDER BY job_id DESC LIMIT %(limit)s"
# By the index on the namespace, backwards: the jobs of others are not read.
_LIST_OF_NAMESPACE: Final = f"""
SELECT {_COLUMNS} FROM job WHERE namespace = %(namespace)s AND {_WANTED} ORDER BY job_id DESC LIMIT %(limit)s
"""
# By the primary key, all of these.
_GET: Final = f"""
SELECT {_COLUMNS} FROM job
WHERE job_id = %(job_id)s AND (%(namespace)s::text IS NULL OR namespace = %(namespace)s)
"""
_SPEC: Final = """
SELECT spec FROM job
WHERE job_id = %(job_id)s AND (%(namespace)s::text IS NULL OR namespace = %(namespace)s)
"""
_FAILURES: Final = """
SELECT item, error FROM job_failure WHERE job_id = %(job_id)s ORDER BY failure_id LIMIT %(limit)s
"""
# With what is noted of them, by the foreign key.
_FORGET: Final = """
DELETE FROM job WHERE job_id = ANY(ARRAY(
    SELECT job_id FROM job
    WHERE ended_at < clock_timestamp() - %(kept_days)s * interval '24 hours' AND batch IS NULL
    ORDER BY job_id LIMIT %(limit)s
))
"""
_NEWEST: Final = 2**63 - 1


async def list_jobs(
    conn: Connection,
    *,
    namespace: str | None = None,
    only_open: bool = False,
    before_id: int | None = None,
    limit: int = 100,
) -> list[JobStatus]:
    """Return a page of jobs, of this namespace where it is given, the newest first.

    The last one's id begins the next page.
    """
    statement = _LIST if namespace is None else _LIST_OF_NAMESPACE
    parameters: dict[str, Any] = {
        "namespace": namespace,
        "only_open": only_open,
        "before_id": _NEWEST if before_id is None else before_id,
        "limit": min(limit, PAGE_MAX),
    }
    return [JobStatus._make(row) for row in await (await conn.execute(statement, parameters)).fetchall()]


async def get_job(conn: Connection, job_id: int, *, namespace: str | None = None) -> JobStatus:
    """Return a job, of this namespace where it is given. Raises ThingNotFoundError."""
    row = await (await conn.execute(_GET, {"job_id": job_id, "namespace": namespace})).fetchone()
    if row is None:
        raise ThingNotFoundError("job", str(job_id), namespace=namespace)
    return JobStatus._make(row)


async def get_spec(conn: Connection, job_id: int, *, namespace: str | None = None) -> dict[str, Any]:
    """Return all that a job goes by. Raises as `get_job` does."""
    row = await (await conn.execute(_SPEC, {"job_id": job_id, "namespace": namespace})).fetchone()
    if row is None:
        raise ThingNotFoundError("job", str(job_id), namespace=namespace)
    spec: dict[str, Any] = row[0]
    return spec


async def list_failures(
    conn: Connection, job_id: int, limit: int = PAGE_MAX, *, namespace: str | None = None
) -> list[JobFailure]:
    """Return what a job could not do, in the order in which it came to it: the first thousand are kept.

    Raises as `get_job` does.
    """
    await get_job(conn, job_id, namespace=namespace)
    rows = await (await conn.execute(_FAILURES, {"job_id": job_id, "limit": min(limit, PAGE_MAX)})).fetchall()
    return [JobFailure._make(row) for row in rows]


async def forget_jobs(conn: Connection) -> int:
    """Delete the oldest of the jobs that ended long ago, and return how many: a hundred at most."""
    cursor = await conn.execute(_FORGET, {"kept_days": KEPT_DAYS, "limit": _FORGOTTEN_AT_ONCE})
    return cursor.rowcount
