"""What operators do with jobs, each of it an act; and how long what has ended is kept."""

from __future__ import annotations

from typing import Any

import pytest

from msgbroker.contract.errors import InvalidSettingError, JobStateError, ThingNotFoundError
from msgdb.acts import list_acts
from msgdb.jobs.listing import forget_jobs, get_job, get_spec, list_jobs
from msgdb.jobs.records import RATE_MAX, JobKind, JobState, NewJob
from msgdb.jobs.steering import begin_job, set_rate, set_state
from msgdb.jobs.steps import claim_jobs, end_job, let_go, note_failed_try
from msgdb.postgres.connections import Connection
from tests.support.rows import OWNER

BY_ADA: dict[str, Any] = {"actor": "ada", "reason": "why"}


async def begin(conn: Connection, namespace: str = "default", **more: Any) -> int:
    new = NewJob(JobKind.REDRIVE, namespace, "dead letters of SG_POINTS", {"wanted": {"key": "a"}}, 3, **more)
    return await begin_job(conn, new, **BY_ADA, detail={"group": "SG_POINTS"})


async def acts(conn: Connection) -> list[str]:
    return [act.action for act in await list_acts(conn)][::-1]


async def test_whoever_begins_a_job_is_known_with_what_was_counted(conn: Connection) -> None:
    job_id = await begin(conn)

    (act,) = await list_acts(conn)
    assert (act.actor, act.action, act.thing, act.reason) == ("ada", "job.redrive", "dead letters of SG_POINTS", "why")
    assert act.detail == {"job_id": job_id, "counted": 3, "group": "SG_POINTS"}
    status = await get_job(conn, job_id)
    assert (status.state, status.total, status.actor, status.reason) == ("RUNNING", 3, "ada", "why")
    assert await get_spec(conn, job_id) == {"wanted": {"key": "a"}}


async def test_a_job_is_paused_goes_on_and_is_cancelled_and_said_twice_it_is_one_act(conn: Connection) -> None:
    job_id = await begin(conn)
    for state in (JobState.PAUSED, JobState.RUNNING, JobState.CANCELLED):
        for _ in range(2):
            await set_state(conn, job_id, state, **BY_ADA)
            assert (await get_job(conn, job_id)).state == state

    assert await acts(conn) == ["job.redrive", "job.pause", "job.resume", "job.cancel"]
    assert (await get_job(conn, job_id)).ended_at is not None


@pytest.mark.parametrize("state", [JobState.PAUSED, JobState.RUNNING, JobState.CANCELLED])
async def test_a_job_that_has_ended_is_not_begun_again(conn: Connection, state: JobState) -> None:
    job_id = await begin(conn)
    (job,) = await claim_jobs(conn, OWNER, 1, 30)
    await end_job(conn, job, JobState.DONE)

    with pytest.raises(JobStateError, match="DONE"):
        await set_state(conn, job_id, state, **BY_ADA)
    with pytest.raises(JobStateError):
        await set_rate(conn, job_id, 5, **BY_ADA)
    assert await acts(conn) == ["job.redrive"]


async def test_a_rate_is_changed_while_it_runs_within_bounds(conn: Connection) -> None:
    job_id = await begin(conn)
    await set_rate(conn, job_id, 12.5, **BY_ADA)

    assert (await get_job(conn, job_id)).rate == 12.5
    for rate in (0, -1, RATE_MAX + 1, float("nan")):
        with pytest.raises(InvalidSettingError, match="rate"):
            await set_rate(conn, job_id, rate, **BY_ADA)
        with pytest.raises(InvalidSettingError, match="rate"):
            await begin(conn, rate=rate)


async def test_a_job_that_was_slow_goes_on_at_once_at_a_higher_rate(conn: Connection) -> None:
    job_id = await begin(conn, rate=0.001)
    (job,) = await claim_jobs(conn, OWNER, 1, 30)
    # As after its step, which had one message.
    await let_go(conn, job, 1_000.0)

    await set_rate(conn, job_id, 0.01, **BY_ADA)
    assert 90 < (await get_job(conn, job_id)).waits_seconds <= 100
    await set_rate(conn, job_id, 0.005, **BY_ADA)
    assert 90 < (await get_job(conn, job_id)).waits_seconds <= 100
    await set_rate(conn, job_id, RATE_MAX, **BY_ADA)
    assert await claim_jobs(conn, OWNER, 1, 30)


async def test_what_kept_a_job_from_going_on_is_waited_for_at_any_rate(conn: Connection) -> None:
    job_id = await begin(conn)
    (job,) = await claim_jobs(conn, OWNER, 1, 30)
    await note_failed_try(conn, job, "the topic's queue is held", 60.0)

    await set_rate(conn, job_id, RATE_MAX, **BY_ADA)

    assert (await get_job(conn, job_id)).waits_seconds > 50


async def test_jobs_are_paged_the_newest_first_of_one_namespace_or_only_those_that_are_open(conn: Connection) -> None:
    ids = [await begin(conn), await begin(conn, "shop"), await begin(conn)]
    await set_state(conn, ids[2], JobState.CANCELLED, **BY_ADA)

    async def listed(**wanted: Any) -> list[int]:
        return [status.job_id for status in await list_jobs(conn, **wanted)]

    assert await listed() == ids[::-1]
    assert await listed(limit=1, before_id=ids[2]) == [ids[1]]
    assert await listed(namespace="shop") == [ids[1]]
    assert await listed(only_open=True) == ids[1::-1]


async def test_one_that_is_not_there_is_not_found(conn: Connection) -> None:
    for looking in (get_job(conn, 1), get_spec(conn, 1), set_state(conn, 1, JobState.PAUSED, **BY_ADA)):
        with pytest.raises(ThingNotFoundError, match="job"):
            await looking


async def test_jobs_that_ended_long_ago_are_forgotten_and_no_others(conn: Connection) -> None:
    ids = [await begin(conn) for _ in range(4)]
    for job_id in ids[:3]:
        await set_state(conn, job_id, JobState.CANCELLED, **BY_ADA)
    await conn.execute("UPDATE job SET ended_at = now() - interval '91 days' WHERE job_id = ANY(%s)", (ids[:2],))
    await conn.execute("UPDATE job SET batch = '{}' WHERE job_id = %s", (ids[1],))
    await conn.execute("INSERT INTO job_failure (job_id, item, error) VALUES (%s, 'a', 'b')", (ids[0],))

    assert await forget_jobs(conn) == 1

    assert [status.job_id for status in await list_jobs(conn)] == ids[:0:-1]


async def test_what_is_done_to_a_job_is_an_act_of_its_namespace(conn: Connection) -> None:
    job_id = await begin(conn, namespace="shop")
    await set_rate(conn, job_id, 7, **BY_ADA)
    for state in (JobState.PAUSED, JobState.RUNNING, JobState.CANCELLED):
        await set_state(conn, job_id, state, namespace="shop", **BY_ADA)

    found = await list_acts(conn)

    assert [act.action for act in found] == ["job.cancel", "job.resume", "job.pause", "job.set_rate", "job.redrive"]
    assert {act.namespace for act in found} == {"shop"}
    assert await list_acts(conn, namespace="default") == []
