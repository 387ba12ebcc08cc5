"""Jobs have their turns at a broker, and whatever one of them does the others go on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import pytest

from confdb.services import ConfigService
from msgbroker.contract.errors import QueueHeldError, TopicSetAsideError
from msgbroker.server.app import Broker
from msgbroker.server.jobs.runner import JobRunner, JobRunnerConfig
from msgbroker.server.jobs.work import Stepped, write_step
from msgconsole.operations.dead_letters.redrive import redrive
from msgconsole.operations.stores import Stores
from msgdb.dead_letters.wanted import WantedDeadLetters
from msgdb.jobs.listing import JobStatus, get_job
from msgdb.jobs.records import ClaimedJob, JobState, JobStep, NewJob
from msgdb.jobs.steering import begin_job, set_rate, set_state
from msgdb.jobs.steps import begin_step
from tests.support.broker_fixtures import StartBroker
from tests.support.collecting import register_group, subscribed
from tests.support.eventually import eventually
from tests.support.jobs import buried, ended

BY_ADA: dict[str, Any] = {"actor": "ada", "reason": "why"}
QUICK = JobRunnerConfig(places=2, turn_seconds=0.05, look_seconds=0.02)
OPEN = WantedDeadLetters(namespace="default", is_open=True)


@dataclass
class Counting:
    """Work that does one message a step, and what is told to happen first."""

    stores: Stores
    before: Callable[[ClaimedJob], None] = lambda job: None
    steps: list[int] = field(default_factory=list)

    async def step(self, job: ClaimedJob, messages_max: int) -> Stepped:
        self.before(job)
        done = (job.position or {}).get("done", 0) + 1
        async with self.stores.messages.transaction() as conn:
            if not await begin_step(conn, job):
                return Stepped(job, 0, is_halted=True)
            self.steps.append(job.job_id)
            return await write_step(conn, job, JobStep({"done": done}, done=1), [], is_done=done == job.spec["count"])


async def begin(stores: Stores, count: int = 3, kind: str = "REDRIVE", rate: float = 10_000) -> int:
    async with stores.messages.transaction() as conn:
        new = NewJob(kind, "default", "something", {"count": count}, count, rate)  # type: ignore[arg-type]
        return await begin_job(conn, new, **BY_ADA)


async def status_of(stores: Stores, job_id: int) -> JobStatus:
    async with stores.messages.connection() as conn:
        return await get_job(conn, job_id)


@asynccontextmanager
async def running(stores: Stores, work: Counting, config: JobRunnerConfig = QUICK) -> AsyncIterator[JobRunner]:
    runner = JobRunner(store=stores.messages, owner=uuid4(), works={"REDRIVE": work}, config=config)
    stop = asyncio.Event()
    task = asyncio.ensure_future(runner.run(stop))
    try:
        yield runner
    finally:
        stop.set()
        await asyncio.wait_for(task, 5)


async def test_more_jobs_than_places_take_turns_and_all_are_done(stores: Stores) -> None:
    ids = [await begin(stores, 40, rate=200) for _ in range(5)]
    work = Counting(stores)
    async with running(stores, work):
        for job_id in ids:
            assert (await ended(stores, job_id)).done == 40

    # None was done before all had begun.
    first_steps = [work.steps.index(job_id) for job_id in ids]
    last_steps = [len(work.steps) - 1 - work.steps[::-1].index(job_id) for job_id in ids]
    assert max(first_steps) < min(last_steps)


@pytest.mark.parametrize(
    "error",
    [QueueHeldError(3), TopicSetAsideError("TP_TRADE", "no"), ZeroDivisionError("nobody foresaw this")],
)
async def test_a_job_that_cannot_go_on_waits_and_holds_nobody_up(stores: Stores, error: Exception) -> None:
    bad = [await begin(stores) for _ in range(4)]

    def fail(job: ClaimedJob) -> None:
        if job.job_id in bad:
            raise error

    async with running(stores, Counting(stores, fail)):
        good = await begin(stores)
        assert (await ended(stores, good)).state == "DONE"
        for job_id in bad:
            status = await status_of(stores, job_id)
            assert (status.state, status.done) == ("RUNNING", 0)
            assert status.tries >= 1
            assert str(error).partition("(")[0].strip() in (status.last_error or "")


async def test_what_this_version_does_not_know_waits_for_another(stores: Stores) -> None:
    job_id = await begin(stores, kind="TELEPORT")
    async with running(stores, Counting(stores)):
        await eventually(lambda: status_has_error(stores, job_id), what="a try")

    status = await status_of(stores, job_id)
    assert status.state == "RUNNING"
    assert "another version's" in (status.last_error or "")


async def status_has_error(stores: Stores, job_id: int) -> bool:
    return (await status_of(stores, job_id)).last_error is not None


async def test_a_job_is_paused_between_two_steps_and_goes_on_where_it_was(stores: Stores) -> None:
    job_id = await begin(stores, 1_000, rate=100)
    work = Counting(stores)
    async with running(stores, work):
        await eventually(lambda: work.steps, what="a step")
        async with stores.messages.transaction() as conn:
            await set_state(conn, job_id, JobState.PAUSED, **BY_ADA)
        paused = await ended(stores, job_id)
        for _ in range(5):
            assert (await status_of(stores, job_id)).done == paused.done == len(work.steps)
        async with stores.messages.transaction() as conn:
            await set_rate(conn, job_id, 50_000, **BY_ADA)
            await set_state(conn, job_id, JobState.RUNNING, **BY_ADA)
        assert (await ended(stores, job_id)).done == 1_000

        # And at once, not when somebody's lease has passed.
        assert (await status_of(stores, job_id)).state == "DONE"

    assert 0 < paused.done < 1_000


async def test_a_job_that_goes_on_just_after_it_was_paused_is_not_taken_for_done(stores: Stores) -> None:
    job_id = await begin(stores)

    class Paused(Counting):
        async def step(self, job: ClaimedJob, messages_max: int) -> Stepped:
            if self.steps:
                return await super().step(job, messages_max)
            self.steps.append(0)
            for state in (JobState.PAUSED, JobState.RUNNING):
                async with stores.messages.transaction() as conn:
                    await set_state(conn, job_id, state, **BY_ADA)
                    if state is JobState.PAUSED:
                        assert not await begin_step(conn, job)
            return Stepped(job, 0, is_halted=True)

    async def is_done() -> bool:
        status = await status_of(stores, job_id)
        assert status.state != "DONE" or status.done == 3
        return status.state == "DONE"

    async with running(stores, Paused(stores)):
        await eventually(is_done, what="the job done")


async def test_a_job_keeps_to_its_rate_over_its_turns(stores: Stores) -> None:
    job_id = await begin(stores, 30, rate=100)
    async with running(stores, Counting(stores)):
        loop = asyncio.get_running_loop()
        began_at = loop.time()
        await ended(stores, job_id)
        seconds = loop.time() - began_at

    assert seconds >= 0.25


async def test_a_broker_that_stops_leaves_its_jobs_to_the_others_at_once(
    trade: ConfigService, start_broker: StartBroker, stores: Stores
) -> None:
    first, second = await start_broker(), await start_broker()
    await register_group(trade)
    await buried(first.address, stores.messages, 30)
    begun = await redrive(stores, OPEN, **BY_ADA, rate=10)

    async def is_at_it() -> Broker | None:
        async with stores.messages.connection() as conn:
            row = await (await conn.execute("SELECT owner, done FROM job")).fetchone()
        assert row is not None
        return {broker.cluster.heartbeats.identity.broker_id: broker for broker in (first, second)}.get(row[0])

    leaving = await eventually(is_at_it, what="a broker at the job")
    assert leaving is not None
    staying = second if leaving is first else first
    await leaving.shut_down()
    async with stores.messages.transaction() as conn:
        await set_rate(conn, begun.job_id, 1_000, **BY_ADA)

    # Far sooner than a lease passes.
    assert (await ended(stores, begun.job_id, 8)).done == 30
    async with subscribed(staying.address) as ours:
        assert len(await ours.until(30)) == 30
