"""Messages that are skipped, or tried again at once, under load while brokers are killed: nothing else is lost."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack

import psycopg

from confdb.services import ConfigService
from confdb.store import ConfigStore
from msgbroker.contract.errors import MessageStateError
from msgconsole.operations.lanes.meant import WantedMessage
from msgconsole.operations.lanes.steering import Steer, steer_message
from msgconsole.operations.stores import Stores
from msgdb.store import MessageStore
from tests.chaos.load import Load, register
from tests.support.broker_fixtures import StartBrokerProcess
from tests.support.eventually import eventually

STEERED, OTHER = "SG_STEERED", "SG_OTHER"
_ON_THE_WAY_SECONDS = 2.0
"""What was handed out before may reach its handler so long after, on a busy machine."""


def stored(url: str) -> dict[tuple[int, int], str]:
    """Return the bodies that are stored, by their places."""
    with psycopg.connect(url) as connection:
        rows = connection.execute(
            "SELECT queue_id, queue_offset, convert_from(body, 'UTF8') FROM message ORDER BY stored_at, queue_offset"
        )
        return {(queue_id, offset): body for queue_id, offset, body in rows}


async def test_what_is_steered_while_brokers_are_killed_is_all_that_changes(
    broker_process: StartBrokerProcess, database_url: str, rounds: int
) -> None:
    await register(database_url, STEERED, OTHER)
    brokers = [broker_process() for _ in range(2)]
    skipped: dict[str, float] = {}
    async with AsyncExitStack() as stack:
        config = await stack.enter_async_context(ConfigStore.open(database_url))
        store = await stack.enter_async_context(MessageStore.open(database_url, pool_size=4))
        stores, service = Stores(config, store), ConfigService(config, "chaos")

        async def pause(*, paused: bool) -> None:
            version = (await service.subscriber_groups.update("default", STEERED, paused=paused)).version
            await service.wait_until_active(version)

        async def steer(place: tuple[int, int], body: str, what: Steer) -> None:
            wanted = WantedMessage(namespace="default", group=STEERED, queue_id=place[0], queue_offset=place[1])
            try:
                done = await steer_message(
                    stores,
                    wanted,
                    what,
                    actor="chaos",
                    reason="why",
                    wait_seconds=60,
                    on_waiting=lambda brokers: None,
                )
            except MessageStateError:
                # It was with an instance as the pause began, and is settled by now.
                return
            assert done.waiting_for == []
            if what is Steer.SKIP:
                skipped[body] = time.monotonic()

        async with Load.running([broker.address for broker in brokers], [STEERED, OTHER]) as load:
            await load.more(500)
            for _ in range(rounds):
                await pause(paused=True)
                before = stored(database_url).keys()
                await load.more(300)
                fresh = [(place, body) for place, body in stored(database_url).items() if place not in before]
                chosen = fresh[:: len(fresh) // 6]
                victim = brokers.pop(0)
                going = [
                    asyncio.create_task(steer(place, body, Steer.SKIP if number % 2 else Steer.RETRY_NOW))
                    for number, (place, body) in enumerate(chosen)
                ]
                await asyncio.sleep(0)
                victim.kill()
                await asyncio.gather(*going)
                brokers.append(broker_process(listen=victim.address))
                await pause(paused=False)
                await load.more(300)
            await load.stop_publishing()
            bodies = set(stored(database_url).values())
            seen = load.history.seen
            await eventually(lambda: bodies - skipped.keys() <= seen[STEERED], 60, what="all that was not skipped")
            await eventually(lambda: bodies <= seen[OTHER], 60, what="all, for the other group")

    check(load, skipped, database_url)


def check(load: Load, skipped: Mapping[str, float], url: str) -> None:
    """Check that what was skipped came no more, and is all that the group did not get."""
    assert skipped
    late = [
        sight
        for sight in load.history.sights
        if sight.group == STEERED and sight.at > skipped.get(sight.body, float("inf")) + _ON_THE_WAY_SECONDS
    ]
    assert not late, f"handed out after it was skipped: {late[:3]}"
    with psycopg.connect(url) as connection:
        dead = connection.execute("SELECT convert_from(body, 'UTF8'), reason, group_name FROM dead_letter").fetchall()
    assert sorted(dead) == sorted((body, "SKIPPED", STEERED) for body in skipped)
