"""One group, one queue and their configuration, through random histories, with what really became of each message.

The lane, the matcher and what is asked of stress messages are the real ones, driven as a broker drives them; the store
is the model of the lane's own tests. Beside them it is written down, in the plainest way, what became of each message:
first what the lane did, in memory, and with each checkpoint that commits, for good.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

from confdb.expressions.compiled import compile_expression
from confdb.past import (
    UNCERTAIN_SECONDS,
    ConfigChange,
    ConfigMoment,
    PastGroup,
    PastSubscription,
    PastTopic,
)
from confdb.routes import SubscriptionMode, SubscriptionRoute
from confdb.shared_mapping import SharedMapping
from msgbroker.client.connect.inspection import MessageStand
from msgbroker.engine.lane.begun import Begun
from msgbroker.engine.lane.config import LaneConfig
from msgbroker.engine.lane.lane import Lane
from msgbroker.engine.matching import Matcher
from msgbroker.engine.retry import RetryPolicy
from msgbroker.engine.verdicts import Held, Settlement, Verdict
from msgconsole.operations.status.answers import State, Why
from msgconsole.operations.status.deleted import deleted_groups, ended_first, topic_ended
from msgconsole.operations.status.facts import GroupFacts
from msgconsole.operations.status.moments import moments_of_groups
from msgconsole.operations.status.reading import Readable
from msgdb.dead_letters.wanted import WantedDeadLetters
from msgdb.jobs.purge_jobs import PurgeJob
from msgdb.lanes.records import ClaimedLane, LaneReset
from msgdb.lanes.reset_acts import LaneResetAct
from msgdb.lanes.resets import LanePlace, skipped_by
from msgdb.lanes.standing import Buried, LaneRows, WaitingRow
from msgdb.trace.reading import Acked
from tests.support.lane_builders import ALL_BYTES, KEY, FakeMessage, make_group, make_topic
from tests.support.model_store import ModelStore, StoredMessage

GROUP, TOPIC = "SG", "TP_1"
OUR_TOPIC = 1
"""The id of the topic whose queue it is. Of both names others may have been there before, and may come after."""
OURS = PastGroup(KEY.group_id, GROUP, paused=False)
LAG_SECONDS = UNCERTAIN_SECONDS - 1
"""No broker goes by what was changed longer ago."""
CONFIG = LaneConfig(retry=RetryPolicy((5.0, 5.0), 3), window_max=40, redeliveries_max=40)
BEGINNING = datetime(2026, 11, 20, tzinfo=UTC)

KEY_OWNER = UUID(int=1)
Fate = tuple[State, Why | None]
Headers = Mapping[str, str]

EXPRESSIONS: Mapping[str, Callable[[Headers], bool | None]] = {
    'headers.region == "hz"': lambda headers: headers["region"] == "hz" if "region" in headers else None,
    '"vip" in headers': lambda headers: "vip" in headers,
}
"""Expressions, and what comes of them on headers: None where they fail."""


@dataclass(frozen=True)
class Registered:
    """What is registered of the group at one version."""

    holder: int | None = None
    """Which group has the name: ours, or another one before or after it; None: none."""
    topic_id: int | None = OUR_TOPIC
    """Which topic has the name."""
    subscriptions: Mapping[int, PastSubscription] = field(default_factory=dict)
    is_allowed: bool = False
    is_refused: bool = False

    @property
    def is_ours(self) -> bool:
        return self.holder == KEY.group_id and self.topic_id == OUR_TOPIC

    @property
    def has_lane(self) -> bool:
        return self.is_ours and bool(self.subscriptions)

    @property
    def may_see_stress(self) -> bool:
        return self.is_allowed and not self.is_refused


class Scene:
    """All of it, and the time."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self.versions: list[tuple[float, Registered]] = [(0.0, Registered())]
        self.known = 0
        """Which version the broker goes by."""
        self.store = ModelStore()
        self.stored_at: list[float] = []
        self.has_cursor = False
        self.lane: Lane[FakeMessage] | None = None
        self.matcher = Matcher(make_group(), make_topic())
        self.reset: LaneReset | None = None
        self.resets: list[LaneResetAct] = []
        self.purges: list[PurgeJob] = []
        self.letters: dict[tuple[int, float], Buried] = {}
        """By the offset and by when the message was stored: of one offset there may be several."""
        self.lost_from: int | None = None
        """Where the log has lost its end, until a broker has noticed it."""
        self.put_backs: list[LaneResetAct] = []
        self.in_memory: dict[int, Fate] = {}
        """What became of messages by the lane's word, ..."""
        self.fates: dict[int, Fate] = {}
        """... and what of that is stored."""
        self.next_id = 1
        self.acknowledged: set[int] = set()
        """Since the lane was put back behind them the last time."""
        self.traced: dict[int, Acked] = {}
        """Of every other message it is traced that it was acknowledged."""

    def tick(self) -> None:
        """Let a moment pass: no two things are written down at the same time."""
        self.now += 0.001

    # --- the configuration --------------------------------------------------------------------------------------

    @property
    def registered(self) -> Registered:
        """What is registered now."""
        return self.versions[-1][1]

    def change(self, registered: Registered) -> None:
        """Register something else. The broker hears of it later."""
        if registered != self.registered:
            self.tick()
            self.versions.append((self.now, registered))

    def subscribe(self, event_code: str, expression: str | None, *, from_beginning: bool) -> None:
        """Subscribe the group, as the service does: from the beginning only where it has no place yet."""
        from_beginning = from_beginning and self.registered.is_ours
        start = 0 if from_beginning and not self.has_cursor else self.store.end
        mode = SubscriptionMode.DIRECT if expression is None else SubscriptionMode.HEADER
        made = PastSubscription(self.next_id, GROUP, event_code, mode, expression, {KEY.queue_id: start}, paused=False)
        if from_beginning and not self.has_cursor:
            # It is kept for it before brokers know.
            self.has_cursor = True
        self.next_id += 1
        self.change(
            replace(self.registered, subscriptions={**self.registered.subscriptions, made.subscription_id: made})
        )

    def update(self, subscription_id: int, **changed: object) -> None:
        """Change a subscription in place."""
        before = self.registered.subscriptions[subscription_id]
        after = before._replace(**changed)  # type: ignore[arg-type]
        self.change(replace(self.registered, subscriptions={**self.registered.subscriptions, subscription_id: after}))

    def unsubscribe(self, subscription_id: int) -> None:
        """Delete a subscription."""
        left = {name: each for name, each in self.registered.subscriptions.items() if name != subscription_id}
        self.change(replace(self.registered, subscriptions=left))

    def make(self) -> None:
        """Make the group, and the topic, where there are none: ours at first, and then others of the same name."""
        held = self.registered
        made = replace(
            held,
            holder=held.holder or self.next_of(KEY.group_id, [each.holder for _, each in self.versions]),
            topic_id=held.topic_id or self.next_of(OUR_TOPIC, [each.topic_id for _, each in self.versions]),
        )
        self.change(made)

    def next_of(self, ours: int, given: Sequence[int | None]) -> int:
        """Return the next id: ours, or where that was given once, one that nobody has had."""
        return ours if ours not in given else max(each or 0 for each in given) + 10

    def delete_group(self) -> None:
        """Delete it, with its subscriptions and what it may see."""
        self.change(replace(self.registered, holder=None, subscriptions={}, is_allowed=False))

    def delete_topic(self) -> None:
        """Delete it, with what subscribes to it."""
        self.change(replace(self.registered, topic_id=None, subscriptions={}, is_allowed=False, is_refused=False))

    def oldest_known(self) -> int:
        """Return the oldest version that a broker may go by."""
        return max(index for index, (at, _) in enumerate(self.versions) if index == 0 or at <= self.now - LAG_SECONDS)

    # --- the broker ---------------------------------------------------------------------------------------------

    @property
    def config(self) -> Registered:
        """What the broker goes by."""
        return self.versions[self.known][1]

    def follow(self, version: int) -> None:
        """Let the broker go by a version."""
        self.known = version
        if not self.config.has_lane:
            self.give_up()
        elif self.lane is None:
            self.claim()
        else:
            before, self.matcher = self.matcher, self.matched_by()
            if self.matcher.paused_ids != before.paused_ids:
                if self.matcher.paused_ids - before.paused_ids:
                    self.lane.reconsider_ready(self.now)
                self.reconsider(self.lane)

    def reconsider(self, lane: Lane[FakeMessage]) -> None:
        """Let go of the shelf what nobody is there for any more."""

        def standing_of(by: str) -> str | None:
            standing = self.matcher.standing_of(by)
            if standing is None:
                gone.append(by)
            return standing

        gone: list[str] = []
        shelved = {offset: row.shelved_by for offset, row in sorted(lane._state.again.shelved.items())}
        lane.reconsider_shelved(standing_of, self.now)
        for offset, by in shelved.items():
            if by in gone:
                self.in_memory[offset] = (State.NOT_MATCHED, Why.SUBSCRIPTION_DELETED)

    def matched_by(self) -> Matcher:
        """Return the matcher of the version that the broker goes by."""
        routes = (
            SubscriptionRoute(
                subscription_id=each.subscription_id,
                topic_id=1,
                event_code=each.event_code,
                mode=SubscriptionMode(each.mode),
                expression=each.expression,
                predicate=None if each.expression is None else compile_expression(each.expression),
                start_offsets=each.start_offsets,
                paused=each.paused,
            )
            for each in self.config.subscriptions.values()
        )
        return Matcher(make_group(*routes), make_topic(), self.reset)

    def claim(self) -> None:
        """Serve the lane anew, from what is stored."""
        store = self.store
        if not self.has_cursor:
            starts = [each.start_offsets.get(KEY.queue_id, 0) for each in self.config.subscriptions.values()]
            store.acked_offset, self.has_cursor = min(starts), True
        store.epoch += 1
        if self.lost_from is not None:
            self.put_back(self.lost_from)
        self.in_memory = dict(self.fates)
        claimed = ClaimedLane(KEY, store.epoch, store.acked_offset, store.acked_ranges, self.reset)
        self.lane = Lane(claimed, store.load_rows(self.now), CONFIG, self.now)
        self.matcher = self.matched_by()
        self.reconsider(self.lane)

    def lose_end(self, offset: int) -> None:
        """Lose the end of the log. Brokers notice before they go on, and within half a minute of the next message."""
        self.tick()
        self.give_up()
        del self.store.log[offset:], self.stored_at[offset:]
        self.fates = {each: fate for each, fate in self.fates.items() if each < offset}
        self.traced = {each: acked for each, acked in self.traced.items() if each < offset}
        self.acknowledged = {each for each in self.acknowledged if each < offset}
        self.lost_from = offset if self.lost_from is None else min(offset, self.lost_from)

    def put_back(self, offset: int) -> None:
        """Put the lane back, as whoever claims it does."""
        self.tick()
        store = self.store
        store.acked_offset = min(store.acked_offset, offset)
        store.acked_ranges = [(first, min(end, offset)) for first, end in store.acked_ranges if first < offset]
        store.rows = {each: row for each, row in store.rows.items() if each < offset}
        self.fates = {each: fate for each, fate in self.fates.items() if each < offset}
        self.acknowledged = {each for each in self.acknowledged if each < offset}
        act = LaneResetAct(
            0, self.time(self.now), "broker", "lost", KEY.group_id, 2**63 - 1, offset, None, skips=False
        )  # fmt: skip
        self.put_backs.append(act)
        self.lost_from = None

    def give_up(self) -> None:
        """Serve it no more; what was not stored of it is forgotten."""
        self.lane = None

    def crash(self, version: int) -> None:
        """Let another broker serve it, that goes by a version of its own."""
        self.give_up()
        self.follow(version)

    def feed(self, count: int) -> None:
        """Let the lane read, as `LaneReader` does."""
        lane = self.lane
        if lane is None:
            return
        first = lane.next_offset
        end = min(first + min(count, lane.wants()), self.store.end)
        messages = [stored.message for stored in self.store.log[first:end]]
        if not messages:
            return
        matched = self.matcher.select(messages, KEY.queue_id)
        taken = {message.queue_offset for message in matched}
        shelved = [
            (message, by)
            for message in messages
            if message.queue_offset not in taken and (by := self.matcher.paused_wanting(message, KEY.queue_id))
        ]
        held_back = taken | {message.queue_offset for message, _ in shelved}
        for message in messages:
            offset = message.queue_offset
            if offset not in held_back and offset not in lane._state.settled:
                self.in_memory[offset] = (State.NOT_MATCHED, self.why_not(message))
        lane.feed(first, end, matched, shelved=shelved)

    def why_not(self, message: FakeMessage) -> Why:
        """Return, in the plainest way, why no subscription that the broker knows wants a message."""
        if message.target_group is not None:
            return Why.FOR_ANOTHER_GROUP
        said = set()
        for each in self.config.subscriptions.values():
            if each.event_code not in {"*", message.event_code}:
                continue
            start = each.start_offsets[KEY.queue_id]
            if self.reset is not None and each.subscription_id <= self.reset.subscription_id:
                start = min(start, self.reset.offset)
            if start > message.queue_offset:
                said.add(Why.SUBSCRIBED_LATER)
            elif each.expression is not None:
                is_true = EXPRESSIONS[each.expression](message.headers)
                said.add(Why.EXPRESSION_FAILED if is_true is None else Why.EXPRESSION_FALSE)
        for why in (Why.EXPRESSION_FAILED, Why.EXPRESSION_FALSE, Why.SUBSCRIBED_LATER):
            if why in said:
                return why
        return Why.NO_SUBSCRIPTION

    def fetch(self) -> None:
        """Fetch what comes again, and shelve what only paused subscriptions want by now."""
        if self.lane is None:
            return
        found = [self.store.log[offset].message for offset, _ in self.lane.due(self.now, 100)]
        shelved = {}
        if self.matcher.paused_ids:
            shelved = {each.queue_offset: self.matcher.shelved_by(each, KEY.queue_id) for each in found}
            self.lane.shelve({offset: by for offset, by in shelved.items() if by})
        self.lane.feed_again([each for each in found if not shelved.get(each.queue_offset)], ())

    def take(self, count: int) -> list[tuple[int, int]]:
        """Hand out, and return offsets and attempts."""
        if self.lane is None:
            return []

        def may_hand_out(message: FakeMessage) -> bool:
            if not self.config.may_see_stress:
                self.in_memory[message.queue_offset] = (State.NOT_MATCHED, Why.STRESS_NOT_ALLOWED)
            return self.config.may_see_stress

        handout = self.lane.take("a", count, ALL_BYTES, self.now, may_hand_out, begun=Begun.YES)
        fresh = [(message.queue_offset, 1) for message in handout.fresh]
        return [*fresh, *((again.message.queue_offset, again.attempt) for again in handout.again)]

    def answer(self, offset: int, attempt: int, verdict: Verdict) -> None:
        """Settle one message."""
        if self.lane is None:
            return
        held = Held(KEY.queue_id, self.lane.epoch, attempt, [(offset, offset + 1)])
        dead_before = self.lane.counters.dead_lettered
        settled = self.lane.settle("a", Settlement(held, verdict, None, "boom"), self.now)
        if settled.count and verdict is Verdict.ACK:
            self.in_memory[offset] = (State.DELIVERED, None)
            self.acknowledged.add(offset)
            if offset % 2 == 0:
                self.traced[offset] = Acked(KEY.group_id, self.us(self.now), "a", attempt)
        if self.lane.counters.dead_lettered > dead_before:
            self.in_memory[offset] = (State.DEAD_LETTER, None)

    def checkpoint(self, *, is_committed: bool) -> None:
        """Store what the lane has to store, or fail to."""
        checkpoint = self.lane.checkpoint(self.now) if self.lane is not None else None
        if checkpoint is None or self.lane is None:
            return
        if not is_committed:
            self.lane.abandon(checkpoint)
            return
        self.tick()
        assert self.store.commit(checkpoint, self.now)
        self.lane.confirm(checkpoint)
        self.fates = dict(self.in_memory)
        for move in checkpoint.dead_letters:
            # As in the store: of a message and a group there is one, the first.
            letter = Buried(move.queue_offset, self.us(self.now), move.attempts, move.reason, "boom", ())
            self.letters.setdefault((move.queue_offset, self.stored_at[move.queue_offset]), letter)

    # --- operators ----------------------------------------------------------------------------------------------

    def reset_to(self, offset: int) -> None:
        """Put the group somewhere else, as a reset does."""
        if not self.registered.has_lane:
            return
        self.tick()
        store = self.store
        starts = [each.start_offsets[KEY.queue_id] for each in self.registered.subscriptions.values()]
        place = LanePlace(store.acked_offset, store.acked_ranges, sorted(store.rows))
        place = place if self.has_cursor else LanePlace(min(starts))
        skipped = {each for first, end in skipped_by(place, offset) for each in range(first, end)}
        youngest = max(self.registered.subscriptions)
        act = LaneResetAct(
            len(self.resets) + 1, self.time(self.now), "ada", "why", KEY.group_id, place.acked_offset, offset,
            youngest, skips=None,
        )  # fmt: skip
        self.resets.append(act)
        self.skipped_of = {**getattr(self, "skipped_of", {}), act.act_id: skipped}
        if act.goes_back:
            store.acked_ranges = []
            store.rows = {each: row for each, row in store.rows.items() if each < offset}
            self.fates = {each: fate for each, fate in self.fates.items() if each < offset}
            self.acknowledged = {each for each in self.acknowledged if each < offset}
        else:
            store.acked_ranges = [(max(first, offset), end) for first, end in store.acked_ranges if end > offset]
            store.rows = {each: row for each, row in store.rows.items() if each >= offset}
            self.fates |= dict.fromkeys(skipped, (State.SKIPPED, None))
        store.acked_offset, self.has_cursor = offset, True
        self.reset = LaneReset(offset, youngest)
        self.crash(self.known)

    def purge(self, letter: tuple[int, float]) -> None:
        """Purge the dead letter of a message."""
        self.tick()
        self.letters.pop(letter)
        self.purges.append(PurgeJob(len(self.purges) + 1, self.time(self.now), "ada", WantedDeadLetters()))

    # --- what the status is told by -----------------------------------------------------------------------------

    @staticmethod
    def us(seconds: float) -> int:
        """Return a time of the scene in microseconds since 1970."""
        return round((BEGINNING.timestamp() + seconds) * 1_000_000)

    @staticmethod
    def time(seconds: float) -> datetime:
        """Return a time of the scene."""
        return BEGINNING + timedelta(seconds=seconds)

    def append(self, event_code: str, headers: Headers, *, stress: bool, target: int | None) -> None:
        """Store a message."""
        message = FakeMessage(self.store.end, event_code, stress, dict(headers), target_group=target)
        self.store.log.append(StoredMessage(message, matches=True))
        self.stored_at.append(self.now)

    @property
    def had_namesakes(self) -> bool:
        """Whether anything was registered for another group or topic of the same name."""
        return any(each.subscriptions and not each.is_ours for _, each in self.versions)

    def moments(self, *, only_ours: bool = False) -> list[ConfigMoment]:
        """Return what the audit trail tells; *only_ours*: as if others of the same name had never subscribed."""
        return [
            ConfigMoment(
                made_by=None if index == 0 else ConfigChange(index, self.time(at), "ada", (f"change {index}",)),
                topic=None if registered.topic_id is None else PastTopic(registered.topic_id, registered.is_refused),
                groups=SharedMapping(
                    {} if registered.holder is None else {GROUP: OURS._replace(group_id=registered.holder)}
                ),
                subscriptions=SharedMapping(registered.subscriptions),
                allowed=SharedMapping({1: (GROUP, "*")} if registered.is_allowed else {}),
            )
            for index, (at, registered) in enumerate(
                (at, each if each.is_ours or not only_ours else replace(each, subscriptions={}, is_allowed=False))
                for at, each in self.versions
            )
        ]

    def stand(self, offset: int) -> MessageStand | None:
        """Return what the broker says of a message."""
        if self.lane is None:
            return None
        found = self.lane.find(offset)
        return MessageStand(found.stand, self.lane.epoch, found.attempt, instance_id="a")

    def facts(self, offset: int, *, is_asked: bool = False, only_ours: bool = False) -> GroupFacts:
        """Return what both databases hold of a message, and where the broker *is_asked* what that says."""
        store, message = self.store, self.store.log[offset].message
        row = store.rows.get(offset)
        since = self.stored_at[offset]
        is_foreign = row is not None and self.lost_from is not None and offset >= self.lost_from
        rows = LaneRows(
            KEY.group_id,
            has_cursor=self.has_cursor,
            epoch=store.epoch,
            is_settled=self.has_cursor and offset in store.behind_cursor(),
            owner=None if self.lane is None else KEY_OWNER,
            waiting=None
            if row is None or is_foreign
            else WaitingRow(row.attempt, self.us(self.now), "boom", row.shelved_by),
            dead_letter=self.letters.get((offset, since)),
            is_beyond=max([store.acked_offset, *(end for _, end in store.acked_ranges)]) > store.end,
            has_foreign_row=is_foreign,
            lost_died_at_us=self.lost_died_at_us(offset, since),
        )
        resets = [
            act._replace(skips=offset in self.skipped_of[act.act_id])
            for act in self.resets
            if act.at >= self.time(since)
        ]
        before = [act for act in self.resets if act.at < self.time(since)]
        resets += [act for act in self.put_backs if act.at >= self.time(since)]
        moments = self.moments(only_ours=only_ours)
        return GroupFacts(
            message=self.readable(message, since),
            group=GROUP,
            group_id=KEY.group_id,
            moments=moments_of_groups(moments, [OURS], OUR_TOPIC, message.event_code)[KEY.group_id],
            rows=rows,
            resets=sorted(resets, key=lambda act: act.at),
            put_back=self.put_backs,
            reset_before=LaneReset(before[-1].to_offset, before[-1].subscription_id or 0) if before else None,
            purges=[job for job in self.purges if job.created_at >= self.time(since)],
            stand=self.stand(offset) if is_asked else None,
            ended=ended_first(topic_ended(moments, OUR_TOPIC), deleted_groups(moments).get(KEY.group_id)),
            acked=self.traced.get(offset),
            now_us=self.us(self.now),
        )

    def lost_died_at_us(self, offset: int, since: float) -> int | None:
        """Return when a message died that was stored before this one, and lay behind it: as the store looks for one."""
        behind = sorted(letter for letter in self.letters if letter[0] >= offset)
        return max(
            (self.letters[each].died_at_us for each in (*behind[:1], *behind[-1:]) if each[1] < since), default=None
        )

    def readable(self, message: FakeMessage, stored_at: float) -> Readable:
        """Return a message as the status looks at it."""
        return Readable(
            queue_id=KEY.queue_id,
            queue_offset=message.queue_offset,
            stored_at_us=self.us(stored_at),
            topic=TOPIC,
            event_code=message.event_code,
            key=None,
            headers=message.headers,
            stress=message.stress,
            target_group=message.target_group,
            is_leaving=False,
        )
