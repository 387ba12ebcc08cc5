"""Who pays when an instance goes away, hangs, or is replaced: by a guess, one message at most over all its lanes."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

import pytest

from confdb.routes import GroupMode, GroupOrder, GroupRoute, SubscriptionMode, SubscriptionRoute
from msgbroker.contract.errors import GroupNotFoundError, InstanceReplacedError
from msgbroker.engine.lane.begun import Begun
from msgbroker.engine.lane.lane import Lane
from msgbroker.engine.matching import Matcher
from msgbroker.engine.verdicts import Settlement, Verdict
from msgbroker.server import clock
from msgbroker.server.alarms.set_aside import SetAside
from msgbroker.server.deliver.group import GroupDelivery
from msgbroker.server.deliver.instances.instance import Instance
from msgbroker.server.deliver.instances.recent_crashes import RecentCrashes
from msgbroker.server.deliver.lane_waits import REST_SECONDS
from msgbroker.server.deliver.lanes.owned_lane import OwnedLane
from msgbroker.server.deliver.lanes.rules import lane_config
from msgbroker.server.deliver.lanes.unpersisted import UnpersistedLanes
from msgbroker.server.deliver.pump import PumpBudget, Pumped
from msgbroker.server.log.cache import LogCache
from msgbroker.server.log.message import LogMessage
from msgdb.lanes.records import ClaimedLane, LaneKey
from msgdb.reports.alarms import Alarm, AlarmKind
from tests.support.broker_builders import PAID, board, log_message, route
from tests.support.lane_builders import held

QUEUES = (1, 2, 3)
ONE, TWO = b"1" * 16, b"2" * 16
ACK_SECONDS = 60.0


def group_route() -> GroupRoute:
    subscription = SubscriptionRoute(1, 1, PAID, SubscriptionMode.DIRECT, None, None, {})
    return GroupRoute(
        1, "default", "SG_POINTS", ACK_SECONDS, (10.0, 20.0), 3, 100, GroupOrder.NONE, GroupMode.SHARED, paused=False,
        subscriptions=(subscription,),
    )  # fmt: skip


class Lanes:
    """A group with three lanes, and what was handed to whom."""

    def __init__(self) -> None:
        self.cache = LogCache(None)  # type: ignore[arg-type]
        self.now = clock.now()
        self.failed: list[Exception] = []
        self.group = GroupDelivery(
            route=group_route(),
            marks=self,
            owner=self,
            unpersisted=UnpersistedLanes(),
            cache=self.cache,
            tasks=self,
            aside=SetAside(board(), lambda unit: Alarm(AlarmKind.LANE_SET_ASIDE, unit.work, "")),
        )
        for queue_id in QUEUES:
            lane: Lane[LogMessage] = Lane(
                ClaimedLane(LaneKey(1, "", queue_id), 1, 0, []), (), lane_config(group_route()), self.now
            )
            self.group.add_lane(OwnedLane(lane, route(), Matcher(group_route(), route()), lambda _: True, 1e18))

    def mark(self, group: Pumped) -> None:
        """The test pumps it when it likes."""

    def lane_failed(self, owned: OwnedLane, error: Exception) -> None:
        self.failed.append(error)

    def start(self, work: Coroutine[None, None, None]) -> None:
        raise AssertionError("all that is read is in memory")

    def attach(self, instance_id: str = "one", begun: Begun = Begun.NO, **more: Any) -> Instance:
        instance = Instance(instance_id, 100, 1_000_000, begun=begun, **more)
        instance.said_at = self.now
        self.group.attach(instance, self.now)
        return instance

    def commit(self, queue_id: int, count: int) -> None:
        first = self.cache.end_of(queue_id)
        committed = [log_message(offset, queue_id=queue_id) for offset in range(first, first + count)]
        self.cache.add({queue_id: committed})
        self.group.queue_went_on(queue_id)

    def pump(self) -> None:
        """Hand out what can be, and write it."""
        self.group.pump(self.now, PumpBudget())
        for instance in self.group.instances.values():
            if instance.next_response():
                instance.written()

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.group.tick(self.now)

    def attempts(self) -> dict[tuple[int, int], int]:
        """Return the attempts of what comes again, by queue and offset."""
        return {
            (queue_id, offset): record.attempt
            for queue_id, owned in self.group.lanes.items()
            for offset, record in owned.lane._state.again.by_offset.items()
        }

    def counted(self) -> list[tuple[int, int]]:
        """Return what has lost an attempt."""
        return [place for place, attempt in self.attempts().items() if attempt > 1]


@pytest.mark.parametrize("begun", [Begun.NO, Begun.UNKNOWN])
def test_of_all_lanes_the_message_handed_out_first_pays_for_an_instance_that_had_begun_nothing(begun: Begun) -> None:
    lanes = Lanes()
    instance = lanes.attach(begun=begun)
    for queue_id in (2, 1, 3):
        lanes.commit(queue_id, 2)
        lanes.pump()
    lanes.group.detach(instance, lanes.now)

    assert len(lanes.attempts()) == 6
    assert lanes.counted() == [(2, 0)]


def test_what_was_settled_does_not_pay_and_neither_does_what_follows_the_next() -> None:
    lanes = Lanes()
    instance = lanes.attach()
    for queue_id in (2, 1, 3):
        lanes.commit(queue_id, 2)
        lanes.pump()
    lanes.group.settle(instance, Settlement(held(0, 1, 1, queue_id=2), Verdict.ACK), lanes.now)
    lanes.group.detach(instance, lanes.now)

    assert lanes.counted() == [(1, 0)]


def test_what_was_never_written_does_not_pay_and_what_is_being_written_may_have_arrived_and_does() -> None:
    lanes = Lanes()
    instance = lanes.attach()
    lanes.commit(1, 2)
    lanes.group.pump(lanes.now, PumpBudget())
    lanes.group.detach(instance, lanes.now)
    assert lanes.counted() == []

    instance = lanes.attach()
    lanes.group.pump(lanes.now, PumpBudget())
    assert instance.next_response()
    lanes.commit(2, 2)
    lanes.group.pump(lanes.now, PumpBudget())
    lanes.group.detach(instance, lanes.now)
    assert lanes.counted() == [(1, 0)]


def test_where_something_was_begun_in_any_lane_nothing_else_pays() -> None:
    lanes = Lanes()
    instance = lanes.attach()
    for queue_id in (2, 1, 3):
        lanes.commit(queue_id, 2)
        lanes.pump()
    lanes.group.begin(instance, held(1, 1, 1))
    lanes.group.begin(instance, held(0, 0, 1, epoch=7))
    lanes.group.begin(instance, held(0, 0, 1, queue_id=99))
    lanes.group.detach(instance, lanes.now)

    assert lanes.counted() == [(3, 1)]


def test_nothing_pays_for_an_instance_that_left_in_good_order_whatever_it_had_begun() -> None:
    lanes = Lanes()
    instance = lanes.attach()
    lanes.commit(1, 2)
    lanes.pump()
    lanes.group.begin(instance, held(0, 0, 1, queue_id=1))
    instance.has_left = True
    lanes.group.detach(instance, lanes.now)

    assert lanes.counted() == []


def test_nothing_pays_where_the_broker_ended_the_stream() -> None:
    lanes = Lanes()
    instance = lanes.attach()
    lanes.commit(1, 2)
    lanes.pump()
    instance.close(GroupNotFoundError("default", "SG_POINTS"))
    lanes.group.detach(instance, lanes.now)

    assert lanes.counted() == []


def test_what_is_pulled_pays() -> None:
    lanes = Lanes()
    puller = lanes.attach(begun=Begun.YES)
    lanes.commit(1, 2)
    lanes.pump()
    lanes.group.detach(puller, lanes.now)

    assert lanes.counted() == [(1, 0), (1, 1)]


@pytest.mark.parametrize(
    "former, newcomer, is_told, pays",
    [
        (ONE, TWO, True, [(1, 0)]),
        (ONE, ONE, False, []),
        (b"", TWO, False, []),
        (ONE, b"", False, []),
        (b"", b"", False, []),
    ],
    ids=["another process", "the same process", "one that said nothing before", "one that says nothing", "neither"],
)
def test_a_newcomer_under_the_same_instance_id_takes_over(
    former: bytes, newcomer: bytes, is_told: bool, pays: list[tuple[int, int]]
) -> None:
    lanes = Lanes()
    old = lanes.attach(process_id=former)
    lanes.commit(1, 2)
    lanes.pump()
    new = lanes.attach(process_id=newcomer, host="host-7")

    assert list(lanes.group.instances.values()) == [new]
    assert old.is_closed
    assert isinstance(old.ended_because, InstanceReplacedError) == is_told
    assert lanes.counted() == pays
    if is_told:
        told = str(old.ended_because)
        assert "'one'" in told
        assert "'host-7'" in told
        assert "id of its own" in told


def test_others_of_the_group_are_not_touched_by_a_newcomer() -> None:
    lanes = Lanes()
    other = lanes.attach("other", process_id=ONE)
    lanes.attach(process_id=TWO)

    assert not other.is_closed


# --- no answer in time ------------------------------------------------------------------------------------------------


def test_what_was_not_begun_in_time_goes_to_others_first_and_does_not_count() -> None:
    lanes = Lanes()
    slow = lanes.attach("slow")
    lanes.commit(1, 3)
    lanes.pump()
    slow.said_at = lanes.now + 1
    lanes.pass_time(ACK_SECONDS)
    assert (slow.unsettled, slow.room.messages) == (0, 0)

    other = lanes.attach("other")
    lanes.pump()
    assert (slow.unsettled, other.unsettled) == (0, 3)
    assert lanes.counted() == []


def test_an_instance_that_let_others_go_first_gets_messages_again() -> None:
    lanes = Lanes()
    slow = lanes.attach("slow")
    lanes.commit(1, 3)
    lanes.pump()
    lanes.pass_time(ACK_SECONDS)
    lanes.pass_time(REST_SECONDS - 0.1)
    assert slow.room.messages == 0
    lanes.pass_time(0.2)

    assert slow.room.messages == 100
    lanes.group.detach(slow, lanes.now)
    lanes.pass_time(REST_SECONDS)


def test_one_message_pays_for_an_instance_that_hangs_and_says_nothing() -> None:
    lanes = Lanes()
    hanging = lanes.attach()
    for queue_id in (2, 1, 3):
        lanes.commit(queue_id, 2)
        lanes.pump()
        lanes.now += 0.2
    for _ in range(20):
        lanes.pass_time(ACK_SECONDS / 10)

    assert hanging.unsettled == 0
    assert lanes.counted() == [(2, 0)]


@pytest.mark.parametrize("now", [1_000.0, 83.45315057779801], ids=["exact", "rounded"])
def test_a_message_in_which_every_instance_hangs_becomes_a_dead_letter(
    monkeypatch: pytest.MonkeyPatch, now: float
) -> None:
    monkeypatch.setattr(clock, "now", lambda: now)
    lanes = Lanes()
    lanes.attach()
    lanes.commit(1, 1)
    for _ in range(3):
        lanes.pump()
        lanes.pass_time(ACK_SECONDS)
        lanes.pass_time(REST_SECONDS)
        lanes.pass_time(25.0)

    assert lanes.group.lanes[1].lane.counters.dead_lettered == 1


def test_nothing_pays_for_an_instance_that_is_only_slow_and_goes_on_talking() -> None:
    lanes = Lanes()
    slow = lanes.attach()
    lanes.commit(1, 50)
    lanes.pump()
    for second in range(59):
        lanes.pass_time(1.0)
        lanes.group.settle(slow, Settlement(held(second // 2, second // 2, 1, queue_id=1), Verdict.ACK), lanes.now)
        slow.said_at = lanes.now
    lanes.pass_time(2.0)

    assert slow.unsettled == 0
    assert lanes.counted() == []


def test_what_was_begun_and_not_answered_in_time_counts_and_nothing_else() -> None:
    lanes = Lanes()
    slow = lanes.attach()
    lanes.commit(1, 3)
    lanes.pump()
    lanes.group.begin(slow, held(1, 1, 1, queue_id=1))
    lanes.pass_time(ACK_SECONDS)

    assert lanes.counted() == [(1, 1)]


# --- what is remembered of crashes ------------------------------------------------------------------------------------


def test_the_next_instance_begins_with_care_after_one_went_away_with_messages() -> None:
    lanes = Lanes()
    lanes.commit(1, 2)
    instance = lanes.attach(process_id=ONE)
    lanes.pump()
    lanes.group.detach(instance, lanes.now)
    successor = Instance("one", 1, 1, process_id=TWO)

    assert lanes.group.crashes.is_to_be_careful(1, successor, lanes.now)
    assert not lanes.group.crashes.is_to_be_careful(2, successor, lanes.now)
    assert lanes.group.crashes.is_to_be_careful(1, successor, lanes.now + 599)
    assert not lanes.group.crashes.is_to_be_careful(1, successor, lanes.now + 601)
    assert not lanes.group.crashes.is_to_be_careful(1, successor, lanes.now)


@pytest.mark.parametrize("how", ["nothing held", "said goodbye", "came back itself"])
def test_there_is_no_need_for_care_where_nothing_has_crashed(how: str) -> None:
    lanes = Lanes()
    instance = lanes.attach(process_id=ONE)
    if how != "nothing held":
        lanes.commit(1, 2)
        lanes.pump()
    instance.has_left = how == "said goodbye"
    lanes.group.detach(instance, lanes.now)
    if how == "came back itself":
        again = Instance("one", 1, 1, process_id=ONE)
        assert not lanes.group.crashes.is_to_be_careful(1, again, lanes.now)

    assert not lanes.group.crashes.is_to_be_careful(1, Instance("two", 1, 1, process_id=TWO), lanes.now)


def test_what_is_remembered_of_crashes_is_bounded() -> None:
    crashes = RecentCrashes()
    for group_id in range(10_500):
        crashes.note(group_id, Instance("one", 1, 1), 0.0)
    for _ in range(1_500):
        crashes.note(10_499, Instance("one", 1, 1), 0.0)

    assert len(crashes._gone) == 10_000
    assert len(crashes._gone[10_499]) == 1_000
    assert not crashes.is_to_be_careful(0, Instance("one", 1, 1), 1.0)


@pytest.mark.parametrize("how, is_suspect", [("crash", True), ("replaced by itself", False), ("goodbye", False)])
def test_what_went_with_a_crash_is_given_to_others_as_suspect(how: str, *, is_suspect: bool) -> None:
    lanes = Lanes()
    instance = lanes.attach(process_id=ONE)
    lanes.commit(1, 2)
    lanes.pump()
    instance.has_left = how == "goodbye"
    if how != "replaced by itself":
        lanes.group.detach(instance, lanes.now)
    other = lanes.attach(process_id=ONE)
    lanes.commit(2, 2)
    lanes.group.pump(lanes.now, PumpBudget())

    assert {batch.queue_id: batch.is_suspect for batch in other.outbox} == {1: is_suspect, 2: False}
    assert [len(batch.wires) for batch in other.outbox] == [2, 2]
