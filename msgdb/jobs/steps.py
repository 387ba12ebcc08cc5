"""What the broker that is at a job writes of it: the claim, each step, and that it lets go.

A job is claimed with a new epoch and held by a lease; whoever has lost it changes nothing. A step that stores messages
is written down before it is done, as the job's *batch*: which messages, and under which publisher id they are stored.
Whoever ends it, this broker or the next, stores the same frame, which is stored once, and learns of each message what
became of it. So what is counted is what happened, whoever was killed in between.

Each function is part of the caller's transaction. No standby is waited for: what a failover loses of a job it loses
with what the job did after that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from psycopg.types.json import Jsonb

from msgbroker.contract import limits
from msgbroker.contract.errors import JobLostError
from msgdb.jobs.records import FAILURES_KEPT_MAX, ClaimedJob, JobFailure, JobState, JobStep
from msgdb.postgres.array_rows import array_rows
from msgdb.postgres.connections import Connection

ERROR_CHARS_MAX: Final = 500

# From the small index of what is to be done. The one that has waited longest comes first, so that all have their turns.
# A lease that runs for longer than any that can be given is from before the clock was set back. What somebody else is
# just claiming is passed over.
_CLAIM: Final = f"""
WITH free AS (
    SELECT job_id FROM job
    WHERE (state = 'RUNNING' OR batch IS NOT NULL) AND not_before <= clock_timestamp() AND NOT coalesce(
        lease_until BETWEEN clock_timestamp()
        AND clock_timestamp() + {limits.LEASE_SECONDS_MAX} * interval '1 second', false)
    ORDER BY changed_at LIMIT %(limit)s FOR UPDATE SKIP LOCKED
)
UPDATE job j
SET owner = %(owner)s, epoch = j.epoch + 1, started_at = coalesce(j.started_at, clock_timestamp()),
    lease_until = clock_timestamp() + %(lease_seconds)s * interval '1 second'
FROM free WHERE j.job_id = free.job_id
RETURNING j.job_id, j.epoch, j.kind, j.spec, j.rate, j.position, j.batch,
          extract(epoch FROM clock_timestamp() - j.batch_at)::float8, j.state, j.tries
"""

_MINE: Final = "job_id = %(job_id)s AND epoch = %(epoch)s AND owner IS NOT NULL"
_RENEWED: Final = "lease_until = clock_timestamp() + %(lease_seconds)s * interval '1 second'"

# Not where it was paused or cancelled in the meantime: nothing new is begun then.
_OPEN_BATCH: Final = f"""
UPDATE job SET batch = %(batch)s, batch_at = clock_timestamp(), {_RENEWED} WHERE {_MINE} AND state = 'RUNNING'
"""
_DONE_STEP: Final = f"""
UPDATE job
SET batch = NULL, batch_at = NULL, position = %(position)s, done = done + %(done)s, failed = failed + %(failed)s,
    skipped = skipped + %(skipped)s, scanned = scanned + %(scanned)s, tries = 0, last_error = NULL,
    changed_at = clock_timestamp(), {_RENEWED}
WHERE {_MINE}
RETURNING state, rate
"""
# Whoever pauses or cancels it waits for the step's end, and knows then that nothing more is done.
_LOCK: Final = f"SELECT state FROM job WHERE {_MINE} FOR UPDATE"
_NOTE_FAILURES: Final = f"""
INSERT INTO job_failure (job_id, item, error)
SELECT %(job_id)s, w.item, w.error FROM {array_rows("w", item="text", error="text")}
WHERE (SELECT count(*) FROM job_failure WHERE job_id = %(job_id)s) < %(kept_max)s
"""
# What was counted before and is not there any more when its turn comes was skipped; of what is looked for in the log,
# which may have been estimated, only the steps know.
_END: Final = f"""
UPDATE job
SET state = %(state)s, ended_at = clock_timestamp(), changed_at = clock_timestamp(), last_error = %(error)s,
    skipped = greatest(
        skipped, CASE WHEN %(state)s = 'DONE' AND scanned = 0 THEN total - done - failed ELSE 0 END),
    owner = NULL, lease_until = NULL
WHERE {_MINE} AND state = 'RUNNING' AND batch IS NULL
"""
_LET_GO: Final = f"""
UPDATE job SET owner = NULL, lease_until = NULL, not_before = clock_timestamp() + %(wait_seconds)s * interval '1 second'
WHERE {_MINE}
"""
_FAILED_TRY: Final = f"""
UPDATE job
SET owner = NULL, lease_until = NULL, tries = tries + 1, last_error = %(error)s, changed_at = clock_timestamp(),
    not_before = clock_timestamp() + %(wait_seconds)s * interval '1 second'
WHERE {_MINE}
"""


async def claim_jobs(conn: Connection, owner: UUID, limit: int, lease_seconds: float) -> list[ClaimedJob]:
    """Take up to *limit* jobs that somebody has to go on with, those first that have waited longest.

    Others may have one that nothing is written of for *lease_seconds*; each step holds it for as long again.
    """
    parameters = {"owner": owner, "limit": limit, "lease_seconds": lease_seconds}
    rows = await (await conn.execute(_CLAIM, parameters)).fetchall()
    return [ClaimedJob._make((*row[:8], JobState(row[8]), row[9], lease_seconds)) for row in rows]


async def open_batch(conn: Connection, job: ClaimedJob, batch: Mapping[str, Any]) -> bool:
    """Write down what is about to be done; False: the job was paused, ended or lost, and nothing of it is done."""
    parameters = {**_mine(job), "batch": Jsonb(dict(batch))}
    return (await conn.execute(_OPEN_BATCH, parameters)).rowcount == 1


async def finish_step(
    conn: Connection, job: ClaimedJob, step: JobStep, failures: Sequence[JobFailure] = ()
) -> tuple[JobState, float]:
    """Write down what a step did; return the job's state and rate by now. Raises JobLostError."""
    parameters = {**_mine(job), **step._asdict(), "position": Jsonb(step.position)}
    row = await (await conn.execute(_DONE_STEP, parameters)).fetchone()
    if row is None:
        raise JobLostError(job.job_id)
    if failures:
        columns = {
            "item": [failure.item for failure in failures],
            "error": [failure.error[:ERROR_CHARS_MAX].replace("\0", "") for failure in failures],
        }
        await conn.execute(_NOTE_FAILURES, {**columns, "job_id": job.job_id, "kept_max": FAILURES_KEPT_MAX})
    return JobState(row[0]), row[1]


async def begin_step(conn: Connection, job: ClaimedJob) -> bool:
    """Begin a step that is done in this very transaction; False: the job was paused, ended or lost."""
    row = await (await conn.execute(_LOCK, _mine(job))).fetchone()
    return row is not None and row[0] == JobState.RUNNING


async def end_job(conn: Connection, job: ClaimedJob, state: JobState, error: str | None = None) -> bool:
    """End a job that is running; False: it was paused or ended in the meantime, or lost, and stays so."""
    return (await conn.execute(_END, {**_mine(job), "state": state, "error": error})).rowcount == 1


async def let_go(conn: Connection, job: ClaimedJob, wait_seconds: float = 0.0) -> None:
    """Let others have the job, after a while."""
    await conn.execute(_LET_GO, {**_mine(job), "wait_seconds": wait_seconds})


async def note_failed_try(conn: Connection, job: ClaimedJob, error: str, wait_seconds: float) -> None:
    """Let others have the job, which could not go on, after a while."""
    parameters = {**_mine(job), "error": error[:ERROR_CHARS_MAX].replace("\0", ""), "wait_seconds": wait_seconds}
    await conn.execute(_FAILED_TRY, parameters)


def _mine(job: ClaimedJob) -> dict[str, Any]:
    return {"job_id": job.job_id, "epoch": job.epoch, "lease_seconds": job.lease_seconds}
