"""Random histories of one lane, its instances and its store, checked after each step against a plain model.

A failing history prints itself, shortened, as a program. More of them: `LANE_HISTORIES=20000 pytest <this file>`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from msgbroker.engine.lane.begun import Begun
from msgbroker.engine.lane.config import Handout, LaneConfig
from msgbroker.engine.lane.lane import Lane
from msgbroker.engine.retry import RetryPolicy
from msgbroker.engine.verdicts import Held, Settlement, Verdict
from msgdb.lanes.records import ClaimedLane, LaneCheckpoint
from msgdb.lanes.steering import Standing
from tests.support.lane_builders import (
    ALL_BYTES,
    KEY,
    FakeMessage,
    begin,
    extend,
)
from tests.support.lane_mirror import Mirror
from tests.support.lane_oldest import check_oldest
from tests.support.model_store import ModelStore

pytestmark = pytest.mark.slow

INSTANCES = ("a", "b", "c")
CONFIGS = (
    LaneConfig(
        ack_timeout_seconds=10.0,
        handle_seconds_max=25.0,
        retry=RetryPolicy((5.0, 10.0), 3),
        window_max=6,
        redeliveries_max=9,
    ),
    LaneConfig(
        ack_timeout_seconds=10.0,
        handle_seconds_max=25.0,
        retry=RetryPolicy((5.0,), 2),
        window_max=12,
        redeliveries_max=4,
    ),
    LaneConfig(
        ack_timeout_seconds=10.0,
        handle_seconds_max=25.0,
        retry=RetryPolicy((5.0, 10.0), 3),
        window_max=40,
        redeliveries_max=40,
    ),
)
KINDS = st.lists(st.sampled_from(["plain", "plain", "plain", "other", "stress", "second"]), max_size=8)
VERDICTS = st.lists(st.sampled_from([Verdict.ACK, Verdict.RETRY, *Verdict]), max_size=4)
BYTES = st.sampled_from([1, 250, 450, ALL_BYTES, ALL_BYTES])
BEGUN = st.sampled_from([Begun.NO, Begun.NO, *Begun])
ENDS = st.sampled_from(["crash", "crash", "replaced", "goodbye"])
DELAYS = st.sampled_from([None, None, 0.0, 3.0])
OUTCOMES = ("committed", "committed", "failed", "answer lost")
DISTURBANCES = ("crash", "crash after commit", "take over", "stop", "hand over", "drop days", "whitelist")
WHO = st.sampled_from(["owner", "owner", "owner", "stale"])


@dataclass
class Owner:
    """A broker that owns the lane, or believes so."""

    lane: Lane[FakeMessage]
    mirror: Mirror
    asked: list[int] = field(default_factory=list)
    """Bodies the lane asked for."""
    outstanding: LaneCheckpoint | None = None
    settled_then: set[int] = field(default_factory=set)
    """What the outstanding checkpoint has to make durable."""
    rows_then: dict[int, tuple[int, str | None]] = field(default_factory=dict)

    def held(self, ranges: list[tuple[int, int]], attempt: int, epochs_ago: int = 0) -> Held:
        """Return how an instance names these ranges, of this owner's epoch or of another one's."""
        return Held(KEY.queue_id, self.lane.epoch - epochs_ago, attempt, ranges)


class LaneMachine(RuleBasedStateMachine):
    """One lane through its owners."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1_000.0
        self.store = ModelStore()
        self.stale: Owner | None = None
        self.is_whitelisted = True
        # Of the two subscriptions, those that are paused, and those that are gone.
        self.paused: set[int] = set()
        self.deleted: set[int] = set()
        # What really became of messages, by the word of an owner that was one.
        self.acked: set[int] = set()
        self.denied: set[int] = set()
        self.dead: set[int] = set()
        self.dead_perhaps_twice: set[int] = set()
        # What operators gave up, or had tried again at once.
        self.skipped: set[int] = set()
        self.hurried: set[int] = set()
        # Hand-outs that perhaps were never written, the newest last.
        self.waiting: list[tuple[Owner, str, Handout[FakeMessage]]] = []
        self.places = 0
        # Whatever may have cost a message an attempt, or its life: a verdict, having been begun, or being blamed.
        self.may_have_failed: set[int] = set()

    @initialize(config=st.sampled_from(CONFIGS))
    def begin(self, config: LaneConfig) -> None:
        self.config = config
        self.claim()

    def claim(self) -> None:
        """A new owner takes the lane from what is persisted."""
        store = self.store
        store.epoch += 1
        rows = store.load_rows(self.now)
        claimed = ClaimedLane(KEY, store.epoch, store.acked_offset, store.acked_ranges)
        lane: Lane[FakeMessage] = Lane(claimed, rows, self.config, self.now)
        self.owner = Owner(lane, Mirror(store, self.config))
        self.follow_subscriptions(self.owner)

    def who(self, who: str) -> Owner:
        return self.stale if who == "stale" and self.stale is not None else self.owner

    def any_owner(self, has_it: Callable[[Owner], bool]) -> bool:
        return has_it(self.owner) or (self.stale is not None and has_it(self.stale))

    # --- publishers ---------------------------------------------------------------------------------------------

    @rule(kinds=KINDS)
    def append(self, kinds: list[str]) -> None:
        for kind in kinds:
            self.store.append(matches=kind != "other", stress=kind == "stress", by=2 if kind == "second" else 1)

    # --- reading ------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.any_owner(lambda o: o.lane.next_offset < self.store.end and o.lane.wants() > 0))
    @rule(who=WHO, count=st.integers(1, 20), overlap=st.integers(0, 5))
    def feed(self, who: str, count: int, overlap: int) -> None:
        owner, store = self.who(who), self.store
        at, wants = owner.lane.next_offset, owner.lane.wants()
        if not wants:
            return
        if at < store.first_offset:
            owner.lane.feed(store.first_offset, store.first_offset, (), days_dropped=True)
            owner.mirror.read(store, at, store.first_offset)
            return
        first, end = max(at - overlap, store.first_offset), min(at + min(count, wants), store.end)
        wanted = [stored for stored in store.matching(first, end) if stored.by not in self.deleted]
        shelved = [(stored.message, str(stored.by)) for stored in wanted if stored.by in self.paused]
        owner.lane.feed(first, end, [s.message for s in wanted if s.by not in self.paused], shelved=shelved)
        for message, by in shelved:
            known = owner.mirror.settled.keys() | owner.mirror.unsettled.keys()
            if message.queue_offset >= at and message.queue_offset not in known:
                owner.mirror.shelve(message.queue_offset, by)
        owner.mirror.read(store, at, max(end, owner.lane.next_offset), self.deleted)

    @precondition(lambda self: self.any_owner(lambda o: o.lane.redelivery_count + o.lane.due_count > 0))
    @rule(who=WHO, limit=st.integers(1, 10))
    def ask_for_bodies(self, who: str, limit: int) -> None:
        owner = self.who(who)
        for offset, _ in owner.lane.due(self.now, limit):
            assert offset not in owner.asked
            entry = owner.mirror.unsettled[offset]
            assert entry.instance_id is None
            assert entry.not_before <= self.now
            assert entry.shelved_by is None
            owner.asked.append(offset)

    @precondition(lambda self: self.any_owner(lambda o: bool(o.asked)))
    @rule(who=WHO, is_answered=st.sampled_from([True, True, False]))
    def answer_bodies(self, who: str, *, is_answered: bool) -> None:
        owner = self.who(who)
        asked, owner.asked = owner.asked, []
        if not is_answered:
            owner.lane.fetch_failed(asked)
            return
        missing = [offset for offset in asked if offset < self.store.first_offset]
        shelved = {o: str(self.store.log[o].by) for o in asked if self.store.log[o].by in self.paused}
        shelved = {o: by for o, by in shelved.items() if o not in missing}
        owner.lane.shelve(shelved)
        for offset, by in shelved.items():
            owner.mirror.shelve(offset, by)
        found = [self.store.log[o].message for o in asked if o not in missing and o not in shelved]
        owner.lane.feed_again(found, missing)
        for offset in missing:
            owner.mirror.settle(offset, "expired")

    # --- subscriptions ------------------------------------------------------------------------------------------

    @rule(subscription=st.sampled_from([1, 2, 2]))
    def pause_or_go_on(self, subscription: int) -> None:
        """Pause a subscription, or let it go on: every owner follows it in that moment."""
        self.paused ^= {subscription}
        for owner in (self.owner, self.stale):
            if owner is not None:
                if subscription in self.paused:
                    owner.lane.reconsider_ready(self.now)
                    owner.mirror.reconsidered(self.store, owner.lane.next_offset, self.now)
                self.follow_subscriptions(owner)

    @rule()
    def delete_the_second_one(self) -> None:
        self.deleted.add(2)
        for owner in (self.owner, self.stale):
            if owner is not None:
                self.follow_subscriptions(owner)

    def follow_subscriptions(self, owner: Owner) -> None:
        def standing_of(by: str) -> str | None:
            if int(by) in self.deleted:
                return None
            return by if int(by) in self.paused else ""

        owner.lane.reconsider_shelved(standing_of, self.now)
        for offset, by in owner.mirror.shelved().items():
            if standing_of(by) is None:
                owner.mirror.settle(offset, "not matched")
            elif not standing_of(by):
                owner.mirror.take_off_shelf(offset, self.now)
        assert owner.lane.shelved_count == len(owner.mirror.shelved())

    # --- instances ----------------------------------------------------------------------------------------------

    @precondition(lambda self: self.any_owner(lambda o: o.lane.ready_count > 0))
    @rule(
        who=WHO,
        instance_id=st.sampled_from(INSTANCES),
        count_max=st.integers(1, 12),
        bytes_max=BYTES,
        begun=BEGUN,
    )
    def take(self, who: str, instance_id: str, count_max: int, bytes_max: int, begun: Begun) -> None:
        owner = self.who(who)
        was_ready = owner.lane.ready_count
        denied_before = owner.lane.counters.denied

        def may_hand_out(message: FakeMessage) -> bool:
            assert message.stress
            if self.is_whitelisted:
                return True
            owner.mirror.settle(message.queue_offset, "denied")
            if owner is self.owner:
                self.denied.add(message.queue_offset)
            return False

        handout = owner.lane.take(
            instance_id, count_max, bytes_max, self.now, may_hand_out, begun=begun, place=self.places
        )
        owner.mirror.handed_out(handout, instance_id, self.now, begun, self.places)
        self.waiting = [*self.waiting[-5:], (owner, instance_id, handout)]
        messages = [again.message for again in handout.again] + handout.fresh
        self.places += len(messages)
        if begun is Begun.YES:
            self.may_have_failed |= {message.queue_offset for message in messages}
        for again in handout.again:
            assert again.attempt == 1 or again.message.queue_offset in self.may_have_failed
        assert len(messages) == handout.count <= count_max
        assert len(messages) <= 1 or sum(message.size_bytes for message in messages) <= bytes_max
        assert all(self.is_whitelisted or not message.stress for message in messages)
        was_denied = owner.lane.counters.denied - denied_before
        assert bool(messages) or was_ready == was_denied or owner.lane.is_held_back
        assert not (messages and owner.lane.is_held_back)

    @rule(
        who=WHO,
        kinds=KINDS,
        instance_id=st.sampled_from(INSTANCES),
        count_max=st.integers(1, 12),
        bytes_max=BYTES,
        begun=BEGUN,
        data=st.data(),
        verdicts=VERDICTS,
        delay_seconds=DELAYS,
        outcome=st.sampled_from([None, None, "open", *OUTCOMES]),
    )
    def work(
        self,
        who: str,
        kinds: list[str],
        instance_id: str,
        count_max: int,
        bytes_max: int,
        begun: Begun,
        data: st.DataObject,
        verdicts: list[Verdict],
        delay_seconds: float | None,
        outcome: str | None,
    ) -> None:
        """Everything once, in the usual order: single steps alone seldom meet."""
        self.append(kinds)
        self.feed(who, 20, 0)
        self.ask_for_bodies(who, 10)
        self.answer_bodies(who, is_answered=True)
        self.take(who, instance_id, count_max, bytes_max, begun)
        self.answer(who, data, verdicts, delay_seconds)
        if outcome is not None:
            self.begin_checkpoint(who)
            if outcome != "open":
                self.end_checkpoint(who, outcome)

    @precondition(lambda self: self.any_owner(lambda o: o.lane.in_flight_count > 0))
    @rule(
        who=WHO,
        data=st.data(),
        verdicts=VERDICTS,
        delay_seconds=DELAYS,
    )
    def answer(self, who: str, data: st.DataObject, verdicts: list[Verdict], delay_seconds: float | None) -> None:
        owner = self.who(who)
        for verdict in verdicts:
            in_flight = owner.mirror.in_flight()
            if in_flight:
                first = data.draw(st.sampled_from(in_flight), label="first")
                last = data.draw(st.sampled_from([offset for offset in in_flight if offset >= first]), label="last")
                entry = owner.mirror.unsettled[first]
                held = owner.held([(first, last + 1)], entry.attempt)
                self.settle(owner, str(entry.instance_id), Settlement(held, verdict, delay_seconds, "boom"))

    @precondition(lambda self: self.any_owner(lambda o: o.lane.in_flight_count > 0))
    @rule(
        who=WHO,
        instance_id=st.sampled_from(INSTANCES),
        verdict=st.sampled_from(Verdict),
        bounds=st.sets(st.one_of(st.integers(0, 60), st.just(1 << 40)), min_size=2, max_size=6),
        attempt=st.integers(1, 4),
        epochs_ago=st.sampled_from([0, 0, 0, 1, -1]),
    )
    def answer_anything(
        self, who: str, instance_id: str, verdict: Verdict, bounds: set[int], attempt: int, epochs_ago: int
    ) -> None:
        """Say anything of one range, two, or three."""
        owner, in_order = self.who(who), sorted(bounds)
        ranges = list(zip(in_order[::2], in_order[1::2], strict=False))
        self.settle(owner, instance_id, Settlement(owner.held(ranges, attempt, epochs_ago), verdict))

    def settle(self, owner: Owner, instance_id: str, settlement: Settlement) -> None:
        held, verdict = settlement.held, settlement.verdict
        meant: list[int] = []
        if held.epoch == owner.lane.epoch:
            for first, end in held.ranges:
                meant += owner.mirror.answered(instance_id, first, end - 1, held.attempt)
        stale_before = owner.lane.counters.stale
        settled = owner.lane.settle(instance_id, settlement, self.now)
        assert settled.count == len(meant)
        assert settled.stale == owner.lane.counters.stale - stale_before
        assert 0 < settled.count + settled.stale <= sum(end - first for first, end in held.ranges)
        if verdict in {Verdict.RETRY, Verdict.REJECT, Verdict.UNREADABLE}:
            self.may_have_failed |= set(meant)
        for offset in meant:
            reason = owner.mirror.apply(offset, verdict, self.now, settlement.delay_seconds)
            if owner is self.owner and reason == "acked":
                self.acked.add(offset)
        self.note_dead_letters(owner)

    def note_dead_letters(self, owner: Owner) -> None:
        if owner is self.owner:
            self.dead |= {offset for offset, reason in owner.mirror.settled.items() if reason == "dead letter"}

    @precondition(lambda self: bool(self.waiting))
    @rule(data=st.data(), is_denied=st.booleans())
    def take_back_unwritten(self, data: st.DataObject, *, is_denied: bool) -> None:
        """Withdraw a hand-out, or deny some of it; an attempt of it may have been answered all the same."""
        owner, instance_id, handout = self.waiting.pop(data.draw(st.integers(0, len(self.waiting) - 1), label="which"))
        if is_denied:
            fresh = [message for message in handout.fresh if message.stress]
            handout = Handout([again for again in handout.again if again.message.stress], fresh)
        meant = owner.mirror.unwritten(instance_id, handout)
        if not is_denied:
            assert owner.lane.withdraw(instance_id, handout.handed, self.now) == len(meant)
            for offset in meant:
                owner.mirror.apply(offset, Verdict.RELEASE, self.now, None)
            return
        assert owner.lane.deny(instance_id, handout.handed) == len(meant)
        for offset in meant:
            owner.mirror.settle(offset, "denied")
            if owner is self.owner:
                self.denied.add(offset)

    @precondition(lambda self: self.any_owner(lambda o: o.lane.in_flight_count > 0))
    @rule(
        who=WHO,
        instance_id=st.sampled_from(INSTANCES),
        first=st.integers(0, 60),
        length=st.sampled_from([0, 1, 5, 1 << 40]),
        attempt=st.sampled_from([1, 1, 2, 3]),
    )
    def begin_anything(self, who: str, instance_id: str, first: int, length: int, attempt: int) -> None:
        self.begin_work(self.who(who), instance_id, first, first + length, attempt)

    @precondition(lambda self: self.any_owner(lambda o: o.lane.in_flight_count > 0))
    @rule(who=WHO, data=st.data(), length=st.sampled_from([0, 0, 2]))
    def begin_something(self, who: str, data: st.DataObject, length: int) -> None:
        owner = self.who(who)
        in_flight = owner.mirror.in_flight()
        if in_flight:
            first = data.draw(st.sampled_from(in_flight), label="first")
            entry = owner.mirror.unsettled[first]
            self.begin_work(owner, str(entry.instance_id), first, first + length, entry.attempt)

    def begin_work(self, owner: Owner, instance_id: str, first: int, last: int, attempt: int) -> None:
        self.may_have_failed |= set(owner.mirror.answered(instance_id, first, last, attempt))
        begin(owner.lane, instance_id, first, last, attempt)
        owner.mirror.begin(instance_id, first, last, attempt)

    @precondition(lambda self: self.any_owner(lambda o: o.lane.in_flight_count > 0))
    @rule(
        who=WHO,
        data=st.data(),
        length=st.sampled_from([0, 0, 2, 1 << 40]),
        seconds=st.sampled_from([1.0, 10.0, 10.0, 100.0]),
    )
    def extend_something(self, who: str, data: st.DataObject, length: int, seconds: float) -> None:
        owner = self.who(who)
        in_flight = owner.mirror.in_flight()
        if not in_flight:
            return
        first = data.draw(st.sampled_from(in_flight), label="first")
        entry = owner.mirror.unsettled[first]
        of_that = (str(entry.instance_id), first, first + length, entry.attempt, self.now, seconds)
        self.may_have_failed |= set(owner.mirror.answered(*of_that[:4]))
        expected = owner.mirror.extend(*of_that, is_stopped=owner.lane.is_stopped)
        assert extend(owner.lane, *of_that) == expected

    def blame(self, owner: Owner, instance_id: str) -> None:
        """As the driver does where an instance is gone, or stuck: somebody must have been begun."""
        first = owner.lane.first_held(instance_id)
        expected = owner.mirror.first_held(instance_id)
        if first is None:
            assert expected is None
            return
        ((offset, _),) = first.held.ranges
        assert offset == expected
        assert first.place == owner.mirror.unsettled[offset].place
        assert first.has_begun == owner.mirror.has_begun(instance_id)
        if not first.has_begun:
            self.begin_work(owner, instance_id, offset, offset, first.held.attempt)

    @precondition(lambda self: self.any_owner(lambda o: o.lane.in_flight_count > 0))
    @rule(who=WHO, instance_id=st.sampled_from(INSTANCES), how=ENDS)
    def end_stream(self, who: str, instance_id: str, how: str) -> None:
        owner = self.who(who)
        if how == "crash":
            self.blame(owner, instance_id)
        counts = how != "goodbye"
        begun_before = [o for o in owner.mirror.in_flight(instance_id) if owner.mirror.unsettled[o].begun is Begun.YES]
        attempts = sum(entry.attempt for entry in owner.mirror.unsettled.values())
        end: dict[str, bool] = {"counts": counts, "has_crashed": how == "crash"}
        returned = owner.lane.return_instance(instance_id, self.now, **end)
        assert returned == owner.mirror.return_instance(instance_id, self.now, **end)
        assert how != "crash" or not returned or begun_before, "a crash that nobody paid for may go on for ever"
        if not counts:
            assert sum(entry.attempt for entry in owner.mirror.unsettled.values()) == attempts
        self.note_dead_letters(owner)

    @rule(who=WHO, is_held_back=st.booleans())
    def wait_with_a_move(self, who: str, *, is_held_back: bool) -> None:
        lane = self.who(who).lane
        if is_held_back:
            lane.hold_back()
        else:
            lane.go_on()

    # --- time ---------------------------------------------------------------------------------------------------

    @rule(
        seconds=st.sampled_from([0.5, 3.0, 5.0, 10.0, 86_400.0, None]),
        is_expired=st.booleans(),
        is_blamed=st.booleans(),
    )
    def pass_time(self, seconds: float | None, *, is_expired: bool, is_blamed: bool = False) -> None:
        wakeup = self.owner.lane.next_wakeup()
        self.now = max(self.now, wakeup or 0.0) if seconds is None else self.now + seconds
        if is_expired:
            self.expire(self.owner, is_blamed=is_blamed)
            if self.stale is not None:
                self.expire(self.stale, is_blamed=is_blamed)

    def expire(self, owner: Owner, *, is_blamed: bool) -> None:
        wakeup = owner.lane.next_wakeup()
        if wakeup is not None and wakeup <= self.now:
            late = owner.lane.late_and_not_begun(self.now)
            assert late == owner.mirror.late_and_not_begun(self.now)
            for instance_id in late if is_blamed else ():
                self.blame(owner, instance_id)
        late_offsets = [o for o in owner.mirror.in_flight() if owner.mirror.unsettled[o].deadline <= self.now]
        self.may_have_failed |= {o for o in late_offsets if owner.mirror.unsettled[o].begun is Begun.UNKNOWN}
        late_and_begun = owner.mirror.late_and_begun(self.now)
        assert {tuple(late) for late in owner.lane.late_and_begun(self.now)} == late_and_begun
        expected = owner.mirror.expire(self.now, is_stopped=owner.lane.is_stopped)
        # Called only when it is time, as a driver does: then nothing may be missed.
        if wakeup is not None and wakeup <= self.now:
            assert owner.lane.expire(self.now) == expected
        else:
            assert not expected
        self.note_dead_letters(owner)

    # --- operators ----------------------------------------------------------------------------------------------

    @precondition(lambda self: self.store.end > self.store.first_offset)
    @rule(data=st.data(), is_skip=st.booleans())
    def steer(self, data: st.DataObject, *, is_skip: bool) -> None:
        """Skip a message, or have it tried again now, wherever it is: whoever has the lane claims it anew."""
        offset = data.draw(st.integers(self.store.first_offset, self.store.end - 1), label="which")
        standing, stored = self.store.standing(offset), self.store.log[offset]
        is_asked_for = stored.matches and stored.by not in self.deleted
        if standing is Standing.SETTLED or (standing is Standing.UNSETTLED and not is_asked_for):
            return
        if is_skip:
            self.store.skip(offset)
            self.skipped.add(offset)
        elif standing is not Standing.SHELVED and stored.by not in self.paused:
            self.store.retry_now(offset, self.now)
            self.hurried.add(offset)
        self.stale = self.owner
        self.claim()
        if not is_skip and offset in self.hurried and standing is not Standing.SHELVED:
            wakeup = self.owner.lane.next_wakeup()
            assert stored.by in self.paused or (wakeup is not None and wakeup <= self.now)

    # --- the store ----------------------------------------------------------------------------------------------

    @precondition(lambda self: self.any_owner(lambda o: o.outstanding is None))
    @rule(who=WHO)
    def checkpoint(self, who: str) -> None:
        self.end_checkpoint(who, "committed")
        self.begin_checkpoint(who)
        self.end_checkpoint(who, "committed")

    @rule(who=WHO)
    def begin_checkpoint(self, who: str) -> None:
        owner = self.who(who)
        if owner.outstanding is not None:
            assert owner.lane.checkpoint(self.now) is None
            return
        owner.settled_then = set(owner.mirror.settled)
        owner.rows_then = owner.mirror.must_have_rows()
        owner.outstanding = owner.lane.checkpoint(self.now)
        if owner.outstanding is None and owner is self.owner:
            owner.mirror.check_persisted(self.store, owner.settled_then, owner.rows_then)

    @precondition(lambda self: self.any_owner(lambda o: o.outstanding is not None))
    @rule(who=WHO, outcome=st.sampled_from(OUTCOMES))
    def end_checkpoint(self, who: str, outcome: str) -> None:
        owner = self.who(who)
        checkpoint, owner.outstanding = owner.outstanding, None
        if checkpoint is None:
            return
        if outcome != "failed" and self.store.commit(checkpoint, self.now):
            assert owner is self.owner, "a stale owner changes nothing"
            owner.mirror.check_persisted(self.store, owner.settled_then, owner.rows_then)
            if outcome == "committed":
                owner.lane.confirm(checkpoint)
                return
            self.dead_perhaps_twice |= {move.queue_offset for move in checkpoint.dead_letters}
        else:
            assert outcome == "failed" or owner is self.stale, "an owner's checkpoint is never refused"
        owner.lane.abandon(checkpoint)

    # --- owners -------------------------------------------------------------------------------------------------

    @rule(
        kind=st.sampled_from(
            ["crash", "crash after commit", "take over", "stop", "hand over", "drop days", "whitelist"]
        ),
        is_time=st.sampled_from([False, False, True]),
    )
    def disturb(self, kind: str, *, is_time: bool) -> None:
        if kind == "whitelist":
            self.is_whitelisted = not self.is_whitelisted
        elif kind == "drop days":
            self.store.drop_days_below(self.store.end // 2)
        elif kind == "hand over":
            self.hand_over()
        elif is_time and kind == "stop":
            self.owner.lane.stop()
        elif is_time and kind == "take over":
            self.stale = self.owner
            self.claim()
        elif is_time:
            self.crash(is_committed=kind == "crash after commit")

    def crash(self, *, is_committed: bool) -> None:
        if self.owner.outstanding is not None and is_committed:
            assert self.store.commit(self.owner.outstanding, self.now)
        self.claim()

    def hand_over(self) -> None:
        """A planned move: after it, everything that was settled is."""
        if not self.owner.lane.is_drained:
            return
        self.checkpoint("owner")
        settled = self.owner.mirror.settled
        attempts = {o: entry.attempt for o, entry in self.owner.mirror.unsettled.items() if entry.attempt > 1}
        self.claim()
        rows = {offset: row.attempt for offset, row in self.store.rows.items()}
        assert {o: rows.get(o) for o in attempts if o >= self.store.first_offset} == {
            o: attempt for o, attempt in attempts.items() if o >= self.store.first_offset
        }, "the next owner goes on counting"
        kept = {offset for offset in settled if offset >= self.store.first_offset}
        assert {o for o in self.owner.mirror.settled if o >= self.store.first_offset} == kept

    # --- what holds after every step ----------------------------------------------------------------------------

    @invariant()
    def nothing_is_skipped(self) -> None:
        for offset in self.store.behind_cursor():
            assert (
                offset < self.store.first_offset
                or not self.store.log[offset].matches
                or self.store.log[offset].by in self.deleted
                or offset in self.acked
                or offset in self.denied
                or offset in self.store.rows
                or offset in self.store.dead_letters
            ), f"the cursor passed {offset}"

    @invariant()
    def dead_letters_are_written_once(self) -> None:
        dead = self.store.dead_letters
        assert set(dead) <= self.may_have_failed | self.skipped, "a neighbour that was never begun never pays"
        assert set(dead) <= self.dead | self.skipped
        assert all(dead.count(offset) == 1 for offset in set(dead) - self.dead_perhaps_twice)

    @invariant()
    def bounds_hold(self) -> None:
        for owner in (self.owner, self.stale):
            if owner is not None:
                lane = owner.lane
                # Dropped days may carry reading far ahead of what was read before: that is one range, however long.
                if lane.acked_offset >= self.store.first_offset:
                    # So may what was steered, each by one.
                    steered = len(self.skipped | self.hurried)
                    assert lane.next_offset - lane.acked_offset <= self.config.window_max + steered
                assert lane.redelivery_count <= self.config.redeliveries_max + len(self.hurried)
                assert lane.in_flight_count == len(owner.mirror.in_flight())
                assert dict(lane.unsettled_by_instance) == {
                    instance_id: len(owner.mirror.in_flight(instance_id))
                    for instance_id in INSTANCES
                    if owner.mirror.in_flight(instance_id)
                }
        assert len(self.store.rows) <= self.config.redeliveries_max + len(self.hurried)

    @invariant()
    def each_message_is_found(self) -> None:
        for owner in (self.owner, self.stale):
            if owner is not None:
                lane = owner.lane
                for offset in range(self.store.first_offset, self.store.end + 2):
                    found = lane.find(offset)
                    owner.mirror.check_found(offset, found, lane.next_offset, is_stopped=lane.is_stopped)

    @invariant()
    def the_oldest_are_each_found_once_and_in_order(self) -> None:
        for owner in (self.owner, self.stale):
            if owner is not None:
                check_oldest(owner.lane, self.store.end)

    # --- the end ------------------------------------------------------------------------------------------------

    def teardown(self) -> None:
        if not hasattr(self, "owner"):
            return
        self.paused.clear()
        self.crash(is_committed=True)
        for _ in range(10 + 5 * self.store.end):
            if self.is_finished():
                break
            self.one_quiet_round()
        assert self.is_finished(), "not everything was delivered"
        for offset in range(self.store.first_offset, self.store.end):
            matches = self.store.log[offset].matches
            fates = [offset in known for known in (self.acked, self.denied, self.dead, self.skipped)]
            assert any(fates) == matches or self.store.log[offset].by in self.deleted

    def is_finished(self) -> bool:
        return self.store.acked_offset == self.store.end and not self.store.rows

    def one_quiet_round(self) -> None:
        self.feed("owner", 20, 0)
        self.ask_for_bodies("owner", 10)
        self.answer_bodies("owner", is_answered=True)
        self.take("owner", "a", 12, ALL_BYTES, Begun.NO)
        for offset in self.owner.mirror.in_flight():
            held = self.owner.held([(offset, offset + 1)], self.owner.mirror.unsettled[offset].attempt)
            self.settle(self.owner, "a", Settlement(held, Verdict.ACK))
        self.begin_checkpoint("owner")
        self.end_checkpoint("owner", "committed")
        self.pass_time(None, is_expired=True)
        self.nothing_is_skipped()
        self.dead_letters_are_written_once()
        self.bounds_hold()


LaneMachine.TestCase.settings = settings(
    max_examples=int(os.environ.get("LANE_HISTORIES", "40")),
    stateful_step_count=50,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    print_blob=True,
)
TestLaneHistories = LaneMachine.TestCase
