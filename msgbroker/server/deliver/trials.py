"""Trials: single messages that one instance is handed beside its group's lanes, to see what it makes of them.

Each has a lane of its own, which is of one offset, reads no log and is never persisted: no cursor moves by it. Its
epoch is one that no lane of the store has, so that all that is said of its message, with queue and epoch, finds this
lane and no other. Its time to answer, its extensions and the check of stress messages are those of any lane.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from confdb.routes import GroupRoute, TopicRoute
from msgbroker.engine.lane.lane import Lane
from msgbroker.engine.matching import Matcher
from msgbroker.engine.verdicts import Settlement, Verdict
from msgbroker.server.deliver.instances.instance import Instance
from msgbroker.server.deliver.instances.leaving import StressCheck
from msgbroker.server.deliver.instances.taken_back import tell_taken_back
from msgbroker.server.deliver.lanes.owned_lane import OwnedLane
from msgbroker.server.deliver.lanes.rules import lane_config
from msgbroker.server.log.message import LogMessage
from msgdb.jobs.trials import TrialOutcome
from msgdb.lanes.records import ClaimedLane, LaneKey

FIRST_TRIAL_EPOCH: Final = 1 << 62
"""Epochs of lanes are counted up from histories' floors, and never come near."""
_MEMBER: Final = "trial"
_LEASE_SECONDS: Final = 2.0
"""So long a trial may be written after it was begun, or was looked at."""
_BYTES_MAX: Final = 1 << 40

_OUTCOMES: Final[Mapping[Verdict, TrialOutcome]] = {
    Verdict.ACK: TrialOutcome.ACKNOWLEDGED,
    Verdict.RETRY: TrialOutcome.FAILED,
    Verdict.REJECT: TrialOutcome.REJECTED,
    Verdict.UNREADABLE: TrialOutcome.REJECTED,
    Verdict.RELEASE: TrialOutcome.GIVEN_BACK,
}
_GONE: Final = "the instance went away"
_NOT_WRITTEN: Final = "it was not written to the instance, which does not read, or the group may not see it any more"
_NOT_PERMITTED: Final = "it is a stress message, and the group is not on the whitelist for its type"
_LATE: Final = "no answer in time"
_OVER: Final = "the trial was ended"


class TrialEnd(NamedTuple):
    """What became of a message that was tried."""

    outcome: TrialOutcome
    error: str = ""


@dataclass(slots=True, eq=False)
class Trial:
    """One message that an instance has, or had."""

    owned: OwnedLane
    instance: Instance
    ended: asyncio.Future[TrialEnd] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    def end(self, outcome: TrialOutcome, error: str = "") -> None:
        """Note what became of it; what is heard later changes nothing."""
        if not self.ended.done():
            self.ended.set_result(TrialEnd(outcome, error))


class Trials:
    """The trials of one group at this broker."""

    def __init__(self) -> None:
        self._epochs = itertools.count(FIRST_TRIAL_EPOCH)
        self._by_epoch: dict[int, Trial] = {}

    def find(self, queue_id: int, epoch: int) -> OwnedLane | None:
        """Return the lane of a trial, as instances name it."""
        trial = self._by_epoch.get(epoch)
        return trial.owned if trial is not None and trial.owned.lane.key.queue_id == queue_id else None

    def lanes(self) -> Iterable[OwnedLane]:
        """Return the lanes of all trials."""
        return [trial.owned for trial in self._by_epoch.values()]

    def begin(
        self,
        instance: Instance,
        message: LogMessage,
        now: float,
        *,
        route: GroupRoute,
        topic: TopicRoute,
        may_hand_out: Callable[[LogMessage], bool],
    ) -> Trial:
        """Hand a message to an instance. Whoever begins it looks after it with `look`, and ends it."""
        epoch, offset = next(self._epochs), message.queue_offset
        claimed = ClaimedLane(LaneKey(route.group_id, _MEMBER, message.queue_id), epoch, offset, [])
        lane: Lane[LogMessage] = Lane(claimed, (), lane_config(route), now)
        # There is nobody else who could have it; but a process that was frozen does not know what is permitted by now.
        owned = OwnedLane(lane, topic, Matcher(route, topic), may_hand_out, now + _LEASE_SECONDS)
        lane.feed(offset, offset + 1, [message])
        check = StressCheck(may_hand_out)
        begun, place = instance.begun, instance.handed_count
        handout = lane.take(instance.name, 1, _BYTES_MAX, now, check, begun=begun, place=place)
        trial = self._by_epoch[epoch] = Trial(owned, instance)
        if handout.count:
            instance.give(message.queue_id, epoch, handout, owned, may_hand_out if check.has_passed else None)
        else:
            trial.end(TrialOutcome.NOT_HANDED_OUT, _NOT_PERMITTED)
        return trial

    def heard(self, settlement: Settlement) -> None:
        """Note an instance's verdict, which the trial's lane has found to be one."""
        trial = self._by_epoch.get(settlement.held.epoch)
        if trial is not None:
            trial.end(_OUTCOMES[settlement.verdict], settlement.error)

    def look(self, trial: Trial, now: float) -> None:
        """See whether its time is over, or it was never written."""
        lane, instance = trial.owned.lane, trial.instance
        if now >= trial.owned.lease_until:
            # Whatever waits since then was permitted too long ago.
            instance.give_back_lane(lane.key.queue_id, lane.epoch)
        trial.owned.lease_until = now + _LEASE_SECONDS
        tell_taken_back({instance.name: instance}, lane, now)
        if lane.late_and_not_begun(now):
            # Should it hang, then in this one: none of its live messages is to pay for that.
            instance.said_at = now
        if late := lane.expire(now)[instance.name]:
            instance.let_go(late)
            trial.end(TrialOutcome.TIMED_OUT, _LATE)
        if not lane.in_flight_count:
            trial.end(TrialOutcome.NOT_HANDED_OUT, _NOT_WRITTEN)

    def instance_gone(self, name: str) -> None:
        """Note that an instance is not here any more."""
        for trial in list(self._by_epoch.values()):
            if trial.instance.name == name:
                trial.end(TrialOutcome.FAILED, _GONE)

    def end(self, trial: Trial) -> None:
        """Let go of it; what the instance still has of it is its own no longer."""
        lane = trial.owned.lane
        if self._by_epoch.pop(lane.epoch, None) is not None and lane.in_flight_count and not trial.instance.is_closed:
            trial.instance.let_go(lane.in_flight_count)
            trial.instance.revoke(lane.key.queue_id, lane.epoch)
        trial.end(TrialOutcome.NOT_HANDED_OUT, _OVER)
