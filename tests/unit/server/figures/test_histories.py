"""Brokers that come, go and die: what they wrote adds up to the log, and where it does not, the minute says so."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from msgbroker.engine.tally import Counted
from msgbroker.server.figures.store_clock import StoreClock
from msgbroker.server.figures.usage import LaneTally, UsageCounts
from msgbroker.server.figures.usage_writer import MARGIN_US
from msgdb.figures.completeness import SILENT_SECONDS, WRITE_SECONDS, incomplete_minutes, open_from
from msgdb.figures.usage import MINUTE_US, UsageBroker, UsageRow
from tests.unit.server.figures.test_usage import MINUTE, TOPIC_ID, stored

GROUP_ID = 7
START_US = MINUTE * MINUTE_US


class Store:
    """What brokers have written, and the log: which minute each message was stored in, and acknowledged."""

    def __init__(self) -> None:
        self.now_us = START_US
        self.rows: dict[tuple[UUID, int, int, str], UsageRow] = {}
        self.brokers: dict[UUID, UsageBroker] = {}
        self.published: Counter[int] = Counter()
        self.acknowledged: Counter[int] = Counter()

    def seconds(self) -> float:
        return (self.now_us - START_US) / 1_000_000


class OneBroker:
    """A broker: its counts, and its way to write them, with the store's answers as the test has them."""

    def __init__(self, store: Store, number: int) -> None:
        self.store = store
        self.broker_id = UUID(int=number)
        clock = StoreClock(store.seconds)
        clock.learn(START_US, 0.0 if store.now_us == START_US else store.seconds())
        clock._ahead_us = START_US
        self.usage = UsageCounts(clock)
        self.tally = LaneTally(self.usage, GROUP_ID, TOPIC_ID)
        self.write_at_us = store.now_us
        self.commit_began_us: int | None = None
        self.write()

    def store_messages(self, count: int) -> None:
        """Begin a commit: the messages are in the log; that they are this broker learns a moment later."""
        self.commit_began_us = self.store.now_us
        self.stored_count = count
        self.store.published[self.store.now_us // MINUTE_US] += count

    def hear(self) -> None:
        if self.commit_began_us is None:
            return
        messages = [stored() for _ in range(self.stored_count)]
        for message in messages:
            message.stored_at_us = self.commit_began_us
        self.usage.stored({1: messages})
        self.commit_began_us = None

    def acknowledge(self, count: int) -> None:
        self.store.acknowledged[self.store.now_us // MINUTE_US] += count
        self.tally.delivered(Counted(["EC_PAID"] * count, [1] * count), [self.store.now_us] * count)

    def write(self, *, is_stored: bool = True, is_answered: bool = True, has_ended: bool = False) -> None:
        """Write as `UsageWriter` does: what is not answered is written again."""
        began_us = self.store.now_us if self.commit_began_us is None else self.commit_began_us
        until_us = self.store.now_us if has_ended else began_us - MARGIN_US
        names = self.usage.changed()
        rows = self.usage.take(names)
        if is_stored:
            for row in rows:
                self.store.rows[self.broker_id, row.minute_us, row.group_id, row.event_code] = row
            counted_until = datetime.fromtimestamp(until_us / 1_000_000, UTC)
            self.store.brokers[self.broker_id] = UsageBroker(self.broker_id, "here", counted_until, has_ended)
        if is_stored and is_answered:
            self.usage.give_up(until_us)
        else:
            self.usage.give_back(names)
        self.write_at_us = self.store.now_us + round(WRITE_SECONDS * 1_000_000)


ACTS = st.one_of(
    st.tuples(st.just("publish"), st.integers(0, 3), st.integers(1, 5)),
    st.tuples(st.just("acknowledge"), st.integers(0, 3), st.integers(1, 5)),
    st.tuples(st.just("pass"), st.integers(0, 3), st.integers(1, 9_000)),
    st.tuples(st.sampled_from(("lose write", "lose answer", "kill", "end", "begin")), st.integers(0, 3), st.just(0)),
)


class Scene:
    """Brokers on one store, to which things happen."""

    def __init__(self) -> None:
        self.store = Store()
        self.alive = [OneBroker(self.store, 1), OneBroker(self.store, 2)]
        self.begun = 2
        self.killed_us: list[int] = []

    def do(self, act: str, which: int, size: int) -> None:
        if act == "begin":
            self.begun += 1
            self.alive.append(OneBroker(self.store, self.begun))
        elif act == "pass":
            pass_time(self.store, self.alive, size)
        elif self.alive:
            self._do_at(self.alive[which % len(self.alive)], act, size)

    def _do_at(self, broker: OneBroker, act: str, size: int) -> None:
        if act == "publish" and broker.commit_began_us is None:
            broker.store_messages(size)
        elif act == "acknowledge":
            broker.acknowledge(size)
        elif act == "lose write":
            broker.write(is_stored=False)
            broker.write_at_us = self.store.now_us + 1_000_000
        elif act == "lose answer":
            broker.write(is_answered=False)
        elif act == "kill":
            self.alive.remove(broker)
            self.killed_us.append(self.store.now_us)
        elif act == "end":
            self.alive.remove(broker)
            broker.hear()
            broker.write(has_ended=True)

    def come_to_rest(self) -> None:
        """Let more time pass than anybody is waited for."""
        for broker in self.alive:
            broker.hear()
        for _ in range(8):
            pass_time(self.store, self.alive, 5_000)


@settings(max_examples=300)
@given(st.lists(ACTS, max_size=60))
def test_what_is_written_adds_up_to_the_log_or_the_minute_says_that_it_lacks_something(
    acts: list[tuple[str, int, int]],
) -> None:
    scene = Scene()
    for act, which, size in acts:
        scene.do(act, which, size)
    scene.come_to_rest()

    check(scene.store, scene.killed_us)


def pass_time(store: Store, alive: list[OneBroker], milliseconds: int) -> None:
    """Let time pass, in which brokers hear of their commits and write when they should."""
    end_us = store.now_us + milliseconds * 1_000
    while store.now_us < end_us:
        store.now_us = min(store.now_us + 500_000, end_us)
        for broker in alive:
            broker.hear()
            if store.now_us >= broker.write_at_us:
                broker.write()


def check(store: Store, killed_us: list[int]) -> None:
    now = datetime.fromtimestamp(store.now_us / 1_000_000, UTC)
    brokers = list(store.brokers.values())
    open_at = open_from(brokers, now)
    first = datetime.fromtimestamp(START_US / 1_000_000, UTC)
    incomplete = {round(minute.timestamp()) // 60 for minute in incomplete_minutes(brokers, (), first, now, now)}
    published: Counter[int] = Counter()
    acknowledged: Counter[int] = Counter()
    for row in store.rows.values():
        published[row.minute_us // MINUTE_US] += row.published
        acknowledged[row.minute_us // MINUTE_US] += row.delivered
    for minute in range(MINUTE, store.now_us // MINUTE_US):
        is_over = (minute + 1) * 60 <= open_at.timestamp()
        if is_over and minute not in incomplete:
            assert published[minute] == store.published[minute]
            assert acknowledged[minute] == store.acknowledged[minute]
        assert published[minute] <= store.published[minute]
        assert acknowledged[minute] <= store.acknowledged[minute]
    # Nobody is blamed for nothing: only what is around a kill is incomplete.
    for minute in incomplete:
        assert any(abs(at_us // MINUTE_US - minute) <= 1 + SILENT_SECONDS // 60 for at_us in killed_us), (
            "a minute in which nobody was killed"
        )
