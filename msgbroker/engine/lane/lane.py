"""The live delivery of one cursor: what may be handed out, and what must be persisted.

Pure: no I/O, no clock, no tasks. The driver reads the log and feeds what matches, fetches bodies again when asked,
hands out what `take` returns, reports verdicts and ended streams, calls `expire` when `next_wakeup` has come, and
stores what `checkpoint` returns, answering with `confirm` or `abandon`. `README.md` explains the mechanism.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Generic

from msgbroker.engine.lane import hearing, taking_back
from msgbroker.engine.lane.begun import Begun, FirstHeld, Late
from msgbroker.engine.lane.config import Handed, Handout, LaneConfig, LaneCounters
from msgbroker.engine.lane.reading import read, read_gap
from msgbroker.engine.lane.redeliveries import Redelivery
from msgbroker.engine.lane.state import LaneState
from msgbroker.engine.lane.taking import MayHandOut, take
from msgbroker.engine.lane.watching import LaneWatcher
from msgbroker.engine.lane.whereabouts import Unsettled, WantedUnsettled, Whereabouts, find, find_oldest
from msgbroker.engine.messages import MessageT
from msgbroker.engine.tally import Tally
from msgbroker.engine.verdicts import Held, Settled, Settlement
from msgdb.lanes.records import ClaimedLane, LaneCheckpoint, RedeliveryRow


class Lane(Generic[MessageT]):
    """Delivery state of one (group, member, queue)."""

    def __init__(
        self,
        claimed: ClaimedLane,
        redeliveries: Iterable[RedeliveryRow],
        config: LaneConfig,
        now: float,
        tally: Tally | None = None,
    ) -> None:
        self.key = claimed.key
        self.epoch = claimed.epoch
        self._is_held_back = False
        self._state: LaneState[MessageT] = LaneState(claimed, redeliveries, config, now, tally)

    def watch(self, watcher: LaneWatcher) -> None:
        """Tell *watcher* from now on how hand-outs end."""
        self._state.watcher = watcher

    def reconfigure(self, config: LaneConfig) -> None:
        """Replace the configuration; what is in flight keeps its deadline."""
        self._state.config = config

    def ask(self, asked: int) -> None:
        """Learn from now on which share matches of what is *asked* for, a number that stands for it."""
        self._state.meter.ask(asked)

    # --- reading ------------------------------------------------------------------------------------------------

    @property
    def next_offset(self) -> int:
        """The next offset it wants from the log."""
        return self._state.next_offset

    def wants(self) -> int:
        """Return how many further offsets of the log it can take; 0 where it is full or stopped."""
        state = self._state
        if state.is_stopped or self._is_held_back:
            return 0
        # Whatever is unsettled may yet become a redelivery: room for that is kept, so that the limit holds.
        redelivery_room = state.config.redeliveries_max - state.again.moved_count - state.unmoved_count
        return max(0, min(state.window_room, redelivery_room))

    def feed(
        self,
        first_offset: int,
        next_offset: int,
        matched: Sequence[MessageT],
        *,
        days_dropped: bool = False,
        shelved: Sequence[tuple[MessageT, str]] = (),
    ) -> None:
        """Take in the log from *first_offset* to below *next_offset*; all but *matched* is settled by not matching.

        Of *shelved* each message is wanted by paused subscriptions alone, named beside it. What it knows already is
        skipped. A gap between its own `next_offset` and *first_offset* is allowed only with
        *days_dropped*: the log does not hold it any more, and it is settled as expired.
        """
        state = self._state
        if state.is_stopped or next_offset <= state.next_offset:
            return
        if first_offset > state.next_offset:
            assert days_dropped, f"lane {self.key} wants {state.next_offset} and was fed {first_offset}"
            read_gap(state, state.next_offset, first_offset)
        read(state, max(first_offset, state.next_offset), next_offset, matched, shelved)
        state.next_offset = next_offset
        state.skip_settled()
        # What did not match may have filled the window.
        state.park_stragglers()

    # --- bodies that are needed again ---------------------------------------------------------------------------

    def due(self, now: float, limit: int) -> list[tuple[int, int]]:
        """Return up to *limit* (queue_offset, stored_at_us) whose messages the driver must fetch and feed again.

        Each is asked for once, and stays asked for until `feed_again` or `fetch_failed` names it.
        """
        if self.is_stopped or self._is_held_back:
            return []
        again = self._state.again
        again.promote(now)
        return [(record.queue_offset, record.stored_at_us) for record in again.start_fetch(limit)]

    def feed_again(self, messages: Iterable[MessageT], missing_offsets: Iterable[int]) -> None:
        """Take in what `due` asked for; *missing_offsets* are not in the store any more: their day was dropped."""
        state = self._state
        for message in messages:
            for record in state.again.fetching((message.queue_offset,)):
                state.again.make_ready(record, message)
        for record in state.again.fetching(missing_offsets):
            state.counters.expired += 1
            state.settle_record(record)
        if state.is_stopped:
            state.again.drop_ready()

    def fetch_failed(self, offsets: Iterable[int]) -> None:
        """Put back what `due` asked for and could not be fetched: it is due again."""
        for record in self._state.again.fetching(offsets):
            self._state.again.make_due(record)

    # --- what paused subscriptions want -------------------------------------------------------------------------

    def shelve(self, by_offset: Mapping[int, str]) -> None:
        """Let these wait instead, which `due` asked for: only paused subscriptions want them, named beside each.

        Attempts are counted on once they come again.
        """
        state = self._state
        for record in state.again.fetching(by_offset):
            state.shelve(record, by_offset[record.queue_offset])

    def reconsider_ready(self, now: float) -> None:
        """Let what waits for an instance be fetched again: whether anybody wants it now is to be asked then."""
        state = self._state
        for message in state.ready.take_all():
            record = Redelivery(message.queue_offset, message.stored_at_us, message.ordering_key, 1, now)
            state.again.add(record)
            state.again.make_due(record)
        state.again.drop_ready()

    def reconsider_shelved(self, standing_of: Callable[[str], str | None], now: float) -> None:
        """Ask *standing_of* of each shelved message, in the order of the queue, by whom it is shelved.

        It answers with who of them is paused still; with nothing where one goes on: then the message comes again. None:
        nobody of them is there any more, and the message is settled as not matching.
        """
        state = self._state
        for _, record in sorted(state.again.shelved.items()):
            by = standing_of(record.shelved_by)
            if by is None:
                state.again.take_off_shelf(record)
                state.settle_record(record)
            elif not by:
                state.take_off_shelf(record, now)
            elif by != record.shelved_by:
                record.shelved_by = by
                state.writes.upsert(record.queue_offset)

    @property
    def shelved_count(self) -> int:
        """Messages that only paused subscriptions want."""
        return len(self._state.again.shelved)

    # --- handing out --------------------------------------------------------------------------------------------

    def take(
        self,
        instance_id: str,
        count_max: int,
        bytes_max: int,
        now: float,
        may_hand_out: MayHandOut[MessageT] | None = None,
        *,
        begun: Begun = Begun.UNKNOWN,
        place: int = 0,
    ) -> Handout[MessageT]:
        """Return what *instance_id* gets now: at least one message if there is any, even if over *bytes_max*.

        *may_hand_out* is asked for each stress message; one that it denies is settled without delivery. *begun* is what
        is known of it from the beginning, *place* how many messages the instance was handed so far, over all lanes.
        """
        state = self._state
        if state.is_stopped or self._is_held_back or count_max < 1:
            return Handout()
        return take(state, instance_id, count_max, bytes_max, now, may_hand_out=may_hand_out, begun=begun, place=place)

    # --- what instances say -------------------------------------------------------------------------------------

    def begin(self, instance_id: str, held: Held) -> None:
        """Note that *instance_id* has begun what it has of *held*.

        What it does not have (any more) of that is none of its business: nothing changes for it.
        """
        hearing.begin(self._state, instance_id, held)

    def extend(self, instance_id: str, held: Held, seconds: float, now: float) -> int:
        """Give *instance_id* so many seconds from now on to answer what it has of *held*; return for how many messages.

        It has begun with it, then. Its time is never shortened, and has an end (`handle_seconds_max`; 0: it has none to
        begin with). A lane that is stopped waits for what it has handed out: it extends nothing, and takes note of what
        would have been kept.
        """
        return hearing.extend(self._state, instance_id, held, seconds, now)

    def settle(self, instance_id: str, settlement: Settlement, now: float) -> Settled:
        """Apply a verdict to what *instance_id* has in flight of what it names. All else that it names is stale."""
        return hearing.settle(self._state, instance_id, settlement, now)

    @property
    def has_extended(self) -> bool:
        """Whether anything in flight was extended: an instance is at it for longer than the ack timeout."""
        return self._state.flights.has_extended or self._state.again.has_extended

    def first_held(self, instance_id: str) -> FirstHeld | None:
        """Return which message *instance_id* was handed first of those it holds; None where it holds none."""
        flights = self._state.flights.of_instance(instance_id)
        records = self._state.again.of_instance(instance_id)
        held = [(flight.place, flight.first, 1) for flight in flights]
        held += [(record.place, record.queue_offset, record.attempt) for record in records]
        if not held:
            return None
        place, offset, attempt = min(held)
        has_begun = Begun.YES in {*(flight.begun for flight in flights), *(record.begun for record in records)}
        return FirstHeld(place, Held(self.key.queue_id, self.epoch, attempt, [(offset, offset + 1)]), has_begun)

    def late_and_not_begun(self, now: float) -> set[str]:
        """Return the instances that `expire` would take messages from which they have not said to have begun."""
        return self._state.flights.late_and_not_begun(now) | self._state.again.late_and_not_begun(now)

    def late_and_begun(self, now: float) -> list[Late]:
        """Return what `expire` would take from instances that have begun it."""
        return self._state.flights.late_and_begun(now) + self._state.again.late_and_begun(now)

    # --- taking back --------------------------------------------------------------------------------------------

    def expire(self, now: float) -> dict[str, int]:
        """Take back what was not answered in time; return how many messages each instance lost by it.

        It has failed, unless its instance would have said if it had begun it: that comes again at once. So does what a
        stopped lane did not extend (any more).
        """
        return taking_back.expire(self._state, now)

    def return_instance(self, instance_id: str, now: float, *, counts: bool = True, has_crashed: bool = False) -> int:
        """Take back all that *instance_id* has: its stream ended. What was not begun comes again at once.

        The attempt of what was begun *counts*, unless the instance left in good order. Where it *has_crashed*, all of
        it is handed out as suspect from now on, until an instance has handled it.
        """
        return taking_back.return_instance(self._state, instance_id, now, counts=counts, has_crashed=has_crashed)

    def withdraw(self, instance_id: str, handed: Handed, now: float) -> int:
        """Take back what was handed out and never written to *instance_id*: that was no attempt. Return how many.

        What the instance does not have any more is left as it is.
        """
        return taking_back.withdraw(self._state, instance_id, handed, now)

    def deny(self, instance_id: str, handed: Handed) -> int:
        """Settle what was handed out, and may not be written to *instance_id* any more; return how many it was."""
        return taking_back.deny(self._state, instance_id, handed)

    def next_wakeup(self) -> float | None:
        """Return when `expire` should be called next, never later than needed; None: nothing is timed."""
        state = self._state
        at = min(state.flights.next_deadline, state.again.next_deadline, state.again.next_due)
        return None if at == math.inf else at

    # --- persisting ---------------------------------------------------------------------------------------------

    def checkpoint(self, now: float) -> LaneCheckpoint | None:
        """Return all that is to be persisted in one transaction; None where nothing is, or one is outstanding."""
        state = self._state
        return state.writes.checkpoint(state.settled, state.again.by_offset, now, state.matching_share)

    def confirm(self, checkpoint: LaneCheckpoint) -> None:
        """Note that *checkpoint* is committed."""
        self._state.writes.confirm(checkpoint)

    def abandon(self, checkpoint: LaneCheckpoint) -> None:
        """Note that *checkpoint* is not committed: all of it comes in the next one."""
        self._state.writes.abandon(checkpoint, self._state.again.by_offset)

    def is_outstanding(self, checkpoint: LaneCheckpoint) -> bool:
        """Return whether *checkpoint* is still to be confirmed or abandoned."""
        return self._state.writes.is_outstanding(checkpoint)

    # --- stopping, and what others want to know -----------------------------------------------------------------

    def hold_back(self) -> None:
        """Hand nothing out, and read nothing, until `go_on`; what is in flight may be extended and settled."""
        self._is_held_back = True

    def go_on(self) -> None:
        """Hand out again after `hold_back`."""
        self._is_held_back = False

    @property
    def is_held_back(self) -> bool:
        """Whether the lane is held back before a move: it hands out and reads nothing, and may go on."""
        return self._is_held_back

    def stop(self) -> None:
        """Hand nothing out any more, let go of the bodies; verdicts still count. There is no way back."""
        state = self._state
        state.is_stopped = True
        state.ready.clear()
        state.again.drop_ready()
        # What comes again at once has no row otherwise, and would be a first attempt to the next owner.
        state.keep_attempts(state.again.by_offset.values())

    @property
    def is_stopped(self) -> bool:
        """Whether the lane hands out nothing any more, for good."""
        return self._state.is_stopped

    @property
    def is_drained(self) -> bool:
        """Whether it is stopped and nothing is in flight: once it is persisted it can be given away."""
        return self.is_stopped and self.in_flight_count == 0

    @property
    def is_persisted(self) -> bool:
        """Whether the store has all there is to persist: nothing waits for a checkpoint, and none is on its way."""
        return self._state.writes.are_persisted

    @property
    def has_redeliveries_full(self) -> bool:
        """Whether so many messages wait for another attempt that reading has stopped."""
        return self._state.again.moved_count >= self._state.config.redeliveries_max

    def find(self, queue_offset: int) -> Whereabouts:
        """Return where the message at *queue_offset* is; whatever is said of it, nothing changes."""
        return find(self._state, queue_offset)

    def find_oldest(self, wanted: WantedUnsettled, count_max: int) -> list[Unsettled]:
        """Return the oldest *count_max* messages of what is unsettled and *wanted*; nothing changes."""
        return find_oldest(self._state, wanted, count_max)

    @property
    def ready_count(self) -> int:
        """Messages whose bodies are here and which wait for an instance."""
        return len(self._state.ready) + len(self._state.again.ready)

    @property
    def ready_bytes(self) -> int:
        """How many bytes of memory the messages take that wait for an instance."""
        state = self._state
        return state.ready.held_bytes + sum([message.held_bytes for _, message in state.again.ready])

    @property
    def due_count(self) -> int:
        """Messages whose bodies `due` would ask for."""
        return self._state.again.due_count

    @property
    def in_flight_count(self) -> int:
        """How many messages are with instances."""
        return self._state.flights.count + len(self._state.again.in_flight)

    @property
    def redelivery_count(self) -> int:
        """Messages that have a redelivery row, or will with the next checkpoint."""
        return self._state.again.moved_count

    @property
    def acked_offset(self) -> int:
        """Where its cursor will be with the next checkpoint."""
        return self._state.settled.floor

    @property
    def unsettled_by_instance(self) -> Mapping[str, int]:
        """How many messages each instance has in flight."""
        return self._state.unsettled_by_instance

    @property
    def counters(self) -> LaneCounters:
        """What the lane has counted since its owner built it."""
        return self._state.counters
