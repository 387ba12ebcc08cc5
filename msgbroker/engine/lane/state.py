"""What may become of one message of a lane: the transitions, each in one place.

Every offset below the lane's `next_offset`, and every one with a row, is in exactly one place: settled; ready; in a
flight; or in a redelivery record, which is either *moved* (its row is stored or comes with the next checkpoint, so the
cursor may pass it) or not. A moved offset counts as settled for the cursor. Transitions keep that, and note what must
be persisted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Generic

from msgbroker.contract import limits
from msgbroker.engine.lane.config import Handed, LaneConfig, LaneCounters
from msgbroker.engine.lane.flights import Flight, Flights
from msgbroker.engine.lane.pending_writes import PendingWrites
from msgbroker.engine.lane.ready import ReadyMessages
from msgbroker.engine.lane.redeliveries import Redeliveries, Redelivery, Stage
from msgbroker.engine.lane.watching import LaneWatcher, Nobody
from msgbroker.engine.matching_share import MatchingMeter
from msgbroker.engine.messages import MessageT
from msgbroker.engine.offsets import SettledOffsets, runs
from msgbroker.engine.tally import NoTally, Tally
from msgbroker.engine.verdicts import DeadLetterReason, Settlement, Verdict
from msgdb.lanes.records import ClaimedLane, MatchingShare, RedeliveryRow


class LaneState(Generic[MessageT]):
    """Where each unsettled message of a lane is, and how it gets from there to somewhere else."""

    def __init__(
        self,
        claimed: ClaimedLane,
        rows: Iterable[RedeliveryRow],
        config: LaneConfig,
        now: float,
        tally: Tally | None = None,
    ) -> None:
        self.epoch = claimed.epoch
        self.config = config
        self.counters = LaneCounters()
        self.tally = NoTally() if tally is None else tally
        self.settled = SettledOffsets(claimed.acked_offset)
        for first, end in claimed.acked_ranges:
            self.settled.add(first, end)
        self.ready: ReadyMessages[MessageT] = ReadyMessages()
        self.flights = Flights()
        self.again: Redeliveries[MessageT] = Redeliveries()
        self.writes = PendingWrites(claimed.key, claimed.epoch)
        self.unsettled_by_instance: Counter[str] = Counter()
        self.watcher: LaneWatcher = Nobody()
        self.meter = MatchingMeter(claimed.matching)
        self.is_stopped = False
        """Nothing is handed out any more, and the bodies are gone; verdicts still count."""
        self._load(rows, now)
        self.learns_from = min(self.settled.end, claimed.acked_offset + config.window_max)
        """What lies below an earlier owner had read, and has counted; somebody may have settled a message far above."""
        self.next_offset = claimed.acked_offset
        """The next one it wants from the log."""
        self.skip_settled()

    def _load(self, rows: Iterable[RedeliveryRow], now: float) -> None:
        """Take in the redeliveries an earlier owner left."""
        for row in rows:
            due_at = now + row.due_in_seconds
            record = Redelivery(row.queue_offset, row.stored_at_us, row.ordering_key or "", row.attempt, due_at)
            record.is_moved = True
            self.again.add(record)
            if row.shelved_by:
                record.shelved_by = row.shelved_by
                self.again.shelve(record)
            else:
                self.again.wait(record)
            self.writes.note_stored_row(row.queue_offset)
            # What has a row comes from there, never from the log as well.
            self.settled.add(row.queue_offset, row.queue_offset + 1)

    def skip_settled(self) -> None:
        """Let `next_offset` pass what an earlier owner had settled, or has a row of."""
        if self.settled.end > self.next_offset:
            self.next_offset = self.settled.first_missing(self.next_offset)

    def matching_share(self) -> MatchingShare:
        """Return which share of what was read lately the group gets."""
        return self.meter.share(self.counters.denied)

    @property
    def unmoved_count(self) -> int:
        """How many messages hold the cursor back: unsettled, and without a redelivery row."""
        return len(self.ready) + self.flights.count + self.again.unmoved_count

    def let_go(self, instance_id: str, count: int) -> None:
        """Note that *count* messages are no longer with that instance."""
        left = self.unsettled_by_instance[instance_id] - count
        if left:
            self.unsettled_by_instance[instance_id] = left
        else:
            del self.unsettled_by_instance[instance_id]

    # --- settled ------------------------------------------------------------------------------------------------

    def settle(self, first: int, end: int) -> None:
        """Settle a range of offsets that have no redelivery record."""
        self.settled.add(first, end)
        self.writes.cursor_changed()

    def settle_record(self, record: Redelivery) -> None:
        """Settle a message that has a record and is in no queue of `again`."""
        self.again.remove(record)
        if record.is_moved:
            # The cursor may have passed it long ago: all that is left of it is its row.
            self.writes.forget(record.queue_offset)
        else:
            self.settle(record.queue_offset, record.queue_offset + 1)

    def dead_letter(self, record: Redelivery, reason: DeadLetterReason) -> None:
        """Settle it as a dead letter, in the same checkpoint."""
        self.counters.dead_lettered += 1
        self.tally.dead_lettered(record.counted)
        self.writes.dead_letter(record, reason)
        self.settle_record(record)

    # --- coming again -------------------------------------------------------------------------------------------

    def decide(self, record: Redelivery, settlement: Settlement, now: float) -> None:
        """Apply a verdict to a message that was taken out of flight."""
        verdict, delay_seconds = settlement.verdict, settlement.delay_seconds
        if verdict is Verdict.ACK:
            self.tally.delivered(record.counted, (record.stored_at_us,))
            self.settle_record(record)
        elif verdict is Verdict.RELEASE:
            self.release(record, now, delay_seconds or 0.0)
        elif verdict is Verdict.RETRY:
            self.fail(record, now, delay_seconds, settlement.error[: limits.ERROR_TEXT_CHARS_MAX])
        else:
            record.last_error = settlement.error[: limits.ERROR_TEXT_CHARS_MAX]
            is_unreadable = verdict is Verdict.UNREADABLE
            self.dead_letter(record, DeadLetterReason.UNREADABLE_BODY if is_unreadable else DeadLetterReason.REJECTED)

    def release(self, record: Redelivery, now: float, delay_seconds: float = 0.0) -> None:
        """Let a message that was taken out of flight come again as the same attempt."""
        record.due_at = now + delay_seconds
        if delay_seconds > 0:
            # The cursor does not wait for it, and the delay outlives this owner. At once it holds the cursor back for
            # a moment, which is cheaper than a row.
            self.move(record)
        self._come_again(record, now)

    def _come_again(self, record: Redelivery, now: float) -> None:
        if record.due_at > now:
            self.again.wait(record)
        else:
            self.again.make_due(record)

    def fail(self, record: Redelivery, now: float, delay_seconds: float | None, error: str) -> None:
        """Count the attempt as failed: the next one after *delay_seconds* (None: by the schedule), or a dead letter."""
        record.last_error = error
        schedule_seconds = self.config.retry.delay_after(record.attempt)
        if schedule_seconds is None:
            self.dead_letter(record, DeadLetterReason.ATTEMPTS_EXHAUSTED)
            return
        self.tally.retried(record.counted)
        record.attempt += 1
        record.due_at = now + (schedule_seconds if delay_seconds is None else delay_seconds)
        # Stored even without a delay: attempts are counted across owners.
        self.move(record)
        self._come_again(record, now)

    def come_back(self, record: Redelivery, now: float, error: str, spread: float) -> None:
        """Count the attempt as failed, because its instance went away: the first time the next one is made at once.

        From the second time on the schedule's delay applies, longer by *spread* times itself: what was begun beside
        each other shall not come again beside each other, or all of it would die with the one that ends instances.
        """
        delay_seconds = self.config.retry.delay_after(record.attempt)
        if delay_seconds is None or record.attempt > 1:
            self.fail(record, now, (delay_seconds or 0.0) * (1 + spread), error)
            return
        self.tally.retried(record.counted)
        record.last_error = error
        record.attempt += 1
        record.due_at = now
        if record.is_moved:
            self.writes.upsert(record.queue_offset)
        self.again.make_due(record)

    def keep_attempts(self, records: Iterable[Redelivery]) -> None:
        """Give rows to those of *records* that come again, so that the next owner goes on counting their attempts.

        Or a message that ends the only instance of its group would be a first attempt each time.
        """
        for record in records:
            is_settled = self.again.by_offset.get(record.queue_offset) is not record
            if record.attempt > 1 and not (record.is_moved or is_settled or record.stage is Stage.IN_FLIGHT):
                self.move(record)

    def move(self, record: Redelivery) -> None:
        """Let the cursor pass it: its row comes with the next checkpoint."""
        self.writes.upsert(record.queue_offset)
        if not record.is_moved:
            # Safe at once: the checkpoint that takes the cursor past it is never without its row.
            self.again.mark_moved(record)
            self.settle(record.queue_offset, record.queue_offset + 1)

    # --- the shelf ----------------------------------------------------------------------------------------------

    def shelve(self, record: Redelivery, by: str) -> None:
        """Let a message that is in no queue of `again` wait for paused subscriptions; the cursor passes it."""
        record.shelved_by = by
        self.move(record)
        self.again.shelve(record)

    def take_off_shelf(self, record: Redelivery, now: float) -> None:
        """Let a shelved message come again at once, as the attempt that it was."""
        self.again.take_off_shelf(record)
        record.due_at = now
        # Its row would be on the shelf again with the next owner.
        self.writes.upsert(record.queue_offset)
        self.again.make_due(record)

    # --- out of flight ------------------------------------------------------------------------------------------

    def records_of(self, flight: Flight) -> list[Redelivery]:
        """Give each message of a flight that was taken out a record of its own, not moved."""
        records = [
            Redelivery(
                offset,
                stored_at_us,
                ordering_key,
                1,
                flight.deadline,
                instance_id=flight.instance_id,
                handed_at=flight.handed_at,
                begun=flight.begun,
                place=flight.place + index,
                keep_until=flight.keep_until,
                counted_among=flight.counted,
                counted_at=index,
            )
            for index, (offset, stored_at_us, ordering_key) in enumerate(
                zip(flight.offsets, flight.stored_at_us, flight.ordering_keys, strict=True)
            )
        ]
        for record in records:
            self.again.add(record)
        return records

    def cut(self, instance_id: str, handed: Handed) -> list[Redelivery]:
        """Take out of flight what *instance_id* still has of a hand-out."""
        records = [
            record
            for first, end in runs(handed.fresh)
            for flight in self.flights.cut(instance_id, first, end)
            for record in self.records_of(flight)
        ]
        if self.again.in_flight:
            # What was parked has a record by now.
            attempts = [*((offset, 1) for offset in handed.fresh), *handed.again]
            records += self.again.cut_each(instance_id, attempts)
        return records

    # --- the window ---------------------------------------------------------------------------------------------

    @property
    def window_room(self) -> int:
        """How many offsets reading may still go ahead of the cursor."""
        return self.config.window_max - (self.next_offset - self.settled.floor)

    def park_stragglers(self) -> None:
        """Where a mostly settled window is full, write the lower half's unsettled rest down, and move on.

        A window that is full of unsettled messages is not stuck, only busy: then rows would be written for nothing.
        """
        if self.window_room <= 0 and self.unmoved_count <= self.config.window_max // 2:
            self._park_below(self.settled.floor + (self.config.window_max + 1) // 2)

    def _park_below(self, end: int) -> None:
        """Give what is unsettled below *end* a row, so that the cursor moves on; what is in flight stays in flight.

        The row is due when its instance's time to answer is over: should this owner die, the next one waits that long.
        """
        for flight in self.flights.cut_below(end):
            for record in self.records_of(flight):
                self.again.hand_out(
                    record,
                    flight.instance_id,
                    handed_at=flight.handed_at,
                    deadline=flight.deadline,
                    begun=record.begun,
                    place=record.place,
                    keep_until=record.keep_until,
                )
        if self.again.unmoved_count:
            held = [r for r in self.again.by_offset.values() if not r.is_moved and r.queue_offset < end]
            for record in held:
                if record.stage is Stage.IN_FLIGHT:
                    record.due_at = record.deadline
                self.move(record)
