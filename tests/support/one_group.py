"""One group of a broker, its lane and an instance, with the log and the hub played by the test."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Hashable, Mapping
from typing import Any
from unittest.mock import patch

from msgbroker.engine.lane.lane import Lane
from msgbroker.engine.matching import Matcher
from msgbroker.engine.verdicts import Settlement, Verdict
from msgbroker.server import clock
from msgbroker.server.alarms.set_aside import SetAside
from msgbroker.server.deliver.group import GroupDelivery
from msgbroker.server.deliver.instances.instance import Instance
from msgbroker.server.deliver.lanes.owned_lane import OwnedLane
from msgbroker.server.deliver.lanes.rules import lane_config
from msgbroker.server.deliver.lanes.unpersisted import UnpersistedLanes
from msgbroker.server.deliver.lanes.work import LaneWork
from msgbroker.server.deliver.pump import PumpBudget, Pumped
from msgbroker.server.deliver.reader import ReadyBytes
from msgbroker.server.edge.subscribing.notices import encode_notice
from msgbroker.server.log.cache import Block, LogCache
from msgbroker.server.log.message import NO_HEADERS, LogMessage
from msgdb.lanes.records import ClaimedLane, LaneKey
from msgdb.reports.alarms import Alarm, AlarmKind
from tests.support.broker_builders import board, group_route, log_message, route
from tests.support.lane_builders import held

QUEUE = 1


class OneGroup:
    """A group with one lane and one instance; its cache's reads are answered by the test."""

    def __init__(self, acked_offset: int = 0, *, credit: int = 100, ready: ReadyBytes | None = None) -> None:
        self.cache = LogCache(None)  # type: ignore[arg-type]
        self.cache.read = self._read  # type: ignore[method-assign]
        self.tasks: list[asyncio.Task[None]] = []
        self.asked: asyncio.Queue[tuple[int, asyncio.Future[Block]]] = asyncio.Queue()
        self.board = board()
        self.aside: SetAside[LaneWork] = SetAside(
            self.board, lambda unit: Alarm(AlarmKind.LANE_SET_ASIDE, unit.work, "")
        )
        self.failed: list[Exception] = []
        self.group = GroupDelivery(
            route=group_route(),
            marks=self,
            owner=self,
            unpersisted=UnpersistedLanes(),
            cache=self.cache,
            tasks=self,
            aside=self.aside,
            ready=ready or ReadyBytes(),
        )
        self.instance = Instance("one", credit, 1_000_000, encode=encode_notice)
        self.group.attach(self.instance, 0.0)
        lane: Lane[LogMessage] = Lane(
            ClaimedLane(LaneKey(1, "", QUEUE), 1, acked_offset, []), (), lane_config(group_route()), 0.0
        )
        self.lane = lane
        matcher = Matcher(group_route(), route())
        self.group.add_lane(OwnedLane(lane, route(), matcher, lambda _: True, lease_until=1e9))

    def pump(self) -> int:
        self.group.pump(1.0, PumpBudget())
        return sum(len(batch.wires) for batch in self.instance.outbox)

    def is_behind(self) -> bool:
        turns = self.group._turns
        takers, turns.takers = turns.takers, None  # type: ignore[assignment]
        assert not self.group.is_behind({2}), "with a topic it does not read, however many instances it has"
        turns.takers = takers
        return self.group.is_behind({1, 2})

    def commit(self, first: int, count: int, body: bytes = b"body", headers: Mapping[str, str] = NO_HEADERS) -> None:
        self.cache.add(
            {QUEUE: [log_message(offset, body=body, headers=headers) for offset in range(first, first + count)]}
        )
        self.group.queue_went_on(QUEUE)

    def settle_all(self, verdict: Verdict = Verdict.ACK) -> int:
        count = self.group.settle(self.instance, Settlement(held(0, 9_999, 1, queue_id=QUEUE), verdict, 0.0), 1.0)
        self.write()
        return count

    def write(self, now: float = 1.0) -> int:
        """Let all that waits be written; return how many messages it was."""
        with patch.object(clock, "now", lambda: now):
            return sum(len(batch.wires) for batch in self.instance.take_batches())

    def mark(self, group: Pumped) -> None:
        """The test pumps it when it likes."""

    def lane_failed(self, owned: OwnedLane, error: Exception) -> None:
        self.failed.append(error)

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        self.tasks.append(asyncio.ensure_future(work))

    async def _read(self, queue_id: int, offset: int, reader: Hashable) -> Block:
        answer: asyncio.Future[Block] = asyncio.get_running_loop().create_future()
        self.asked.put_nowait((offset, answer))
        return await answer
