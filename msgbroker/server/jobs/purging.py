"""Purging: dead letters are deleted, with what the job says of it in the same transaction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from msgbroker.server.jobs.work import Stepped, write_step
from msgdb.archive.purges import find_purge_problem
from msgdb.dead_letters.choosing import choose_next, days_of, purge_dead_letters
from msgdb.jobs.records import ClaimedJob, JobFailure, JobStep
from msgdb.jobs.specs import PurgeSpec
from msgdb.jobs.steps import begin_step
from msgdb.store import MessageStore

_ANY_BYTES: Final = 2**62
"""Bodies are not read: their size is no matter."""


@dataclass(frozen=True, slots=True)
class Purging:
    """What a job of this kind does."""

    store: MessageStore

    async def step(self, job: ClaimedJob, messages_max: int) -> Stepped:
        """Delete the next dead letters; those of a day that must stay are left, and the job says why."""
        spec = PurgeSpec.of_json(job.spec)
        after_id = (job.position or {}).get("after_id", 0)
        async with self.store.transaction() as conn:
            if not await begin_step(conn, job):
                return Stepped(job, 0, is_halted=True)
            chosen = await choose_next(
                conn, spec.wanted, after_id=after_id, last_id=spec.last_id, limit=messages_max, bytes_max=_ANY_BYTES
            )
            failures: list[JobFailure] = []
            purged_count = 0
            for day, ids in (await days_of(conn, chosen.ids)).items():
                problem = await find_purge_problem(conn, day, include_unarchived=spec.include_unarchived)
                if problem is None:
                    purged_count += await purge_dead_letters(conn, ids)
                else:
                    failures += [JobFailure(f"dead letter {dead_letter_id}", problem) for dead_letter_id in ids]
            gone_count = len(chosen.ids) - purged_count - len(failures)
            step = JobStep({"after_id": chosen.through_id}, done=purged_count, failed=len(failures), skipped=gone_count)
            return await write_step(conn, job, step, failures, is_done=chosen.is_end)
