"""What a broker says of its work: counts that change, and lanes that read no further."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from msgbroker.contract import limits
from msgbroker.engine.lane.config import LaneCounters
from msgbroker.engine.verdicts import Settlement, Verdict
from msgbroker.server.deliver.group import GroupDelivery
from msgbroker.server.deliver.hub import DeliveryHub
from msgbroker.server.deliver.instances.instance import Instance
from msgbroker.server.deliver.lanes.owned_lane import OwnedLane
from msgbroker.server.log.cache import LogCache
from msgbroker.server.publish.committer import CommitterCounters
from msgbroker.server.report import Report
from msgdb.lanes.records import ClaimedLane, LaneKey, RedeliveryRow
from msgdb.reports.alarms import AlarmKind
from tests.support.broker_builders import board, group_of_hangzhou, log_message, route, snapshot
from tests.support.lane_builders import held

LANE = LaneKey(1, "", 1)


class OneLane:
    """A hub with one lane of one group, and its counters."""

    def __init__(self, redeliveries: int = 0, epoch: int = 1) -> None:
        self.now = 0.0
        self.stored = CommitterCounters()
        self.committer = cast("Any", SimpleNamespace(counters=self.stored, in_flight_seconds=0.0))
        self.hub = DeliveryHub(LogCache(None), board())  # type: ignore[arg-type]
        self.hub.pump.mark = lambda group: None  # type: ignore[method-assign]
        self.hub.follow(snapshot(route()))
        self.instance = Instance("one", 100, 1_000_000)
        self.group: GroupDelivery = self.hub.attach(group_of_hangzhou(), self.instance)
        rows = [RedeliveryRow(offset, 1_000, 2, 60.0, None) for offset in range(redeliveries)]
        claimed = ClaimedLane(LANE, epoch, redeliveries, [])
        self.hub.open_lane(self.group, route(), claimed, rows, lease_until=1e12)
        self.board = board()
        self.counters = Report(self.hub, self.committer, self.board, lambda: self.now)

    @property
    def owned(self) -> OwnedLane:
        return self.group.lanes[1]


def logged(logs: list[Any], event: str) -> list[dict[str, Any]]:
    return [entry for entry in logs if entry["event"] == event]


def test_counts_are_logged_when_they_changed() -> None:
    one = OneLane()
    with capture_logs() as logs:
        assert not one.counters.count_once()
        one.stored.messages += 7
        one.owned.lane.counters.stale += 2
        assert one.counters.count_once()
        assert not one.counters.count_once()

    (said,) = logged(logs, "broker.counted")
    assert (said["committer_messages"], said["stale"], said["denied"], said["failed_evaluations"]) == (7, 2, 0, 0)


def test_what_a_lane_counted_is_not_forgotten_with_it() -> None:
    one = OneLane()
    one.owned.lane.counters.timed_out = 3
    one.hub.close_lane(one.group, 1)

    assert one.counters.totals()["timed_out"] == 3


def settle(one: OneLane, queue_id: int, epoch: int, first: int, last: int) -> int:
    """Let the instance acknowledge that range; return how many messages it settled."""
    return one.group.settle(
        one.instance, Settlement(held(first, last, queue_id=queue_id, epoch=epoch), Verdict.ACK), 1.0
    )


@pytest.mark.parametrize("epoch", [1, 3])
def test_a_verdict_of_another_epoch_is_ignored_and_counted(epoch: int) -> None:
    one = OneLane(epoch=2)
    one.owned.lane.feed(0, 5, [log_message(offset) for offset in range(5)])
    assert one.owned.lane.take(one.instance.name, 5, 1_000_000, 0.0).count == 5

    assert settle(one, 1, epoch, 0, 4) == 0
    assert (one.counters.totals()["stale"], one.owned.lane.in_flight_count) == (5, 5)
    assert settle(one, 1, 2, 0, 4) == 5
    assert one.counters.totals()["stale"] == 5


def test_a_verdict_on_a_lane_that_is_not_here_is_counted_for_what_may_have_been_in_flight_at_most() -> None:
    one = OneLane()
    one.hub.close_lane(one.group, 1)

    assert [settle(one, queue_id, 1, 0, last) for queue_id, last in ((1, 6), (77, 0), (1, 999_999))] == [0, 0, 0]
    assert one.counters.totals()["stale"] == 7 + 1 + limits.LANE_WINDOW_MAX


def test_every_count_of_a_lane_is_shown() -> None:
    assert {field.name for field in dataclasses.fields(LaneCounters)} <= OneLane().counters.totals().keys()


def test_expressions_that_failed_are_counted_across_changes_of_the_configuration() -> None:
    one = OneLane()
    for change in range(2):
        one.owned.matcher.select([log_message(change)], 1)
        one.group.reroute(group_of_hangzhou(), {1: route()})

    assert one.counters.totals()["failed_evaluations"] == 2


def test_a_lane_that_reads_no_further_is_an_alarm_until_it_does() -> None:
    one = OneLane(redeliveries=3)
    one.owned.lane.reconfigure(dataclasses.replace(one.owned.lane._state.config, redeliveries_max=3))
    one.counters.watch_once()
    one.counters.watch_once()
    (alarm,) = one.board.standing
    assert (alarm.kind, alarm.thing) == (AlarmKind.REDELIVERIES_FULL, "group SG_POINTS, topic TP_TRADE, queue 1")
    assert (alarm.group_id, alarm.topic_id, alarm.queue_id) == (1, 1, 1)

    assert one.owned.lane.due(1e12, 1) == [(0, 1_000)]
    one.owned.lane.feed_again([log_message(0)], ())
    assert one.owned.lane.take("one", 1, 1_000, 1e12).count == 1
    assert one.owned.lane.settle("one", Settlement(held(0, 0, 2), Verdict.ACK), 1e12).count == 1
    one.counters.watch_once()
    assert one.board.standing == []


def test_the_alarm_of_a_lane_that_goes_is_cleared_here() -> None:
    one = OneLane(redeliveries=3)
    one.owned.lane.reconfigure(dataclasses.replace(one.owned.lane._state.config, redeliveries_max=3))
    one.counters.watch_once()
    assert one.board.standing

    one.hub.close_lane(one.group, 1)
    one.counters.watch_once()
    assert one.board.standing == []


def test_a_commit_that_does_not_come_to_its_end_is_an_alarm_until_it_does() -> None:
    one = OneLane()
    for seconds, kinds in ((4.0, []), (6.0, [AlarmKind.COMMIT_WAITS]), (60.0, [AlarmKind.COMMIT_WAITS]), (0.0, [])):
        one.committer.in_flight_seconds = seconds
        one.counters.watch_once()
        assert [alarm.kind for alarm in one.board.standing] == kinds
