"""Groups that are reset under load while brokers are killed: what was skipped comes no more."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import NamedTuple

import psycopg

from confdb.store import ConfigStore
from msgconsole.operations.lanes.resetting import WantedReset, reset_group
from msgconsole.operations.stores import Stores
from msgdb.store import MessageStore
from tests.chaos.load import Load, register
from tests.support.broker_fixtures import StartBrokerProcess
from tests.support.eventually import eventually

MOVED, OTHER = "SG_MOVED", "SG_OTHER"
_ON_THE_WAY_SECONDS = 2.0
"""What was handed out before may reach its handler so long after, on a busy machine."""


class Skipped(NamedTuple):
    """From when until when nothing below these offsets may come."""

    since: float
    until: float
    targets: Mapping[int, int]


async def test_once_a_reset_is_acknowledged_nothing_that_was_skipped_is_handed_out(
    broker_process: StartBrokerProcess, database_url: str, rounds: int
) -> None:
    await register(database_url, MOVED, OTHER)
    brokers = [broker_process() for _ in range(2)]
    skipped: list[Skipped] = []
    async with AsyncExitStack() as stack:
        config = await stack.enter_async_context(ConfigStore.open(database_url))
        store = await stack.enter_async_context(MessageStore.open(database_url, pool_size=2))
        stores = Stores(config, store)

        async def reset(*, to_beginning: bool = False, to_end: bool = False) -> Mapping[int, int]:
            done = await reset_group(
                stores,
                WantedReset(namespace="default", group=MOVED, to_beginning=to_beginning, to_end=to_end),
                actor="chaos",
                reason="why",
                wait_seconds=60,
                on_waiting=lambda brokers: None,
            )
            assert done.waiting_for == []
            return {each.queue_id: each.to_offset for each in done.queues}

        async with Load.running([broker.address for broker in brokers], [MOVED, OTHER]) as load:
            await load.more(1_000)
            for _ in range(rounds):
                # Far behind, so that there is much to be skipped.
                await reset(to_beginning=True)
                victim = brokers.pop(0)
                going = asyncio.create_task(reset(to_end=True))
                await asyncio.sleep(0)
                victim.kill()
                targets = await going
                since = time.monotonic()
                brokers.append(broker_process(listen=victim.address))
                assert brokers[-1].address == victim.address
                await load.more(500)
                skipped.append(Skipped(since, time.monotonic(), targets))
            await load.stop_publishing()
            last_targets = skipped[-1].targets
            with psycopg.connect(database_url) as connection:
                rows = connection.execute("SELECT queue_id, queue_offset, convert_from(body, 'UTF8') FROM message")
                stored = {body: (queue_id, offset) for queue_id, offset, body in rows}
            wanted = {body for body, (queue_id, offset) in stored.items() if offset >= last_targets[queue_id]}
            seen = load.history.seen
            await eventually(lambda: wanted <= seen[MOVED], 60, what="all behind the last place")
            await eventually(lambda: stored.keys() <= seen[OTHER], 60, what="all, for the group that stayed")

    for since, until, targets in skipped:
        late = [
            sight
            for sight in load.history.sights
            if sight.group == MOVED
            and since + _ON_THE_WAY_SECONDS < sight.at < until
            and sight.place.queue_offset < targets[sight.place.queue_id]
        ]
        assert not late, f"handed out after it was skipped: {late[:3]}"
