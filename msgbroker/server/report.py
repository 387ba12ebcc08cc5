"""The loop by which operators hear of a broker's work: what is at its limit each second, its counts each minute."""

from __future__ import annotations

import asyncio
import dataclasses
import math
from collections.abc import Callable
from typing import Final

from msgbroker.contract.limits import REDELIVERIES_PER_LANE_MAX
from msgbroker.server import clock
from msgbroker.server.alarms.board import AlarmBoard
from msgbroker.server.alarms.names import lane_alarm, reading_alarm
from msgbroker.server.deliver.group import GroupDelivery
from msgbroker.server.deliver.hub import DeliveryHub
from msgbroker.server.deliver.lanes.owned_lane import OwnedLane
from msgbroker.server.loops import pause
from msgbroker.server.publish.committer import Committer
from msgdb.reports.alarms import Alarm, AlarmKind

_LOOK_SECONDS: Final = 1.0
_COUNT_SECONDS: Final = 60.0
_COMMIT_SECONDS_MAX: Final = 5.0


class Report:
    """Raises alarms for what is at its limit, and has the counts said (`deliver.counters`)."""

    def __init__(
        self,
        hub: DeliveryHub,
        committer: Committer,
        board: AlarmBoard,
        now: Callable[[], float] = clock.now,
    ) -> None:
        self._hub = hub
        self._committer = committer
        self._board = board
        self._now = now
        self._count_at = now() + _COUNT_SECONDS

    async def run(self, stop: asyncio.Event) -> None:
        """Look after the lanes, and count, until *stop* is set."""
        while not stop.is_set():
            self.watch_once()
            if self._now() >= self._count_at:
                self.count_once()
            await pause(stop, _LOOK_SECONDS)

    def count_once(self) -> bool:
        """Say what was counted since the start, if anything changed; return whether it did."""
        self._count_at = self._now() + _COUNT_SECONDS
        return self._hub.counters.say(self.totals())

    def totals(self) -> dict[str, int]:
        """Return all that was counted since the start."""
        committed = dataclasses.asdict(self._committer.counters)
        return self._hub.counters.totals((owned for _, owned in self._hub.lanes()), committed)

    def watch_once(self) -> None:
        """Raise an alarm for what is at its limit: lanes that read no further, dear expressions, commits that wait."""
        full = [
            _redeliveries_full(group, owned) for group, owned in self._hub.lanes() if owned.lane.has_redeliveries_full
        ]
        self._board.replace(AlarmKind.REDELIVERIES_FULL, full)
        self._board.replace(AlarmKind.EXPRESSION_SLOW, slow_expressions(self._hub))
        self._watch_commits()

    def _watch_commits(self) -> None:
        seconds = self._committer.in_flight_seconds
        if seconds >= _COMMIT_SECONDS_MAX:
            detail = (
                f"a transaction has taken more than {_COMMIT_SECONDS_MAX:g} s: is a standby away, or the disk slow?"
            )
            self._board.raise_alarm(Alarm(AlarmKind.COMMIT_WAITS, "storing", detail))
        else:
            self._board.clear(AlarmKind.COMMIT_WAITS, "storing")


def _redeliveries_full(group: GroupDelivery, owned: OwnedLane) -> Alarm:
    detail = f"{REDELIVERIES_PER_LANE_MAX} messages wait for another attempt: no more is read until some are settled"
    return lane_alarm(AlarmKind.REDELIVERIES_FULL, group.route, owned.topic, owned.lane.key.queue_id, detail=detail)


def slow_expressions(hub: DeliveryHub) -> list[Alarm]:
    """Return an alarm for each group and topic whose expressions are evaluated in the helper process."""
    alarms: list[Alarm] = []
    for group_id, topic_id in hub.evaluations.slow():
        group = hub.groups.get(group_id)
        lanes = [] if group is None else [owned for owned in group.lanes.values() if owned.topic.topic_id == topic_id]
        if group is None or not lanes or not lanes[0].matcher.expressions:
            continue
        measured = hub.evaluations.measured(lanes[0])
        if measured.is_slow:
            detail = _slow_detail(measured.seconds_each, hub.evaluations.problem)
            alarms.append(reading_alarm(AlarmKind.EXPRESSION_SLOW, group.route, lanes[0].topic, detail))
    return alarms


def _slow_detail(seconds: float, problem: str) -> str:
    # Rounded to powers of two: an alarm that says something new is written again.
    takes = (
        f"an evaluation takes about {2 ** round(math.log2(seconds * 1_000)):g} ms" if seconds else "not measured yet"
    )
    return f"{takes}: done in a process of its own, and so more slowly{'; ' if problem else ''}{problem}"
