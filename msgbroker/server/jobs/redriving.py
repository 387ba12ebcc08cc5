"""Redriving: dead letters are stored once more, each for the group that it failed in.

The dead letters stay, with a note of where their messages lie now.
"""

from __future__ import annotations

import base64
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from msgbroker.contract.errors import LimitReachedError, MessageCenterError, ThingNotFoundError
from msgbroker.server.jobs.receivers import Receivers
from msgbroker.server.jobs.storing_again import STEP_BYTES_MAX, Republisher, StoredAgain
from msgbroker.server.jobs.work import Stepped, write_step
from msgbroker.server.log.message import TargetedMessage
from msgbroker.server.publish.stored_again import REDRIVES_MAX, stored_again
from msgdb.append.copy_rows import Target
from msgdb.dead_letters.choosing import BuriedMessage, Landing, choose_next, note_redriven, read_buried
from msgdb.jobs.records import ClaimedJob, JobFailure, JobStep
from msgdb.jobs.specs import Edit, RedriveSpec
from msgdb.jobs.steps import open_batch
from msgdb.store import MessageStore

_FORGOTTEN: Final = "it was on its way into the store when the job was left, too long ago to tell whether it is there"


@dataclass(frozen=True, slots=True)
class _Batch:
    """The dead letters of one step, and under which publisher id their messages are stored."""

    publisher_id: bytes
    ids: list[int]
    through_id: int

    def as_json(self) -> dict[str, Any]:
        return {"publisher_id": self.publisher_id.hex(), "ids": self.ids, "through_id": self.through_id}

    @classmethod
    def of_json(cls, kept: dict[str, Any]) -> _Batch:
        return cls(bytes.fromhex(kept["publisher_id"]), kept["ids"], kept["through_id"])


@dataclass(frozen=True, slots=True)
class Redriving:
    """What a job of this kind does."""

    store: MessageStore
    republisher: Republisher
    receivers: Receivers
    frame_seconds: float
    """How long the store remembers frames: what was begun longer ago may be stored, and nobody knows."""

    async def step(self, job: ClaimedJob, messages_max: int) -> Stepped:
        """Redrive the next dead letters."""
        spec = RedriveSpec.of_json(job.spec)
        if job.batch is None:
            return await self._begin(job, spec, messages_max)
        return await self._store(job, spec, _Batch.of_json(job.batch))

    async def _begin(self, job: ClaimedJob, spec: RedriveSpec, messages_max: int) -> Stepped:
        after_id = (job.position or {}).get("after_id", 0)
        async with self.store.transaction() as conn:
            chosen = await choose_next(
                conn,
                spec.wanted,
                after_id=after_id,
                last_id=spec.last_id,
                limit=messages_max,
                bytes_max=STEP_BYTES_MAX,
            )
            if not chosen.ids:
                step = JobStep({"after_id": chosen.through_id})
                return await write_step(conn, job, step, [], is_done=chosen.is_end)
            batch = _Batch(secrets.token_bytes(16), chosen.ids, chosen.through_id)
            if not await open_batch(conn, job, batch.as_json()):
                return Stepped(job, 0, is_halted=True)
        return await self._store(job._replace(batch_age_seconds=0.0), spec, batch)

    async def _store(self, job: ClaimedJob, spec: RedriveSpec, batch: _Batch) -> Stepped:
        if (job.batch_age_seconds or 0.0) >= self.frame_seconds:
            results: Sequence[StoredAgain] = [StoredAgain(error=_FORGOTTEN) for _ in batch.ids]
        else:
            async with self.store.connection() as conn:
                buried = {message.dead_letter_id: message for message in await read_buried(conn, batch.ids)}
            items = [self._item(dead_letter_id, buried.get(dead_letter_id), spec.edit) for dead_letter_id in batch.ids]
            results = await self.republisher.store(batch.publisher_id, items)
        landed = [
            Landing(dead_letter_id, result.queue_id, result.queue_offset)
            for dead_letter_id, result in zip(batch.ids, results, strict=True)
            if result.error is None
        ]
        failures = [
            JobFailure(f"dead letter {dead_letter_id}", result.error)
            for dead_letter_id, result in zip(batch.ids, results, strict=True)
            if result.error is not None
        ]
        step = JobStep({"after_id": batch.through_id}, done=len(landed), failed=len(failures))
        async with self.store.transaction() as conn:
            # First the job's row: whoever has lost it notes nothing.
            stepped = await write_step(conn, job, step, failures)
            await note_redriven(conn, job.job_id, landed)
        return stepped

    def _item(
        self, dead_letter_id: int, buried: BuriedMessage | None, edit: Edit | None
    ) -> TargetedMessage | MessageCenterError:
        """Return the message to be stored, or why there is none."""
        if buried is None:
            return ThingNotFoundError("dead letter", str(dead_letter_id))
        route = self.receivers.route(buried.group_id, buried.group_name, buried.namespace, buried.topic)
        if isinstance(route, MessageCenterError):
            return route
        if buried.redrives >= REDRIVES_MAX:
            return LimitReachedError("redrives", f"dead letter {dead_letter_id}", REDRIVES_MAX)
        target = Target(buried.group_id, buried.redrives + 1)
        return stored_again(buried if edit is None else edited(buried, edit), route, target)


def edited(buried: BuriedMessage, edit: Edit) -> BuriedMessage:
    """Return the message with what of it is other than it was."""
    if edit.body_base64 is not None:
        buried = buried._replace(body=base64.b64decode(edit.body_base64))
    if edit.headers is not None:
        buried = buried._replace(headers=edit.headers or None)
    return buried
