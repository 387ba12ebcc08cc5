"""What brokers write of a job: one of them has it, and what is counted is what was done."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from msgbroker.contract import limits
from msgbroker.contract.errors import JobLostError
from msgdb.jobs.listing import get_job, list_failures
from msgdb.jobs.records import (
    FAILURES_KEPT_MAX,
    RATE_DEFAULT,
    ClaimedJob,
    JobFailure,
    JobKind,
    JobState,
    JobStep,
    NewJob,
)
from msgdb.jobs.steering import begin_job, set_state
from msgdb.jobs.steps import (
    begin_step,
    claim_jobs,
    end_job,
    finish_step,
    let_go,
    note_failed_try,
    open_batch,
)
from msgdb.postgres.connections import Connection
from msgdb.store import MessageStore
from tests.support.rows import OTHER_OWNER, OWNER

BY_ADA: dict[str, Any] = {"actor": "ada", "reason": "why"}
SPEC = {"wanted": {"group_id": 7}}


async def begin(conn: Connection, kind: JobKind = JobKind.PURGE, total: int = 10) -> int:
    return await begin_job(conn, NewJob(kind, "default", "dead letters of SG_POINTS", SPEC, total), **BY_ADA)


async def claim_one(conn: Connection, owner: UUID = OWNER) -> ClaimedJob:
    (job,) = await claim_jobs(conn, owner, 5, 30)
    return job


async def lapse(conn: Connection, job_id: int) -> None:
    """Let the lease of whoever is at the job pass."""
    await conn.execute(
        "UPDATE job SET lease_until = clock_timestamp() - interval '1 second' WHERE job_id = %s", (job_id,)
    )


async def test_a_job_is_one_brokers_until_its_lease_passes(conn: Connection) -> None:
    job_id = await begin(conn)
    job = await claim_one(conn)

    assert (job.job_id, job.kind, job.spec, job.position, job.batch) == (job_id, JobKind.PURGE, SPEC, None, None)
    assert await claim_jobs(conn, OTHER_OWNER, 5, 30) == []
    await lapse(conn, job_id)
    assert (await claim_one(conn, OTHER_OWNER)).epoch == job.epoch + 1


async def test_a_lease_from_before_the_clock_was_set_back_holds_nobody_up(conn: Connection) -> None:
    job_id = await begin(conn)
    await claim_one(conn)
    await conn.execute(
        "UPDATE job SET lease_until = clock_timestamp() + make_interval(secs => %s) WHERE job_id = %s",
        (limits.LEASE_SECONDS_MAX + 60, job_id),
    )

    assert (await claim_one(conn, OTHER_OWNER)).job_id == job_id


async def test_whoever_has_lost_a_job_changes_nothing_of_it(conn: Connection) -> None:
    job_id = await begin(conn)
    lost = await claim_one(conn)
    await lapse(conn, job_id)
    await claim_one(conn, OTHER_OWNER)
    before = await get_job(conn, job_id)

    assert await open_batch(conn, lost, {"ids": [1]}) is False
    with pytest.raises(JobLostError):
        await finish_step(conn, lost, JobStep({"after": 5}, done=5), [JobFailure("x", "y")])
    await end_job(conn, lost, JobState.DONE)
    await let_go(conn, lost)
    await note_failed_try(conn, lost, "no", 60)

    assert not await begin_step(conn, lost)
    assert await get_job(conn, job_id) == before
    assert await list_failures(conn, job_id) == []


async def test_steps_add_up_and_the_next_broker_goes_on_where_this_one_was(conn: Connection) -> None:
    job_id = await begin(conn)
    job = await claim_one(conn)
    await finish_step(
        conn, job, JobStep({"after": 5}, done=4, failed=1, scanned=9), [JobFailure("dead letter 3", "no")]
    )
    await finish_step(conn, job, JobStep({"after": 9}, done=3, skipped=1))
    await let_go(conn, job)

    status = await get_job(conn, job_id)
    assert (status.done, status.failed, status.skipped, status.scanned, status.state) == (7, 1, 1, 9, "RUNNING")
    assert await list_failures(conn, job_id) == [("dead letter 3", "no")]
    assert (await claim_one(conn, OTHER_OWNER)).position == {"after": 9}


async def test_what_was_begun_is_ended_by_the_next_broker_whatever_becomes_of_the_job(conn: Connection) -> None:
    job_id = await begin(conn, JobKind.REDRIVE)
    job = await claim_one(conn)
    assert await open_batch(conn, job, {"ids": [1, 2]}) is True
    await set_state(conn, job_id, JobState.CANCELLED, **BY_ADA)
    await lapse(conn, job_id)

    assert (await get_job(conn, job_id)).is_in_step
    taken = await claim_one(conn, OTHER_OWNER)
    assert (taken.batch, taken.state) == ({"ids": [1, 2]}, JobState.CANCELLED)
    assert taken.batch_age_seconds is not None
    assert taken.batch_age_seconds >= 0
    assert await finish_step(conn, taken, JobStep({"after": 2}, done=2)) == (JobState.CANCELLED, RATE_DEFAULT)
    await let_go(conn, taken)

    assert await claim_jobs(conn, OWNER, 5, 30) == []
    status = await get_job(conn, job_id)
    assert (status.state, status.done, status.is_in_step) == ("CANCELLED", 2, False)


@pytest.mark.parametrize("state", [JobState.PAUSED, JobState.CANCELLED])
async def test_nothing_new_is_begun_of_a_job_that_is_paused_or_cancelled(conn: Connection, state: JobState) -> None:
    job_id = await begin(conn)
    job = await claim_one(conn)
    await set_state(conn, job_id, state, **BY_ADA)

    assert await open_batch(conn, job, {"ids": [1]}) is False
    await end_job(conn, job, JobState.DONE)
    assert not await begin_step(conn, job)
    assert (await get_job(conn, job_id)).state == state
    await let_go(conn, job)
    assert await claim_jobs(conn, OWNER, 5, 30) == []


async def test_a_job_that_could_not_go_on_waits_and_says_why(conn: Connection) -> None:
    job_id = await begin(conn)
    job = await claim_one(conn)
    await note_failed_try(conn, job, "topic 'TP_TRADE' cannot be stored\0", 60)

    assert await claim_jobs(conn, OWNER, 5, 30) == []
    status = await get_job(conn, job_id)
    assert (status.tries, status.last_error) == (1, "topic 'TP_TRADE' cannot be stored")
    assert 50 < status.waits_seconds <= 60
    await conn.execute("UPDATE job SET not_before = clock_timestamp()")
    job = await claim_one(conn)
    assert job.tries == 1
    await finish_step(conn, job, JobStep({}))
    status = await get_job(conn, job_id)
    assert (status.tries, status.last_error, status.waits_seconds) == (0, None, 0)


async def test_jobs_take_turns_the_one_that_waited_longest_first(conn: Connection) -> None:
    ids = [await begin(conn) for _ in range(3)]
    first = await claim_jobs(conn, OWNER, 2, 30)
    assert [job.job_id for job in first] == ids[:2]
    for job in first:
        await finish_step(conn, job, JobStep({}))
        await let_go(conn, job)

    assert [job.job_id for job in await claim_jobs(conn, OWNER, 2, 30)] == [ids[2], ids[0]]


async def test_a_job_that_somebody_is_just_claiming_is_passed_over(store: MessageStore, conn: Connection) -> None:
    ids = [await begin(conn) for _ in range(2)]
    async with store.transaction() as other:
        assert [job.job_id for job in await claim_jobs(other, OTHER_OWNER, 1, 30)] == ids[:1]

        assert [job.job_id for job in await claim_jobs(conn, OWNER, 5, 30)] == ids[1:]


@pytest.mark.parametrize("state, error", [(JobState.DONE, None), (JobState.FAILED, "another history")])
async def test_a_job_that_has_ended_is_nobodys(conn: Connection, state: JobState, error: str | None) -> None:
    job_id = await begin(conn)
    await end_job(conn, await claim_one(conn), state, error)

    status = await get_job(conn, job_id)
    assert (status.state, status.last_error, status.ended_at is not None) == (state, error, True)
    assert await claim_jobs(conn, OWNER, 5, 30) == []


async def test_of_failures_the_first_thousand_are_kept_and_all_are_counted(conn: Connection) -> None:
    job_id = await begin(conn)
    job = await claim_one(conn)
    for first in range(0, FAILURES_KEPT_MAX + 300, 100):
        failures = [JobFailure(str(number), "x" * 1_000) for number in range(first, first + 100)]
        await finish_step(conn, job, JobStep({}, failed=100), failures)

    assert (await get_job(conn, job_id)).failed == FAILURES_KEPT_MAX + 300
    kept = await list_failures(conn, job_id)
    assert [failure.item for failure in kept] == [str(number) for number in range(FAILURES_KEPT_MAX)]
    assert len(kept[0].error) == 500
