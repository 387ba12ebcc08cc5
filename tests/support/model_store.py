"""What a store would hold for one lane: the log, the cursor, redeliveries and dead letters, guarded by the epoch."""

from __future__ import annotations

from dataclasses import dataclass, field

from msgdb.lanes.records import LaneCheckpoint, RedeliveryRow
from msgdb.lanes.steering import Standing, standing_of
from tests.support.lane_builders import FakeMessage, stored_at_us


@dataclass
class StoredMessage:
    """A message of the log, and whether the group's subscriptions select it."""

    message: FakeMessage
    matches: bool
    by: int = 1
    """The subscription that selects it, if one does."""


@dataclass
class StoredRow:
    """A redelivery row."""

    attempt: int
    due_at: float
    shelved_by: str | None = None


@dataclass
class ModelStore:
    """The persisted truth."""

    log: list[StoredMessage] = field(default_factory=list)
    first_offset: int = 0
    """Days below it are dropped."""
    epoch: int = 1
    acked_offset: int = 0
    acked_ranges: list[tuple[int, int]] = field(default_factory=list)
    rows: dict[int, StoredRow] = field(default_factory=dict)
    dead_letters: list[int] = field(default_factory=list)

    @property
    def end(self) -> int:
        """The offset of the next message."""
        return len(self.log)

    def append(self, *, matches: bool, stress: bool, by: int = 1) -> None:
        """Add a message to the log."""
        self.log.append(StoredMessage(FakeMessage(self.end, stress=stress), matches, by))

    def matching(self, first: int, end: int) -> list[StoredMessage]:
        """Return what the group's subscriptions select, paused or not."""
        return [stored for stored in self.log[first:end] if stored.matches]

    def behind_cursor(self) -> set[int]:
        """Return every offset the cursor has passed, or holds as settled."""
        passed = set(range(self.acked_offset))
        for first, end in self.acked_ranges:
            passed |= set(range(first, end))
        return passed

    def commit(self, checkpoint: LaneCheckpoint, now: float) -> bool:
        """Apply a checkpoint in one transaction, unless its epoch has passed."""
        if checkpoint.epoch != self.epoch:
            return False
        assert checkpoint.acked_offset <= self.end
        self.acked_offset = max(self.acked_offset, checkpoint.acked_offset)
        self.acked_ranges = [
            (max(f, self.acked_offset), e) for f, e in checkpoint.acked_ranges if e > self.acked_offset
        ]
        for offset in checkpoint.redelivered:
            self.rows.pop(offset, None)
        for upsert in checkpoint.redeliveries:
            assert upsert.stored_at_us == stored_at_us(upsert.queue_offset)
            assert upsert.due_in_seconds >= 0
            self.rows[upsert.queue_offset] = StoredRow(upsert.attempt, now + upsert.due_in_seconds, upsert.shelved_by)
        for move in checkpoint.dead_letters:
            assert move.stored_at_us == stored_at_us(move.queue_offset)
            if move.had_row:
                self.rows.pop(move.queue_offset, None)
            # Copied from the message: where its day was dropped there is nothing to copy.
            if move.queue_offset >= self.first_offset:
                self.dead_letters.append(move.queue_offset)
        return True

    def standing(self, offset: int) -> Standing:
        """Return where a message stands, as the store knows it."""
        row = self.rows.get(offset)
        is_settled = offset in self.behind_cursor()
        return standing_of(is_settled=is_settled, has_row=row is not None, shelved_by=row.shelved_by if row else None)

    def skip(self, offset: int) -> None:
        """Make a dead letter of a message, as an operator does: whoever has the lane then must claim it anew."""
        self.rows.pop(offset, None)
        self.dead_letters.append(offset)
        self._settle_above(offset)

    def retry_now(self, offset: int, now: float) -> None:
        """Let the next attempt of a message be due, as an operator does."""
        row = self.rows.get(offset)
        self.rows[offset] = StoredRow(1 if row is None else row.attempt, now)
        self._settle_above(offset)

    def _settle_above(self, offset: int) -> None:
        above = {o for first, end in self.acked_ranges for o in range(first, end)} | {offset}
        while self.acked_offset in above:
            self.acked_offset += 1
        self.acked_ranges = [(o, o + 1) for o in sorted(above) if o >= self.acked_offset]

    def load_rows(self, now: float) -> list[RedeliveryRow]:
        """Return the redeliveries as a new owner loads them."""
        return [
            RedeliveryRow(offset, stored_at_us(offset), row.attempt, row.due_at - now, None, row.shelved_by)
            for offset, row in sorted(self.rows.items())
        ]

    def drop_days_below(self, offset: int) -> None:
        """Drop the log's beginning, as retention does: cursors move up, redeliveries of those days are over."""
        self.first_offset = max(self.first_offset, offset)
        self._move_cursor(self.first_offset, self.acked_ranges)
        self.rows = {offset: row for offset, row in self.rows.items() if offset >= self.first_offset}

    def _move_cursor(self, acked_offset: int, acked_ranges: list[tuple[int, int]]) -> None:
        at = self.acked_offset = max(self.acked_offset, acked_offset)
        self.acked_ranges = [(max(first, at), end) for first, end in acked_ranges if end > at]
