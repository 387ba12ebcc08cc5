"""What must be true of each message of one lane, kept beside the lane in the plainest way there is.

The mirror learns what the driver learns (what was handed out, which verdicts were given) and says what the lane has to
answer. It knows nothing of windows, flights or checkpoints.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass

from msgbroker.contract.whereabouts import Stand
from msgbroker.engine.lane.begun import Begun
from msgbroker.engine.lane.config import Handout, LaneConfig
from msgbroker.engine.lane.whereabouts import InFlight, Whereabouts
from msgbroker.engine.verdicts import Verdict
from tests.support.lane_builders import FakeMessage
from tests.support.model_store import ModelStore


@dataclass
class Unsettled:
    """A message that was handed out at least once and is not settled."""

    attempt: int
    instance_id: str | None = None
    """Where it is in flight; None: it comes again ..."""
    deadline: float = 0.0
    not_before: float = 0.0
    """... from then on."""
    has_row: bool = False
    """Its attempts are counted in the store, so the next checkpoint must hold a row."""
    begun: Begun = Begun.NO
    keep_until: float | None = None
    """Extended: until then, however often."""
    handed_at: float = 0.0
    place: int = 0
    """So many messages its instance was handed before it."""
    is_suspect: bool = False
    """An instance crashed with it, and none has answered for it since."""
    shelved_by: str | None = None
    """Only this subscription wants it, and it is paused."""


class Mirror:
    """The expected state of every message of a lane."""

    def __init__(self, store: ModelStore, config: LaneConfig) -> None:
        self.config = config
        self.unsettled = {
            offset: Unsettled(
                row.attempt,
                not_before=0.0 if row.shelved_by else row.due_at,
                has_row=True,
                shelved_by=row.shelved_by,
            )
            for offset, row in store.rows.items()
        }
        self.settled = {offset: "before" for offset in store.behind_cursor() if offset not in self.unsettled}

    # --- what the lane did --------------------------------------------------------------------------------------

    def read(self, store: ModelStore, first: int, end: int, deleted: Collection[int] = ()) -> None:
        """The lane read the log, when these subscriptions were gone."""
        for offset in range(first, end):
            if offset not in self.unsettled and offset not in self.settled:
                if offset < store.first_offset:
                    self.settled[offset] = "expired"
                elif not store.log[offset].matches or store.log[offset].by in deleted:
                    self.settled[offset] = "not matched"

    def handed_out(self, handout: Handout[FakeMessage], instance_id: str, now: float, begun: Begun, place: int) -> None:
        """Check what was handed out, and note where it is."""
        deadline = now + self.config.ack_timeout_seconds
        for message in handout.fresh:
            offset = message.queue_offset
            assert offset not in self.settled, f"{offset} was delivered though {self.settled[offset]}"
            assert offset not in self.unsettled, f"{offset} was delivered as new a second time"
            self.unsettled[offset] = Unsettled(1, instance_id, deadline)
        for message, attempt in handout.again:
            offset = message.queue_offset
            assert offset not in self.settled, f"{offset} was delivered again though {self.settled[offset]}"
            expected = self.unsettled[offset]
            assert expected.instance_id is None, f"{offset} is in flight already"
            assert expected.attempt == attempt
            assert expected.not_before <= now, f"{offset} came again too early"
            assert expected.shelved_by is None, f"{offset} is shelved"
            expected.instance_id, expected.deadline = instance_id, deadline
        in_order = [again.message for again in handout.again] + handout.fresh
        offsets = [message.queue_offset for message in in_order]
        assert offsets == sorted(offsets), "a hand-out is in the order of the queue"
        for index, message in enumerate(in_order):
            entry = self.unsettled[message.queue_offset]
            entry.begun, entry.place, entry.keep_until, entry.handed_at = begun, place + index, None, now
            assert entry.is_suspect == handout.is_suspect

    def shelve(self, offset: int, by: str) -> None:
        """Note that the message waits for a paused subscription."""
        entry = self.unsettled.setdefault(offset, Unsettled(1))
        assert entry.instance_id is None
        entry.shelved_by, entry.has_row, entry.not_before = by, True, 0.0

    def take_off_shelf(self, offset: int, now: float) -> None:
        """Note that it comes again from now on."""
        self.unsettled[offset].shelved_by = None
        self.unsettled[offset].not_before = now

    def reconsidered(self, store: ModelStore, next_offset: int, now: float) -> None:
        """Note that what was read and waits for its first hand-out is fetched again before that."""
        for offset in range(next_offset):
            if store.log[offset].matches and offset not in self.unsettled and offset not in self.settled:
                self.unsettled[offset] = Unsettled(1, not_before=now)

    def shelved(self) -> dict[int, str]:
        """Return what is shelved, and by whom."""
        return {o: entry.shelved_by for o, entry in self.unsettled.items() if entry.shelved_by is not None}

    def settle(self, offset: int, reason: str) -> None:
        """Note that the message is settled."""
        self.unsettled.pop(offset, None)
        self.settled[offset] = reason

    def check_found(self, offset: int, found: Whereabouts, next_offset: int, *, is_stopped: bool) -> None:
        """Check what is said of where a message is."""
        entry = self.unsettled.get(offset)
        if offset in self.settled:
            assert found == Whereabouts(Stand.SETTLED)
        elif entry is None:
            is_ready = offset < next_offset and not is_stopped
            assert found == (Whereabouts(Stand.READY, 1) if is_ready else Whereabouts(Stand.UNREAD))
        elif entry.instance_id is not None:
            flight = InFlight(entry.instance_id, entry.handed_at, entry.deadline, entry.begun is Begun.YES)
            assert found == Whereabouts(Stand.IN_FLIGHT, entry.attempt, flight=flight)
        elif entry.shelved_by is not None:
            assert found == Whereabouts(Stand.SHELVED, entry.attempt)
        elif found.stand is Stand.UNREAD:
            # It was read and nothing more, and the lane has stopped since.
            assert (is_stopped, entry.attempt, entry.has_row) == (True, 1, False)
        else:
            assert found.attempt == entry.attempt
            assert found.stand in {Stand.READY, Stand.WAITING}
            assert found.due_at == (None if found.stand is Stand.READY else entry.not_before)

    # --- what the lane was told ---------------------------------------------------------------------------------

    def in_flight(self, instance_id: str | None = None) -> list[int]:
        """Return what is in flight, with one instance or at all."""
        return [
            offset
            for offset, entry in sorted(self.unsettled.items())
            if entry.instance_id is not None and instance_id in (None, entry.instance_id)
        ]

    def answered(self, instance_id: str, first: int, last: int, attempt: int) -> list[int]:
        """Return the messages of that range that the instance has."""
        found = self.in_flight(instance_id)
        return [o for o in found if first <= o <= last and self.unsettled[o].attempt == attempt]

    def unwritten(self, instance_id: str, handout: Handout[FakeMessage]) -> list[int]:
        """Return what the instance still has of a hand-out."""
        attempts = [(message.queue_offset, 1) for message in handout.fresh]
        attempts += [(again.message.queue_offset, again.attempt) for again in handout.again]
        found = self.in_flight(instance_id)
        return [offset for offset, attempt in attempts if offset in found and self.unsettled[offset].attempt == attempt]

    def apply(self, offset: int, verdict: Verdict, now: float, delay_seconds: float | None) -> str | None:
        """Apply a verdict to one message; return why it is settled now, if it is."""
        entry = self.unsettled[offset]
        entry.is_suspect &= verdict is Verdict.RELEASE
        if verdict is Verdict.ACK:
            self.settle(offset, "acked")
        elif verdict in {Verdict.REJECT, Verdict.UNREADABLE}:
            self.settle(offset, "dead letter")
        elif verdict is Verdict.RETRY:
            self.fail(offset, now, delay_seconds)
        else:
            entry.instance_id, entry.not_before = None, now + (delay_seconds or 0.0)
            entry.has_row |= bool(delay_seconds)
        return self.settled.get(offset)

    def fail(self, offset: int, now: float, delay_seconds: float | None) -> None:
        """Count the attempt as failed."""
        entry = self.unsettled[offset]
        if entry.attempt >= self.config.retry.attempts_max:
            self.settle(offset, "dead letter")
            return
        delay = self.config.retry.schedule_seconds[entry.attempt - 1] if delay_seconds is None else delay_seconds
        entry.attempt += 1
        entry.instance_id, entry.not_before, entry.has_row = None, now + delay, True

    def give_back(self, offset: int, now: float) -> None:
        """Let it come again at once, uncounted."""
        entry = self.unsettled[offset]
        entry.instance_id, entry.not_before = None, now

    def begin(self, instance_id: str, first: int, last: int, attempt: int) -> None:
        """Note what an instance has begun of what it has."""
        for offset in self.answered(instance_id, first, last, attempt):
            self.unsettled[offset].begun = Begun.YES

    def extend(
        self, instance_id: str, first: int, last: int, attempt: int, now: float, seconds: float, *, is_stopped: bool
    ) -> int:
        """Give an instance more time for what it has; return for how many. A stopped lane notes what it asked for."""
        asked = self.answered(instance_id, first, last, attempt)
        for offset in asked:
            entry = self.unsettled[offset]
            entry.begun = Begun.YES
            if entry.keep_until is None:
                entry.keep_until = now + self.config.handle_seconds_max
            if not is_stopped:
                entry.deadline = max(entry.deadline, min(now + seconds, entry.keep_until))
        return 0 if is_stopped else len(asked)

    def late_and_begun(self, now: float) -> set[tuple[str, int, int]]:
        """Return what instances have begun and not answered in time, with its attempt."""
        late = [offset for offset in self.in_flight() if self.unsettled[offset].deadline <= now]
        entries = [(offset, self.unsettled[offset]) for offset in late]
        return {(str(e.instance_id), offset, e.attempt) for offset, e in entries if e.begun is Begun.YES}

    def late_and_not_begun(self, now: float) -> set[str]:
        """Return the instances that have not answered in time for what they would have said to have begun."""
        late = [self.unsettled[offset] for offset in self.in_flight() if self.unsettled[offset].deadline <= now]
        return {str(entry.instance_id) for entry in late if entry.begun is Begun.NO}

    def expire(self, now: float, *, is_stopped: bool) -> Counter[str]:
        """Take back what was not answered in time; return how many each instance lost."""
        late = [offset for offset in self.in_flight() if self.unsettled[offset].deadline <= now]
        lost = Counter(str(self.unsettled[offset].instance_id) for offset in late)
        for offset in late:
            is_cut_off = is_stopped and self.unsettled[offset].keep_until is not None
            if self.unsettled[offset].begun is Begun.NO or is_cut_off:
                self.give_back(offset, now)
            else:
                self.fail(offset, now, None)
        return lost

    def first_held(self, instance_id: str) -> int | None:
        """Return what an instance was handed first of what it has."""
        return min(self.in_flight(instance_id), key=lambda offset: self.unsettled[offset].place, default=None)

    def has_begun(self, instance_id: str) -> bool:
        """Return whether an instance has begun anything of what it has."""
        return any(self.unsettled[offset].begun is Begun.YES for offset in self.in_flight(instance_id))

    def return_instance(self, instance_id: str, now: float, *, counts: bool, has_crashed: bool) -> int:
        """Take back what an instance had: only what was begun counts, and only from its second time on it waits."""
        had = self.in_flight(instance_id)
        begun = [offset for offset in had if counts and self.unsettled[offset].begun is Begun.YES]
        for offset in had:
            entry = self.unsettled[offset]
            entry.is_suspect |= has_crashed
            if offset not in begun:
                self.give_back(offset, now)
            elif entry.attempt > 1 or self.config.retry.attempts_max == 1:
                schedule = (*self.config.retry.schedule_seconds, 0.0)
                spread = 1 + begun.index(offset) / len(begun)
                self.fail(offset, now, schedule[entry.attempt - 1] * spread)
            else:
                entry.attempt += 1
                entry.instance_id, entry.not_before = None, now
        return len(had)

    # --- what must be in the store ------------------------------------------------------------------------------

    def check_persisted(self, store: ModelStore, settled: set[int], rows: dict[int, tuple[int, str | None]]) -> None:
        """Check that the store holds exactly *settled* as settled, and *rows* among its redeliveries."""
        kept = {offset for offset in store.behind_cursor() if offset >= store.first_offset}
        assert kept - store.rows.keys() == {offset for offset in settled if offset >= store.first_offset}
        for offset, expected in rows.items():
            if offset >= store.first_offset:
                assert (store.rows[offset].attempt, store.rows[offset].shelved_by) == expected
        for offset in store.rows:
            assert offset not in settled, f"the row of {offset} was left behind"

    def must_have_rows(self) -> dict[int, tuple[int, str | None]]:
        """Return the attempts that must be stored, by offset, and who shelves them."""
        return {o: (entry.attempt, entry.shelved_by) for o, entry in self.unsettled.items() if entry.has_row}
