"""What passes with time in a group: answers that do not come, retries that are due, reads to be tried again.

A tick looks only at the lanes that may wait for something. Only an event or a turn gives a lane something to wait for,
so whoever has one is watched from then on, until it waits for nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, Protocol

from msgbroker.server.alarms.set_aside import SetAside
from msgbroker.server.deliver.instances.blame import blame_first
from msgbroker.server.deliver.instances.instance import Instance
from msgbroker.server.deliver.instances.taken_back import tell_taken_back
from msgbroker.server.deliver.lanes.lane_group import LaneGroup
from msgbroker.server.deliver.lanes.owned_lane import OwnedLane
from msgbroker.server.deliver.lanes.work import LaneWork, Work

REST_SECONDS: Final = 1.0
"""How long an instance gets nothing that did not begin with messages in time: time for others to take them."""


class WaitingGroup(LaneGroup, Protocol):
    """The group whose lanes wait, with its instances, by their names: some of them rest."""

    instances: dict[str, Instance]

    def mark(self) -> None:
        """Hear that an instance may have room again."""
        ...

    def lanes_and_trials(self) -> Iterator[OwnedLane]:
        """Go through all that messages are handed out of."""
        ...


@dataclass(slots=True, eq=False, kw_only=True)
class LaneWaits:
    """The lanes of one group that may wait for a time or a read, and its instances that rest for a while."""

    group: WaitingGroup
    aside: SetAside[LaneWork]
    """Work on lanes that failed for unknown reasons."""
    _watched: dict[int, OwnedLane] = field(default_factory=dict)
    """Lanes that may wait for a time or a read, by queue_id: every other one has neither."""
    _resting: dict[str, float] = field(default_factory=dict)
    """Until when an instance rests, by its name."""

    def watch(self, owned: OwnedLane) -> None:
        """Look at a lane with each tick, as long as it waits for something."""
        self._watched[owned.lane.key.queue_id] = owned

    def forget_lane(self, queue_id: int) -> None:
        """Look no more at a lane that is not served any more."""
        self._watched.pop(queue_id, None)

    def forget_instance(self, name: str) -> None:
        """Forget that an instance rests which is not here any more."""
        self._resting.pop(name, None)

    def tick(self, now: float) -> None:
        """Take back what was not answered in time, see to what is due, and try again what could not be read."""
        if self._resting:
            self._end_rests(now)
        if not self._watched:
            return
        due = [owned for owned in list(self._watched.values()) if self._is_due(owned, now)]
        if due:
            for holder in self.group.instances.values():
                holder.give_back_overdue(now)
        for owned in due:
            with self.group.trusted(owned):
                self._expire(owned, now)

    def _is_due(self, owned: OwnedLane, now: float) -> bool:
        """Return whether the lane waits for a time that has come; watch it no longer where it waits for nothing."""
        wakeup: float | None = None
        with self.group.trusted(owned):
            wakeup = owned.lane.next_wakeup()
            if wakeup is None and not (owned.is_reading or owned.is_fetching):
                self._watched.pop(owned.lane.key.queue_id, None)
            if owned.is_read_failed:
                owned.is_read_failed = self._is_reading_aside(owned)
                self.group.activate(owned)
        return wakeup is not None and wakeup <= now

    def _is_reading_aside(self, owned: OwnedLane) -> bool:
        return any(self.aside.is_waiting(LaneWork(owned.lane.key, work)) for work in (Work.READING, Work.FETCHING))

    def _expire(self, owned: OwnedLane, now: float) -> None:
        self._note_silence(owned, now)
        instances = self.group.instances
        tell_taken_back(instances, owned.lane, now)
        for name, count in owned.lane.expire(now).items():
            instance = instances.get(name)
            if instance is not None:
                instance.let_go(count)
        self.group.touched(owned)
        self.group.activate(owned)

    def _note_silence(self, owned: OwnedLane, now: float) -> None:
        """Let others come first who do not leave messages unbegun, and count one of an instance that says nothing.

        It may hang in a message that kept it from saying so, as one would that blocks its event loop.
        """
        for name in owned.lane.late_and_not_begun(now):
            instance = self.group.instances.get(name)
            if instance is None:
                continue
            instance.is_resting = True
            self._resting[name] = now + REST_SECONDS
            # Reckoned as the deadline is: the difference of two times may come out a little less.
            if now >= instance.said_at + self.group.route.ack_timeout_seconds:
                blame_first((each.lane for each in self.group.lanes_and_trials()), name)
                # Once for each time that it should have said something.
                instance.said_at = now

    def _end_rests(self, now: float) -> None:
        for name in [name for name, until in self._resting.items() if until <= now]:
            del self._resting[name]
            self.group.instances[name].is_resting = False
            self.group.mark()
