"""What is checked as messages leave: they may have waited in an outbox while the lane they are of went elsewhere."""

from __future__ import annotations

import dataclasses

import pytest

from confdb.routes import Snapshot
from msgbroker.engine.lane.begun import Begun
from msgbroker.engine.verdicts import Settlement, Verdict
from msgbroker.server import clock
from msgbroker.server.deliver.group import GroupDelivery
from msgbroker.server.deliver.hub import DeliveryHub
from msgbroker.server.deliver.instances.instance import Instance
from msgbroker.server.deliver.pump import PumpBudget
from msgbroker.server.log.cache import LogCache
from msgbroker.v1 import message_pb2, subscriber_pb2
from msgdb.lanes.records import ClaimedLane, LaneKey
from tests.support.broker_builders import board, group_route, log_message, route, snapshot
from tests.support.lane_builders import held
from tests.support.one_group import QUEUE


class Late:
    """A group whose instance answers late: the same message waits in its outbox again, and is settled meanwhile."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, stress: bool) -> None:
        self.now = 1_000.0
        monkeypatch.setattr(clock, "now", lambda: self.now)
        self.route = dataclasses.replace(group_route(), ack_timeout_seconds=5.0)
        self.hub = DeliveryHub(LogCache(None), board())  # type: ignore[arg-type]
        monkeypatch.setattr(self.hub.pump, "mark", lambda _: None)
        self.hub.follow(self.configured(1, is_whitelisted=True))
        self.instance = Instance("one", 10, 1_000_000, self.hub.outgoing.open(lambda _: None), begun=Begun.NO)
        self.instance.outlet.on_new_configuration(self.instance.may_still_write)
        self.group: GroupDelivery = self.hub.attach(self.route, self.instance)
        self.open_lane(epoch=1)
        message = log_message(0, body=message_pb2.Message(body=b"one").SerializeToString())
        message.stress = stress
        self.hub.stored({QUEUE: [message]})
        self.pump()
        assert self.written() == [b"one"]
        # It is busy with something else, and does not begin with the message in time: it comes again, to the same one.
        self.now += 6.0
        self.instance.said_at = self.now - 1.0
        self.hub.tick_once(self.now)
        self.now += 2.0
        self.hub.tick_once(self.now)
        self.pump()
        assert len(self.instance.outbox) == 1
        # Its answer to the first one settles it.
        assert self.group.settle(self.instance, Settlement(held(0, 0, 1, queue_id=QUEUE), Verdict.ACK), self.now) == 1

    def configured(self, version: int, *, is_whitelisted: bool) -> Snapshot:
        whitelist = frozenset({(self.route.group_id, 1, "*")}) if is_whitelisted else frozenset[tuple[int, int, str]]()
        groups = {("default", self.route.name): self.route}
        return snapshot(route(), version=version, groups=groups, stress_whitelist=whitelist)

    def open_lane(self, epoch: int) -> None:
        claimed = ClaimedLane(LaneKey(self.route.group_id, "", QUEUE), epoch, 0, [])
        self.hub.open_lane(self.group, route(), claimed, (), self.now + 1_000)

    def pump(self) -> None:
        self.group.pump(self.now, PumpBudget())

    def written(self) -> list[bytes]:
        response = subscriber_pb2.SubscribeResponse.FromString(self.instance.next_response())
        self.instance.written()
        return [delivery.message.body for batch in response.batches for delivery in batch.deliveries]


def test_no_stress_message_of_a_lane_that_is_gone_is_written_to_a_group_that_is_off_the_whitelist(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    late = Late(monkeypatch, stress=True)
    # The lane moves to another broker, in good order.
    late.hub.close_lane(late.group, QUEUE)
    late.hub.follow(late.configured(2, is_whitelisted=False))
    assert late.hub.outgoing.obeyed_version(2) == 2, "this is reported as active"

    assert late.written() == []
    assert (late.instance.unsettled, late.instance.outbox_bytes, late.instance.outlet.held_bytes) == (0, 0, 0)


@pytest.mark.parametrize("stress", [True, False])
def test_what_waits_of_a_lane_is_not_written_once_the_lane_was_given_up_even_if_it_is_claimed_again(
    monkeypatch: pytest.MonkeyPatch, *, stress: bool
) -> None:
    late = Late(monkeypatch, stress=stress)
    late.hub.close_lane(late.group, QUEUE)
    late.open_lane(epoch=2)

    assert late.written() == []
    late.pump()
    assert late.written() == [b"one"], "by the lane that is here now"
