"""A group that is behind in many lanes reads for a few of them at a time, and forgets none."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable

from msgbroker.engine.lane.lane import Lane
from msgbroker.engine.matching import Matcher
from msgbroker.engine.verdicts import Settlement, Verdict
from msgbroker.server.deliver.lanes.owned_lane import OwnedLane
from msgbroker.server.deliver.lanes.rules import lane_config
from msgbroker.server.deliver.reader import READS_AHEAD_MAX, ReadyBytes
from msgbroker.server.log.cache import Block, LogCacheConfig
from msgbroker.server.log.message import LogMessage
from msgdb.lanes.records import ClaimedLane, LaneKey
from tests.support.broker_builders import group_route, log_message, route
from tests.support.lane_builders import held
from tests.support.one_group import OneGroup

LANES = 40
EACH = 4
BODY = b"x" * 1_000


class Behind(OneGroup):
    """A group whose lanes must all read; the log cache has room for a quarter of their blocks."""

    def __init__(self, *, credit: int = 1) -> None:
        # Nothing is held ready but what is taken at once.
        super().__init__(credit=credit, ready=ReadyBytes(0))
        block_bytes = EACH * log_message(0, body=BODY).held_bytes
        self.cache._config = LogCacheConfig(blocks_bytes_max=LANES // 4 * block_bytes)
        self.read: list[int] = []
        for queue_id in range(1, LANES + 1):
            self.cache.learn_end(queue_id, EACH)
            if queue_id > 1:
                lane: Lane[LogMessage] = Lane(
                    ClaimedLane(LaneKey(1, "", queue_id), 1, 0, []), (), lane_config(group_route()), 0.0
                )
                matcher = Matcher(group_route(), route())
                self.group.add_lane(OwnedLane(lane, route(), matcher, lambda _: True, lease_until=1e9))

    async def _read(self, queue_id: int, offset: int, reader: Hashable) -> Block:
        self.read.append(queue_id)
        await asyncio.sleep(0)
        messages = [log_message(at, queue_id=queue_id, body=BODY) for at in range(EACH)]
        block = Block(0, EACH, messages, sum(message.held_bytes for message in messages))
        self.cache._keep((queue_id, 0), block)
        return block

    async def next_given(self) -> list[int]:
        """Return the queues of the next messages that the instance is given, and settle them."""
        while not self.pump():
            running = [task for task in self.tasks if not task.done()]
            assert running, "nothing is handed out, and nothing is on its way"
            await asyncio.gather(*running)
        # What else was asked for comes while the instance handles these.
        await asyncio.gather(*self.tasks)
        given = [batch.queue_id for batch in self.instance.outbox for _ in batch.wires]
        self.write()
        for queue_id in set(given):
            self.group.settle(self.instance, Settlement(held(0, 9_999, 1, queue_id=queue_id), Verdict.ACK), 1.0)
        return given


async def test_a_block_is_not_read_again_for_every_message_that_a_slow_instance_handles() -> None:
    one = Behind()
    handled = 0
    while handled < LANES // 2:
        handled += len(await one.next_given())

        assert len(one.read) <= 2 * handled + READS_AHEAD_MAX


async def test_all_lanes_take_turns_however_few_are_read_for_at_a_time() -> None:
    one = Behind()
    given: list[int] = []
    while len(given) < LANES * EACH:
        given += await one.next_given()

    assert sorted(given[:LANES]) == list(range(1, LANES + 1))
    assert sorted(given) == sorted([*range(1, LANES + 1)] * EACH)


async def test_a_lane_that_is_given_up_leaves_its_place_to_the_next() -> None:
    one = Behind()
    one.pump()
    reading = {owned.lane.key.queue_id for owned in one.group.lanes.values() if owned.is_reading}
    assert len(reading) == READS_AHEAD_MAX
    for queue_id in reading:
        one.group.remove_lane(queue_id)
    given: list[int] = []
    while len(given) < (LANES - READS_AHEAD_MAX) * EACH:
        given += await one.next_given()

    assert not reading.intersection(given)


async def test_nothing_is_read_for_lanes_that_go_together() -> None:
    one = Behind()
    one.pump()
    for queue_id in list(one.group.lanes):
        one.group.remove_lane(queue_id)
    one.pump()
    await asyncio.gather(*one.tasks)

    assert len(one.read) == READS_AHEAD_MAX


async def test_publishers_wait_for_what_is_to_be_read_once_there_is_a_place() -> None:
    one = Behind()
    other = route(2)
    last = one.group.lanes[LANES]
    last.topic = other
    one.pump()

    assert not last.is_reading
    assert one.group.is_behind({2})
    await asyncio.gather(*one.tasks)
