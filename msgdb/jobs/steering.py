"""What operators do with jobs: begin one, pause it, let it go on, cancel it, give it another rate. Each is an act."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from psycopg.types.json import Jsonb

from msgbroker.contract.errors import InvalidSettingError, JobStateError, ThingNotFoundError
from msgdb.acts import write_act
from msgdb.jobs.records import RATE_MAX, JobState, NewJob
from msgdb.postgres.connections import Connection

_CREATE: Final = """
INSERT INTO job (kind, state, namespace, thing, spec, total, rate, actor, reason)
VALUES (%(kind)s, 'RUNNING', %(namespace)s, %(thing)s, %(spec)s, %(total)s, %(rate)s, %(actor)s, %(reason)s)
RETURNING job_id
"""
# By the primary key. Whoever is at the job writes a step down in a moment, and is waited for.
_LOCK: Final = """
SELECT state, namespace, thing FROM job
WHERE job_id = %(job_id)s AND (%(namespace)s::text IS NULL OR namespace = %(namespace)s) FOR UPDATE
"""
# Whoever is at it ends its step, and hears of it then.
_SET_STATE: Final = """
UPDATE job
SET state = %(state)s, changed_at = clock_timestamp(), not_before = clock_timestamp(), tries = 0,
    ended_at = CASE WHEN %(state)s = 'CANCELLED' THEN clock_timestamp() END
WHERE job_id = %(job_id)s
"""
# By the primary key. What is still waited for after its last step becomes shorter with a higher rate: else a slow job
# would not hear of it for hours. What kept it from going on is waited for all the same.
_SET_RATE: Final = """
UPDATE job
SET rate = %(rate)s, not_before = CASE
        WHEN tries = 0 AND %(rate)s > rate AND not_before > clock_timestamp()
        THEN clock_timestamp() + (not_before - clock_timestamp()) * (rate / %(rate)s)
        ELSE not_before END
WHERE job_id = %(job_id)s
"""

_RUNNING_OR_PAUSED: Final = frozenset({JobState.RUNNING, JobState.PAUSED})
_POSSIBLE_FROM: Final[Mapping[JobState, frozenset[JobState]]] = MappingProxyType(
    {
        JobState.PAUSED: frozenset({JobState.RUNNING}),
        JobState.RUNNING: frozenset({JobState.PAUSED}),
        JobState.CANCELLED: _RUNNING_OR_PAUSED,
    }
)
_ACTIONS: Final[Mapping[JobState, str]] = MappingProxyType(
    {JobState.PAUSED: "job.pause", JobState.RUNNING: "job.resume", JobState.CANCELLED: "job.cancel"}
)


async def begin_job(
    conn: Connection, job: NewJob, *, actor: str, reason: str, detail: Mapping[str, Any] = MappingProxyType({})
) -> int:
    """Write down a job that brokers begin at once, and who has begun it, with *detail*; return its id."""
    _check_rate(job.rate)
    parameters: dict[str, Any] = {
        "kind": job.kind,
        "namespace": job.namespace,
        "thing": job.thing,
        "spec": Jsonb(job.spec),
        "total": job.total,
        "rate": job.rate,
        "actor": actor,
        "reason": reason.strip(),
    }
    row = await (await conn.execute(_CREATE, parameters)).fetchone()
    assert row is not None, "one row is returned"
    job_id: int = row[0]
    said = {"job_id": job_id, "counted": job.total, **detail}
    action = f"job.{job.kind.lower()}"
    about = {"namespace": job.namespace, "thing": job.thing}
    await write_act(conn, actor=actor, action=action, reason=reason, detail=said, **about)
    return job_id


async def set_state(
    conn: Connection, job_id: int, state: JobState, *, actor: str, reason: str, namespace: str | None = None
) -> None:
    """Pause a job, let it go on, or cancel it; said twice it changes nothing.

    Raises ThingNotFoundError, also where it is of another *namespace*, or JobStateError where that is not possible.
    """
    found, about = await _lock(conn, job_id, namespace)
    if found is state:
        return
    if found not in _POSSIBLE_FROM[state]:
        raise JobStateError(job_id, found)
    await conn.execute(_SET_STATE, {"job_id": job_id, "state": state})
    await write_act(conn, actor=actor, action=_ACTIONS[state], **about, reason=reason, detail={"job_id": job_id})


async def set_rate(
    conn: Connection, job_id: int, rate: float, *, actor: str, reason: str, namespace: str | None = None
) -> None:
    """Let a job do so many messages a second at most, from its next step on. Raises as `set_state` does."""
    _check_rate(rate)
    found, about = await _lock(conn, job_id, namespace)
    if found not in _RUNNING_OR_PAUSED:
        raise JobStateError(job_id, found)
    await conn.execute(_SET_RATE, {"job_id": job_id, "rate": rate})
    detail = {"job_id": job_id, "rate": rate}
    await write_act(conn, actor=actor, action="job.set_rate", **about, reason=reason, detail=detail)


def _check_rate(rate: float) -> None:
    if not 0 < rate <= RATE_MAX:
        raise InvalidSettingError("rate", f"must be more than 0, and {RATE_MAX:,.0f} messages a second at most")


async def _lock(conn: Connection, job_id: int, namespace: str | None) -> tuple[JobState, dict[str, str]]:
    """Return a job's state, and what an act on it is about."""
    row = await (await conn.execute(_LOCK, {"job_id": job_id, "namespace": namespace})).fetchone()
    if row is None:
        raise ThingNotFoundError("job", str(job_id), namespace=namespace)
    return JobState(row[0]), {"namespace": row[1], "thing": row[2]}
