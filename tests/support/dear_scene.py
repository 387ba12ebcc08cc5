"""A hub with the helper process beside it, for the tests of expressions that are too dear for the event loop."""

from __future__ import annotations

import asyncio
import dataclasses
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

from confdb.routes import Headers, SubscriptionMode, SubscriptionRoute
from msgbroker.contract import limits
from msgbroker.server.deliver.expressions.dear import DearExpressions
from msgbroker.server.deliver.expressions.helper_frames import Answer, HelperBounds, Request
from msgbroker.server.deliver.expressions.helper_process import HelperConfig, HelperProcess
from msgbroker.server.deliver.group import GroupDelivery
from msgbroker.server.deliver.hub import DeliveryHub
from msgbroker.server.deliver.instances.instance import Instance
from msgbroker.server.deliver.lanes.owned_lane import OwnedLane
from msgbroker.server.log.cache import LogCache
from msgbroker.server.log.message import LogMessage
from msgdb.lanes.records import ClaimedLane, LaneKey
from msgdb.reports.alarms import Alarm, AlarmKind
from tests.support.broker_builders import board, group_route, log_message, route, snapshot, subscription
from tests.support.eventually import eventually

WANTED = 'headers.number.endsWith("0")'
QUEUE = 1


class Recording(HelperProcess):
    """A helper process that remembers what it was asked. Faults can be put in its way."""

    def __init__(self, config: HelperConfig | None = None) -> None:
        super().__init__(config or HelperConfig(HelperBounds(niceness=0), restart_seconds_min=0.0))
        self.asked: Counter[tuple[str, str]] = Counter()
        self.requests: list[int] = []
        self.is_open = asyncio.Event()
        self.is_open.set()
        self.fault: Callable[[Request], Exception | None] = lambda _: None

    async def ask(self, request: Request) -> Answer:
        self.requests.append(len(request.questions))
        await self.is_open.wait()
        fault = self.fault(request)
        if fault is not None:
            raise fault
        answer = await super().ask(request)
        for question, outcomes in zip(request.questions, answer.outcomes, strict=False):
            for number, _ in zip(question.expressions, outcomes, strict=False):
                self.asked[request.expressions[number], question.headers["number"]] += 1
        return answer


def never_here(headers: dict[str, str]) -> bool:
    raise AssertionError("evaluated on the event loop")


def dear(expression: str = WANTED, **fields: object) -> SubscriptionRoute:
    """Return a subscription that costs too much by its structure."""
    values: dict[str, object] = {
        "mode": SubscriptionMode.HEADER,
        "expression": expression,
        "predicate": never_here,
        "cost": limits.EXPRESSION_COST_MAX + 1,
    }
    return dataclasses.replace(subscription(), **{**values, **fields})  # type: ignore[arg-type]


class Brokerlike:
    """A hub, the loop with the helper process, and a clock for what is set aside."""

    def __init__(self, helper: Recording) -> None:
        self.seconds = 0.0
        self.helper = helper
        self.board = board()
        self.hub = DeliveryHub(LogCache(None), self.board)  # type: ignore[arg-type]
        self.hub.follow(snapshot(route()))
        self.expressions = DearExpressions(
            evaluations=self.hub.evaluations,
            cache=self.hub.cache,
            lanes=self.hub,
            helper=helper,
            board=self.board,
            now=lambda: self.seconds,
        )
        self.epoch = 0

    @classmethod
    @asynccontextmanager
    async def running(cls, helper: Recording | None = None) -> AsyncIterator[Brokerlike]:
        stop = asyncio.Event()
        brokerlike = cls(helper or Recording())
        running = asyncio.create_task(brokerlike.expressions.run(stop))
        try:
            yield brokerlike
            assert not running.done(), running
        finally:
            stop.set()
            await asyncio.gather(running, return_exceptions=True)
        assert brokerlike.hub.tasks._failure is None
        assert brokerlike.helper.pid is None

    def attach(self, group_id: int, *subscriptions: SubscriptionRoute) -> GroupDelivery:
        group = group_route(group_id, name=f"SG_{group_id}", subscriptions=subscriptions or (dear(),))
        return self.hub.attach(group, Instance("one", 10_000, 1_000_000))

    def open(self, group: GroupDelivery, queue_id: int = QUEUE, acked_offset: int = 0) -> OwnedLane:
        self.epoch += 1
        claimed = ClaimedLane(LaneKey(group.route.group_id, "", queue_id), self.epoch, acked_offset, [])
        self.hub.open_lane(group, route(), claimed, (), 1e9)
        return group.lanes[queue_id]

    def group(self, group_id: int, *subscriptions: SubscriptionRoute) -> GroupDelivery:
        group = self.attach(group_id, *subscriptions)
        self.open(group)
        return group

    def commit(self, count: int, queue_id: int = QUEUE, headers: Mapping[str, str] | None = None) -> list[LogMessage]:
        first = self.hub.cache.end_of(queue_id)
        messages = [log_message(offset, queue_id=queue_id) for offset in range(first, first + count)]
        for message in messages:
            message.headers = Headers({**(headers or {}), "number": f"{queue_id}-{message.queue_offset}"})
        self.hub.stored({queue_id: messages})
        return messages

    async def alarm(self, kind: AlarmKind) -> Alarm:
        await eventually(lambda: kind in {alarm.kind for alarm in self.board.standing}, 30)
        return next(alarm for alarm in self.board.standing if alarm.kind is kind)

    async def all_read(self, group: GroupDelivery, queue_id: int = QUEUE) -> None:
        end = self.hub.cache.end_of(queue_id)
        await eventually(lambda: group.lanes[queue_id].lane.next_offset == end, 30, what="all decided")


def given(group: GroupDelivery) -> int:
    (instance,) = group.instances.values()
    return instance.unsettled
