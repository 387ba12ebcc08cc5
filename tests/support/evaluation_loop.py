"""An event loop's turns, for expressions that are evaluated on it."""

from __future__ import annotations

import asyncio
import dataclasses
from collections import Counter
from collections.abc import Callable
from typing import Any

from confdb.routes import GroupRoute, SubscriptionMode
from msgbroker.server.deliver.expressions.evaluations import Evaluations
from msgbroker.server.deliver.expressions.turns import TURN_SECONDS, EvaluationTurns
from msgbroker.server.deliver.group import GroupDelivery
from msgbroker.server.deliver.hub import DeliveryHub
from msgbroker.server.deliver.instances.instance import Instance
from msgbroker.server.log.cache import LogCache
from msgdb.lanes.records import ClaimedLane, LaneKey
from tests.support.broker_builders import board, group_route, log_message, route, snapshot

ONE_MESSAGE = 0.000_1


class Loop:
    """A hub whose expressions take as long as they say, and turns that the test takes."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.evaluated: Counter[tuple[int, str]] = Counter()
        self.hub = DeliveryHub(LogCache(None), board())  # type: ignore[arg-type]
        self.hub.evaluations = Evaluations(self.now, self.now)
        self.hub.pump._turns = EvaluationTurns(now=self.now)
        self.hub.follow(snapshot(route()))
        self.most_in_a_turn = 0.0

    def now(self) -> float:
        return self.seconds

    def predicate(self, group_id: int, takes: float) -> Callable[[dict[str, str]], bool]:
        def matches(headers: dict[str, str]) -> bool:
            self.seconds += takes
            self.evaluated[group_id, headers["number"]] += 1
            return int(headers["number"]) % 10 == 0

        return matches

    def header_group(self, group_id: int, takes: float = ONE_MESSAGE, **fields: Any) -> GroupDelivery:
        base = group_route()
        subscription = dataclasses.replace(
            base.subscriptions[0],
            mode=SubscriptionMode.HEADER,
            expression="an expression",
            predicate=self.predicate(group_id, takes),
            **fields,
        )
        return self.attach(dataclasses.replace(base, group_id=group_id, subscriptions=(subscription,)))

    def direct_group(self, group_id: int) -> GroupDelivery:
        return self.attach(dataclasses.replace(group_route(), group_id=group_id))

    def attach(self, group: GroupRoute) -> GroupDelivery:
        delivery = self.hub.attach(group, Instance("one", 10_000, 1_000_000))
        for queue_id in (1, 2):
            claimed = ClaimedLane(LaneKey(group.group_id, "", queue_id), 1, 0, [])
            self.hub.open_lane(delivery, route(), claimed, (), 1e9)
        return delivery

    def commit(self, count: int, queue_id: int = 1) -> None:
        first = self.hub.cache.end_of(queue_id)
        messages = [log_message(offset, queue_id=queue_id) for offset in range(first, first + count)]
        for message in messages:
            message.headers = {"number": f"{queue_id}0{message.queue_offset}"}
        self.hub.stored({queue_id: messages})

    async def turn(self) -> float:
        """Take a turn of the event loop; return how long expressions were evaluated in it."""
        started_at = self.seconds
        self.hub.pump._schedule()
        await asyncio.sleep(0)
        self.most_in_a_turn = max(self.most_in_a_turn, self.seconds - started_at)
        return self.seconds - started_at

    async def turns(self, pause_seconds: float = TURN_SECONDS) -> int:
        """Take turns until nothing is left to evaluate; return how many it took."""
        for count in range(1, 10_000):
            spent = await self.turn()
            self.seconds += pause_seconds
            if not spent and not self.hub.pump._turns._line:
                return count
        raise AssertionError("there is always more")
