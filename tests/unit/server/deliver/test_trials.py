"""Trials beside lanes: what is said of one reaches no other; stress messages leave by the rule of all others."""

from __future__ import annotations

import dataclasses

import pytest

from confdb.brokers import LIVE_SECONDS
from confdb.routes import Snapshot
from msgbroker.contract.errors import ConfigOutdatedError
from msgbroker.contract.whereabouts import Stand
from msgbroker.engine.lane.begun import Begun
from msgbroker.engine.verdicts import Settlement, Verdict
from msgbroker.server import clock
from msgbroker.server.deliver.group import GroupDelivery
from msgbroker.server.deliver.hub import DeliveryHub
from msgbroker.server.deliver.instances.instance import Instance
from msgbroker.server.deliver.lanes.rules import stress_check
from msgbroker.server.deliver.pump import PumpBudget
from msgbroker.server.deliver.trials import FIRST_TRIAL_EPOCH, Trial
from msgbroker.server.log.cache import LogCache
from msgbroker.server.log.message import LogMessage
from msgbroker.v1 import message_pb2, subscriber_pb2
from msgdb.jobs.trials import TrialOutcome
from msgdb.lanes.records import ClaimedLane, LaneKey
from tests.support.broker_builders import board, group_route, log_message, route, snapshot
from tests.support.lane_builders import held
from tests.support.one_group import QUEUE


def message_at(offset: int, *, stress: bool = False) -> LogMessage:
    body = message_pb2.Message(body=f"{offset}".encode()).SerializeToString()
    message = log_message(offset, queue_id=QUEUE, body=body)
    message.stress = stress
    return message


class Scene:
    """A group with a lane and two instances, of which the first tries a message of the same queue."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1_000.0
        monkeypatch.setattr(clock, "now", lambda: self.now)
        self.route = dataclasses.replace(group_route(), ack_timeout_seconds=5.0)
        self.hub = DeliveryHub(LogCache(None), board())  # type: ignore[arg-type]
        monkeypatch.setattr(self.hub.pump, "mark", lambda _: None)
        self.configuration = self.follow(1, is_whitelisted=True)
        self.one, self.two = self.instance("one"), self.instance("two")
        self.group: GroupDelivery = self.hub.attach(self.route, self.one)
        claimed = ClaimedLane(LaneKey(self.route.group_id, "", QUEUE), 1, 0, [])
        self.hub.open_lane(self.group, route(), claimed, (), self.now + 1_000)

    def instance(self, name: str) -> Instance:
        instance = Instance(name, 10, 1_000_000, self.hub.outgoing.open(lambda _: None), begun=Begun.NO)
        instance.outlet.on_new_configuration(instance.may_still_write)
        return instance

    def follow(self, version: int, *, is_whitelisted: bool) -> Snapshot:
        whitelist = frozenset({(self.route.group_id, 1, "*")}) if is_whitelisted else frozenset[tuple[int, int, str]]()
        groups = {("default", self.route.name): self.route}
        self.configuration = snapshot(route(), version=version, groups=groups, stress_whitelist=whitelist)
        self.hub.follow(self.configuration)
        return self.configuration

    def begin(self, offset: int, *, stress: bool = False) -> Trial:
        return self.group.trials.begin(
            self.one,
            message_at(offset, stress=stress),
            self.now,
            route=self.route,
            topic=route(),
            may_hand_out=stress_check(self.route, route(), self.configuration),
        )

    def written(self) -> list[tuple[int, bytes]]:
        response = subscriber_pb2.SubscribeResponse.FromString(self.one.next_response())
        self.one.written()
        return [(batch.epoch, each.message.body) for batch in response.batches for each in batch.deliveries]

    def settle(self, offset: int, epoch: int, instance: Instance, verdict: Verdict = Verdict.ACK) -> int:
        of_that = held(offset, offset, 1, queue_id=QUEUE, epoch=epoch)
        return self.group.settle(instance, Settlement(of_that, verdict, error="why"), self.now)

    def look(self, trial: Trial) -> tuple[TrialOutcome, str] | None:
        self.group.trials.look(trial, self.now)
        return tuple(trial.ended.result()) if trial.ended.done() else None  # type: ignore[return-value]


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    return Scene(monkeypatch)


async def test_what_is_said_of_a_trial_leaves_the_lane_of_its_queue_alone_and_the_other_way_round(scene: Scene) -> None:
    scene.hub.stored({QUEUE: [message_at(0)]})
    scene.group.pump(scene.now, PumpBudget())
    trial = scene.begin(0)
    epoch = trial.owned.lane.epoch
    assert scene.written() == [(1, b"0"), (epoch, b"0")]
    lane = scene.group.lanes[QUEUE].lane

    assert scene.settle(0, epoch, scene.one, Verdict.RETRY) == 1
    assert scene.look(trial) == (TrialOutcome.FAILED, "why")
    assert (lane.in_flight_count, lane.acked_offset, lane.redelivery_count) == (1, 0, 0)
    assert scene.one.unsettled == 1
    # Once; and the live one has its own verdict.
    assert scene.settle(0, epoch, scene.one) == 0
    assert scene.settle(0, 1, scene.one) == 1
    assert (lane.acked_offset, scene.one.unsettled) == (1, 0)


async def test_nobody_else_and_no_other_name_ends_a_trial(scene: Scene) -> None:
    trial = scene.begin(7)
    epoch = trial.owned.lane.epoch
    assert epoch >= FIRST_TRIAL_EPOCH
    scene.hub.attach(scene.route, scene.two)

    assert scene.settle(7, epoch, scene.two) == 0
    assert scene.settle(7, epoch + 1, scene.one) == 0
    assert scene.settle(8, epoch, scene.one) == 0
    assert scene.settle(7, 1, scene.one) == 0
    assert scene.look(trial) is None
    assert scene.settle(7, epoch, scene.one) == 1
    assert scene.look(trial) == (TrialOutcome.ACKNOWLEDGED, "why")


async def test_no_stress_message_is_written_once_its_group_is_off_the_whitelist(scene: Scene) -> None:
    trial = scene.begin(0, stress=True)
    scene.follow(2, is_whitelisted=False)

    assert scene.written() == []
    outcome = scene.look(trial)
    assert outcome is not None
    assert outcome[0] is TrialOutcome.NOT_HANDED_OUT
    assert (scene.one.unsettled, scene.one.outbox_bytes) == (0, 0)


async def test_a_stress_message_that_is_being_written_keeps_a_new_whitelist_from_being_obeyed(scene: Scene) -> None:
    scene.begin(0, stress=True)
    assert scene.one.next_response()
    scene.follow(2, is_whitelisted=False)
    assert scene.hub.outgoing.obeyed_version(2) == 1
    scene.one.written()
    assert scene.hub.outgoing.obeyed_version(2) == 2


async def test_an_instance_that_does_not_answer_holds_it_no_longer(scene: Scene) -> None:
    trial = scene.begin(0)
    assert scene.written() == [(trial.owned.lane.epoch, b"0")]
    scene.group.begin(scene.one, held(0, 0, 1, queue_id=QUEUE, epoch=trial.owned.lane.epoch))
    scene.now += 4.0
    assert scene.look(trial) is None
    scene.now += 2.0

    assert scene.look(trial) == (TrialOutcome.TIMED_OUT, "no answer in time")
    assert scene.one.unsettled == 0
    response = subscriber_pb2.SubscribeResponse.FromString(scene.one.next_response() or b"")
    assert not response.batches


async def test_what_an_instance_never_read_comes_back_and_is_said_so(scene: Scene) -> None:
    trial = scene.begin(0)
    scene.one.give_back()

    outcome = scene.look(trial)
    assert outcome is not None
    assert outcome[0] is TrialOutcome.NOT_HANDED_OUT
    assert scene.one.unsettled == 0


async def test_whoever_ends_a_trial_takes_it_from_its_instance(scene: Scene) -> None:
    trial = scene.begin(0)
    epoch = trial.owned.lane.epoch
    assert scene.written() == [(epoch, b"0")]

    scene.group.trials.end(trial)

    assert scene.one.unsettled == 0
    assert scene.group.trials.lanes() == []
    assert scene.settle(0, epoch, scene.one) == 0
    assert scene.look(trial) == (TrialOutcome.NOT_HANDED_OUT, "the trial was ended")


async def test_no_trial_is_written_once_nobody_is_served_any_more(scene: Scene) -> None:
    trial = scene.begin(0, stress=True)
    # A newer configuration, which is not known here, may have taken the group off the whitelist.
    scene.hub.refuse_all(ConfigOutdatedError(1))

    assert scene.written() == []
    outcome = scene.look(trial)
    assert outcome is not None
    assert outcome[0] is TrialOutcome.NOT_HANDED_OUT
    assert (scene.one.unsettled, scene.one.outbox_bytes) == (0, 0)


async def test_a_trial_is_not_written_by_a_process_that_was_frozen(scene: Scene) -> None:
    scene.begin(0, stress=True)
    # Long enough to be struck off: nobody has waited for this broker with a new whitelist.
    scene.now += LIVE_SECONDS / 2

    assert scene.written() == []


async def test_a_trial_that_is_looked_after_is_written_however_late_its_instance_reads(scene: Scene) -> None:
    trial = scene.begin(0)
    for _ in range(9):
        scene.now += 0.5
        assert scene.look(trial) is None

    assert scene.written() == [(trial.owned.lane.epoch, b"0")]


async def test_a_trial_stays_with_its_instance_when_the_lane_of_its_queue_is_about_to_move(scene: Scene) -> None:
    trial = scene.begin(0)
    scene.hub.stored({QUEUE: [message_at(0)]})
    scene.group.pump(scene.now, PumpBudget())

    scene.group.take_back_unwritten(scene.group.lanes[QUEUE])

    assert scene.look(trial) is None
    assert scene.written() == [(trial.owned.lane.epoch, b"0")]


@pytest.mark.parametrize("looks_first", [True, False])
async def test_no_live_message_pays_for_an_instance_that_hangs_in_a_trial(scene: Scene, *, looks_first: bool) -> None:
    trial = scene.begin(7)
    scene.hub.stored({QUEUE: [message_at(0)]})
    scene.group.pump(scene.now, PumpBudget())
    assert [body for _, body in scene.written()] == [b"7", b"0"]

    # It says nothing from here on: neither that it has begun a message, nor anything else.
    scene.now += 5.5
    if looks_first:
        assert scene.look(trial) == (TrialOutcome.TIMED_OUT, "no answer in time")
        scene.group.trials.end(trial)
    scene.group.tick(scene.now)

    found = scene.group.lanes[QUEUE].lane.find(0)
    assert (found.stand, found.attempt) == (Stand.READY, 1)
