"""What a kind of job is to the runner: one step after the other, each of which writes down what it did."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from msgdb.jobs.records import ClaimedJob, JobFailure, JobState, JobStep
from msgdb.jobs.steps import finish_step
from msgdb.postgres.connections import Connection


@dataclass(frozen=True, slots=True)
class Stepped:
    """What became of a job by a step."""

    job: ClaimedJob
    """As it is stored by now."""
    messages: int
    """How many messages the step was about: by them its rate is kept."""
    is_done: bool = False
    """Whether nothing is left to do."""
    is_halted: bool = False
    """Whether nothing more is to be done for now: it was paused, or ended by hand, or is somebody else's."""


class JobWork(Protocol):
    """What one kind of job does."""

    async def step(self, job: ClaimedJob, messages_max: int) -> Stepped:
        """Do the next *messages_max* messages at most; what the job was in the middle of comes first, whole.

        Raises StoreUnavailableError, JobLostError, or whatever of ours keeps the job from going on.
        """
        ...


async def write_step(
    conn: Connection, job: ClaimedJob, step: JobStep, failures: list[JobFailure], *, is_done: bool = False
) -> Stepped:
    """Write down what a step did, in the caller's transaction, and return what became of the job."""
    state, rate = await finish_step(conn, job, step, failures)
    going_on = job._replace(position=step.position, batch=None, batch_age_seconds=None, state=state, rate=rate, tries=0)
    messages = step.done + step.failed + step.skipped
    return Stepped(going_on, messages, is_done=is_done, is_halted=state is not JobState.RUNNING)
