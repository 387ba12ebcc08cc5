"""Runs jobs: claims those that somebody has to go on with, and gives each a turn of some seconds.

There are places for a few jobs at a time, and none keeps its own: after a turn a job is let go, and whichever has
waited longest comes next, at this broker or another one. One that cannot go on waits longer each time, in its row.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final
from uuid import UUID

import structlog

from msgbroker.contract.errors import JobLostError, MessageCenterError, StoreUnavailableError
from msgbroker.server import clock
from msgbroker.server.jobs.pacing import Pace, step_messages
from msgbroker.server.jobs.work import JobWork, Stepped
from msgbroker.server.loops import pause, woken
from msgdb.jobs.records import ClaimedJob, JobState
from msgdb.jobs.steps import claim_jobs, end_job, let_go, note_failed_try
from msgdb.store import MessageStore

log = structlog.get_logger(__name__)

_WAIT_SECONDS_MAX: Final = 60.0
_NOT_KNOWN: Final = "brokers of this version do not know what to do: it is another version's"


@dataclass(frozen=True, slots=True)
class JobRunnerConfig:
    """How many jobs run at a time, and in which turns."""

    places: int = 4
    """So many jobs have their turn at a time."""
    turn_seconds: float = 5.0
    """How long a turn is: then another job may have the place."""
    look_seconds: float = 1.0
    """How often the store is asked for jobs."""
    lease_seconds: float = 8.0
    """How long a job stays with a broker that is gone; a step may take longer, and is done once all the same."""


class JobRunner:
    """Gives jobs their turns at this broker."""

    def __init__(
        self,
        *,
        store: MessageStore,
        owner: UUID,
        works: Mapping[str, JobWork],
        config: JobRunnerConfig | None = None,
        now: Callable[[], float] = clock.now,
    ) -> None:
        """Make a runner. *works*: what each kind of job does."""
        self._store = store
        self._owner = owner
        self._works = works
        self._config = config or JobRunnerConfig()
        self._now = now
        self._wake = asyncio.Event()
        self._turns: dict[asyncio.Task[None], ClaimedJob] = {}
        """The turns under way, with the jobs that have them."""

    async def run(self, stop: asyncio.Event) -> None:
        """Give turns until *stop* is set."""
        try:
            while not stop.is_set():
                try:
                    await self.begin_turns_once(stop)
                except StoreUnavailableError:
                    # What is not claimed waits; what is claimed and lost has others when its lease passes.
                    log.warning("jobs.store_unavailable")
                await woken(stop, self._wake, self._config.look_seconds)
        finally:
            for turn in self._turns:
                turn.cancel()

    async def begin_turns_once(self, stop: asyncio.Event) -> int:
        """Begin a turn for each job that can be had, as far as there are places; return how many.

        Raises StoreUnavailableError, or what ended a turn that nobody foresaw.
        """
        for turn in [turn for turn in self._turns if turn.done()]:
            del self._turns[turn]
            # One that was broken off with an earlier run is no news, and would cancel this one. Its lease passes.
            if not turn.cancelled():
                turn.result()
        places = self._config.places - len(self._turns)
        if places <= 0:
            return 0
        async with self._store.transaction() as connection:
            jobs = await claim_jobs(connection, self._owner, places, self._config.lease_seconds)
        for job in jobs:
            turn = asyncio.ensure_future(self._take_turn(job, stop))
            turn.add_done_callback(lambda _: self._wake.set())
            self._turns[turn] = job
        return len(jobs)

    async def leave(self) -> None:
        """Let others have what this broker was at, without waiting for its leases: it stops."""
        jobs = list(self._turns.values())
        self._turns.clear()
        if jobs:
            async with self._store.transaction() as connection:
                for job in jobs:
                    await let_go(connection, job)

    async def _take_turn(self, job: ClaimedJob, stop: asyncio.Event) -> None:
        """Go on with a job for a while. Whatever keeps it from going on is written down, and ends nothing else."""
        try:
            await self._go_on(job, stop)
        except StoreUnavailableError as error:
            # It may be about a single topic (its queue is held, say). Where the store is away, so is this: the lease
            # passes, and the job goes on where it was.
            await self._failed(job, error.message)
        except JobLostError:
            log.warning("jobs.job_lost", job_id=job.job_id)
        except MessageCenterError as error:
            await self._failed(job, error.message)
        except MemoryError:
            raise
        except Exception as error:
            log.exception("jobs.job_failed", job_id=job.job_id, kind=job.kind)
            await self._failed(job, f"{type(error).__name__}: {error}")

    async def _go_on(self, job: ClaimedJob, stop: asyncio.Event) -> None:
        work = self._works.get(job.kind)
        if work is None:
            await self._failed(job, _NOT_KNOWN)
            return
        stepped = Stepped(job, 0)
        pace, ends_at = Pace(self._now()), self._now() + self._config.turn_seconds
        while not stop.is_set():
            began_at = self._now()
            stepped = await work.step(job, step_messages(job.rate))
            job = stepped.job
            pace.begin(began_at, stepped.messages, job.rate)
            if stepped.is_done or stepped.is_halted:
                break
            wait_seconds = pace.wait_seconds(self._now())
            if self._now() + wait_seconds >= ends_at:
                break
            # Others have their turn of the event loop in any case.
            await pause(stop, wait_seconds)
        async with self._store.transaction() as connection:
            if stepped.is_done and await end_job(connection, job, JobState.DONE):
                log.info("jobs.job_done", job_id=job.job_id, kind=job.kind)
            else:
                await let_go(connection, job, pace.wait_seconds(self._now()))

    async def _failed(self, job: ClaimedJob, error: str) -> None:
        wait_seconds = min(_WAIT_SECONDS_MAX, 2.0 ** min(job.tries, 10))
        log.warning("jobs.job_waits", job_id=job.job_id, kind=job.kind, seconds=wait_seconds, error=error)
        try:
            async with self._store.transaction() as connection:
                await note_failed_try(connection, job, error, wait_seconds)
        except StoreUnavailableError:
            log.warning("jobs.store_unavailable", job_id=job.job_id)
