"""What a lane still has to persist, and what is on its way to the store."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgbroker.engine.lane.redeliveries import Redelivery
from msgbroker.engine.offsets import SettledOffsets
from msgdb.lanes.records import (
    SHELVED_SECONDS,
    DeadLetterMove,
    LaneCheckpoint,
    LaneKey,
    MatchingShare,
    RedeliveryUpsert,
)


class PendingWrites:
    """Collects changes into checkpoints, one outstanding at a time.

    A row counts as *perhaps stored* from the checkpoint that carries it, not from its confirmation: deleting a row
    that never came to be costs nothing, and a row that is left behind would deliver a settled message again.
    """

    def __init__(self, key: LaneKey, epoch: int) -> None:
        self._key = key
        self._epoch = epoch
        self._rows: set[int] = set()
        self._upserts: set[int] = set()
        self._deletes: set[int] = set()
        self._dead_letters: list[DeadLetterMove] = []
        self._cursor_changed = False
        self._outstanding: LaneCheckpoint | None = None

    def note_stored_row(self, queue_offset: int) -> None:
        """Note that the store holds a redelivery row of *queue_offset*."""
        self._rows.add(queue_offset)

    def cursor_changed(self) -> None:
        """Note that offsets were settled: the next checkpoint moves the cursor."""
        self._cursor_changed = True

    def upsert(self, queue_offset: int) -> None:
        """Note that the redelivery of *queue_offset* is new or changed."""
        self._upserts.add(queue_offset)

    def forget(self, queue_offset: int) -> None:
        """Note that *queue_offset* is settled: it needs no redelivery row any more."""
        self._upserts.discard(queue_offset)
        if queue_offset in self._rows:
            self._deletes.add(queue_offset)

    def dead_letter(self, record: Redelivery, reason: str) -> None:
        """Note that the message becomes a dead letter; `forget` is called beside it."""
        self._dead_letters.append(
            DeadLetterMove(
                queue_offset=record.queue_offset,
                stored_at_us=record.stored_at_us,
                attempts=record.attempt,
                reason=reason,
                last_error=record.last_error or None,
                had_row=record.queue_offset in self._rows,
            )
        )

    @property
    def are_persisted(self) -> bool:
        """Whether nothing waits for a checkpoint, and none is outstanding."""
        return self._outstanding is None and not self._has_changes

    @property
    def _has_changes(self) -> bool:
        return bool(self._cursor_changed or self._upserts or self._deletes or self._dead_letters)

    def checkpoint(
        self,
        settled: SettledOffsets,
        redeliveries: Mapping[int, Redelivery],
        now: float,
        matching_share: Callable[[], MatchingShare],
    ) -> LaneCheckpoint | None:
        """Return all that is to be persisted, in one transaction; None where nothing is, or one is outstanding."""
        if self._outstanding is not None or not self._has_changes:
            return None
        self._outstanding = LaneCheckpoint(
            key=self._key,
            epoch=self._epoch,
            acked_offset=settled.floor,
            acked_ranges=settled.ranges(),
            redeliveries=[_upsert_of(redeliveries[offset], now) for offset in sorted(self._upserts)],
            redelivered=sorted(self._deletes),
            dead_letters=self._dead_letters,
            matching=matching_share(),
        )
        self._rows |= self._upserts
        self._cursor_changed = False
        self._upserts = set()
        self._deletes = set()
        self._dead_letters = []
        return self._outstanding

    def is_outstanding(self, checkpoint: LaneCheckpoint) -> bool:
        """Return whether *checkpoint* is on its way: neither confirmed nor abandoned."""
        return checkpoint is self._outstanding

    def confirm(self, checkpoint: LaneCheckpoint) -> None:
        """Note that the outstanding checkpoint is committed."""
        self._take_outstanding(checkpoint)
        self._rows.difference_update(checkpoint.redelivered)

    def abandon(self, checkpoint: LaneCheckpoint, redeliveries: Mapping[int, Redelivery]) -> None:
        """Note that the outstanding checkpoint is not committed: all of it comes in the next one."""
        self._take_outstanding(checkpoint)
        self._cursor_changed = True
        # What was settled meanwhile needs no row, only the deletion that was noted then.
        self._upserts.update(row.queue_offset for row in checkpoint.redeliveries if row.queue_offset in redeliveries)
        self._deletes.update(checkpoint.redelivered)
        self._dead_letters = checkpoint.dead_letters + self._dead_letters

    def _take_outstanding(self, checkpoint: LaneCheckpoint) -> None:
        assert checkpoint is self._outstanding, "only the outstanding checkpoint can be confirmed or abandoned"
        self._outstanding = None


def _upsert_of(record: Redelivery, now: float) -> RedeliveryUpsert:
    return RedeliveryUpsert(
        queue_offset=record.queue_offset,
        stored_at_us=record.stored_at_us,
        attempt=record.attempt,
        due_in_seconds=SHELVED_SECONDS if record.shelved_by else max(0.0, record.due_at - now),
        ordering_key=record.ordering_key or None,
        last_error=record.last_error or None,
        shelved_by=record.shelved_by or None,
    )
