"""Replaying: what the log holds is stored once more, for one group alone, as far as it is meant.

The log is looked at without its bodies, some hundred messages in a step; bodies are read of those that are meant.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from confdb.expressions.compiled import compile_expression
from msgbroker.contract.errors import MessageCenterError, ThingNotFoundError
from msgbroker.engine.selection import Selection, selection_of
from msgbroker.server.jobs.receivers import Receivers
from msgbroker.server.jobs.storing_again import STEP_BYTES_MAX, Republisher, StoredAgain
from msgbroker.server.jobs.work import Stepped, write_step
from msgbroker.server.log.message import TargetedMessage
from msgbroker.server.publish.stored_again import stored_again
from msgdb.append.copy_rows import Target
from msgdb.jobs.records import ClaimedJob, JobFailure, JobState, JobStep
from msgdb.jobs.specs import Place, ReplaySpec
from msgdb.jobs.steps import end_job, open_batch
from msgdb.log.heads import MessageHead, read_heads
from msgdb.log.reads import MessageRow, read_offsets
from msgdb.store import MessageStore

SCANNED_MAX: Final = 1_000
"""So many messages are looked at in a step."""
_READ_BYTES_MAX: Final = 64 * 1024 * 1024
"""More than the bodies of a step can be."""
_SLICE_SECONDS: Final = 0.002
"""Expressions are evaluated for so long before others have their turn of the event loop."""
_FORGOTTEN: Final = "it was on its way into the store when the job was left, too long ago to tell whether it is there"
_OTHER_HISTORY: Final = (
    "the message store goes on with another history: other messages may have the offsets it was to go by"
)


@dataclass(frozen=True, slots=True)
class _Batch:
    """The messages of one step, and under which publisher id they are stored."""

    publisher_id: bytes
    places: list[Place]
    position: dict[str, Any]
    """How far the job is after it."""
    scanned: int
    skipped: int

    def as_json(self) -> dict[str, Any]:
        return {
            "publisher_id": self.publisher_id.hex(),
            "places": self.places,
            "position": self.position,
            "scanned": self.scanned,
            "skipped": self.skipped,
        }

    @classmethod
    def of_json(cls, kept: dict[str, Any]) -> _Batch:
        places = [Place(*place) for place in kept["places"]]
        return cls(bytes.fromhex(kept["publisher_id"]), places, kept["position"], kept["scanned"], kept["skipped"])


@dataclass(frozen=True, slots=True)
class Replaying:
    """What a job of this kind does."""

    store: MessageStore
    republisher: Republisher
    receivers: Receivers
    frame_seconds: float
    """How long the store remembers frames: what was begun longer ago may be stored, and nobody knows."""

    async def step(self, job: ClaimedJob, messages_max: int) -> Stepped:
        """Replay the next messages."""
        spec = ReplaySpec.of_json(job.spec)
        if job.batch is not None:
            return await self._store(job, spec, _Batch.of_json(job.batch))
        if str(self.store.history.history_id) != spec.history_id:
            async with self.store.transaction() as conn:
                await end_job(conn, job, JobState.FAILED, _OTHER_HISTORY)
            return Stepped(job._replace(state=JobState.FAILED), 0, is_halted=True)
        batch = self._next_places(job, spec, messages_max) if spec.places else await self._look(job, spec, messages_max)
        if batch is None:
            return Stepped(job, 0, is_done=True)
        return await self._begin(job, spec, batch)

    def _next_places(self, job: ClaimedJob, spec: ReplaySpec, messages_max: int) -> _Batch | None:
        """Return the next of the messages that were named one by one; None: there are none left."""
        done = (job.position or {}).get("places", 0)
        places = list(spec.places[done : done + messages_max])
        position = {"places": done + len(places)}
        return _Batch(secrets.token_bytes(16), places, position, len(places), 0) if places else None

    async def _look(self, job: ClaimedJob, spec: ReplaySpec, messages_max: int) -> _Batch | None:
        """Look at the next messages of a queue, and return those that are meant; None: all queues are done."""
        reached: dict[str, int] = dict((job.position or {}).get("reached", {}))
        for queue_id, first, end in spec.ranges:
            at = reached.get(str(queue_id), first)
            if at < end:
                break
        else:
            return None
        async with self.store.connection() as conn:
            heads = await read_heads(conn, queue_id, at, end, SCANNED_MAX)
        # What is not there any more went with its day.
        skipped = (heads[0].queue_offset if heads else end) - at
        chosen, through = await _choose(selection_of(spec, compile_expression), heads, messages_max)
        reached[str(queue_id)] = through if heads else end
        places = [Place(queue_id, head.queue_offset, head.stored_at_us) for head in chosen]
        scanned = reached[str(queue_id)] - at
        return _Batch(secrets.token_bytes(16), places, {"reached": reached}, scanned, skipped)

    async def _begin(self, job: ClaimedJob, spec: ReplaySpec, batch: _Batch) -> Stepped:
        async with self.store.transaction() as conn:
            if not batch.places:
                step = JobStep(batch.position, skipped=batch.skipped, scanned=batch.scanned)
                return await write_step(conn, job, step, [])
            if not await open_batch(conn, job, batch.as_json()):
                return Stepped(job, 0, is_halted=True)
        return await self._store(job._replace(batch_age_seconds=0.0), spec, batch)

    async def _store(self, job: ClaimedJob, spec: ReplaySpec, batch: _Batch) -> Stepped:
        if (job.batch_age_seconds or 0.0) >= self.frame_seconds:
            results: Sequence[StoredAgain] = [StoredAgain(error=_FORGOTTEN) for _ in batch.places]
        else:
            rows = await self._read(batch.places)
            items = [self._item(spec.group_id, place, rows.get(place[:2])) for place in batch.places]
            results = await self.republisher.store(batch.publisher_id, items)
        failures = [
            JobFailure(_name(place), result.error)
            for place, result in zip(batch.places, results, strict=True)
            if result.error is not None
        ]
        step = JobStep(
            batch.position,
            done=len(results) - len(failures),
            failed=len(failures),
            skipped=batch.skipped,
            scanned=batch.scanned,
        )
        async with self.store.transaction() as conn:
            return await write_step(conn, job, step, failures)

    async def _read(self, places: Sequence[Place]) -> dict[tuple[int, int], MessageRow]:
        rows: dict[tuple[int, int], MessageRow] = {}
        async with self.store.connection() as conn:
            for queue_id in sorted({place.queue_id for place in places}):
                wanted = [(place.queue_offset, place.stored_at_us) for place in places if place.queue_id == queue_id]
                read = await read_offsets(conn, queue_id, wanted, _READ_BYTES_MAX)
                rows.update(((queue_id, row.queue_offset), row) for row in read.rows)
        return rows

    def _item(self, group_id: int, place: Place, row: MessageRow | None) -> TargetedMessage | MessageCenterError:
        """Return the message to be stored, or why there is none."""
        if row is None:
            return ThingNotFoundError("message", _name(place))
        route = self.receivers.route(group_id, str(group_id), row.namespace, row.topic)
        if isinstance(route, MessageCenterError):
            return route
        return stored_again(row, route, Target(group_id, 0))


def _name(place: Place) -> str:
    return f"queue {place.queue_id} offset {place.queue_offset}"


async def _choose(
    selection: Selection, heads: Sequence[MessageHead], messages_max: int
) -> tuple[list[MessageHead], int]:
    """Return those of *heads* that are meant, as many as make a step, and the offset behind the last one decided."""
    chosen: list[MessageHead] = []
    chosen_bytes = 0
    slice_ends_at = time.monotonic() + _SLICE_SECONDS
    for head in heads:
        if time.monotonic() >= slice_ends_at:
            await asyncio.sleep(0)
            slice_ends_at = time.monotonic() + _SLICE_SECONDS
        if not selection.takes(head):
            continue
        if chosen and (len(chosen) == messages_max or chosen_bytes + head.body_bytes > STEP_BYTES_MAX):
            return chosen, head.queue_offset
        chosen.append(head)
        chosen_bytes += head.body_bytes
    return chosen, heads[-1].queue_offset + 1 if heads else 0
