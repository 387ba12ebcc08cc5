"""Brokers that are killed while they redrive, beside a load: each dead letter comes once more, and is counted once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack

import psycopg
import pytest

from confdb.services import ConfigService
from confdb.store import ConfigStore
from msgbroker.client import Message, MessageCenter
from msgconsole.operations.dead_letters.redrive import redrive
from msgconsole.operations.stores import Stores
from msgdb.dead_letters.wanted import WantedDeadLetters
from msgdb.jobs.listing import get_job
from msgdb.jobs.records import RATE_MAX
from msgdb.store import MessageStore
from tests.chaos.load import EVENT_CODE, TOPIC, Load, register
from tests.support.broker_fixtures import StartBrokerProcess
from tests.support.broker_processes import BrokerProcess
from tests.support.dead_letter_rows import bury
from tests.support.eventually import eventually
from tests.support.jobs import ended

BURIED = "SG_BURIED"
BUSY = "SG_BUSY"
FEW, SLOWLY = 3_000, 600.0


@pytest.mark.parametrize(
    "count, rate", [(FEW, SLOWLY), pytest.param(100_000, RATE_MAX, marks=pytest.mark.long)], ids=["few", "100,000"]
)
async def test_nothing_is_redriven_twice_or_left_out_when_brokers_are_killed_over_it(
    broker_process: StartBrokerProcess, database_url: str, rounds: int, count: int, rate: float
) -> None:
    await register(database_url, BURIED, BUSY)
    brokers = [broker_process() for _ in range(2)]
    redriven: Counter[str] = Counter()

    async def handle(message: Message) -> None:
        if message.redrives:
            redriven[str(message.message_id)] += 1

    async with AsyncExitStack() as stack:
        config = await stack.enter_async_context(ConfigStore.open(database_url))
        store = await stack.enter_async_context(MessageStore.open(database_url, pool_size=3))
        stores = Stores(config, store)
        group = await ConfigService(config, "chaos").subscriber_groups.get("default", BURIED)
        async with store.connection() as conn:
            await bury(conn, count, group_id=group.group_id, group_name=BURIED, topic=TOPIC, event_code=EVENT_CODE)
        center = await stack.enter_async_context(MessageCenter([broker.address for broker in brokers]))
        center.subscriber(group=BURIED, topic=TOPIC)(handle)
        await center.start()
        async with Load.running([broker.address for broker in brokers], [BUSY]) as load:
            wanted = WantedDeadLetters(namespace="default", group_id=group.group_id, is_open=True)
            begun = await redrive(stores, wanted, actor="chaos", reason="why", rate=rate)
            for number in range(rounds):
                # In the middle of a step as like as not: one is under way for most of the time.
                await done_so_far(stores, begun.job_id, count * (number + 1) // (rounds + 2))
                victim = await whose(database_url, brokers)
                brokers.remove(victim)
                victim.kill()
                brokers.append(broker_process(listen=victim.address))
                assert brokers[-1].address == victim.address
            status = await ended(stores, begun.job_id, 200)
            history = await load.finish()
        await eventually(lambda: len(redriven) == count, 60, what="all redriven messages handled")

    assert (status.state, status.total, status.done, status.failed, status.skipped) == ("DONE", count, count, 0, 0)
    with psycopg.connect(database_url) as connection:
        stored = connection.execute(
            "SELECT count(*), count(DISTINCT message_id) FROM message WHERE target_group IS NOT NULL AND redrives = 1"
        ).fetchone()
        noted = connection.execute("SELECT count(*), count(DISTINCT (queue_id, queue_offset)) FROM redrive").fetchone()
    assert stored == noted == (count, count)
    # The others never saw one of them, and lost nothing of their own.
    assert all(":" in sight.body for sight in history.sights)
    assert not history.missing([BUSY])
    assert not history.failed


async def done_so_far(stores: Stores, job_id: int, count: int) -> None:
    async def is_done() -> bool:
        async with stores.messages.connection() as conn:
            return (await get_job(conn, job_id)).done >= count

    await eventually(is_done, 60, what=f"{count} redriven")


async def whose(url: str, brokers: Sequence[BrokerProcess]) -> BrokerProcess:
    """Return the broker that is at the job."""

    def find() -> BrokerProcess | None:
        with psycopg.connect(url) as connection:
            row = connection.execute("SELECT b.address FROM job j JOIN broker b ON b.broker_id = j.owner").fetchone()
        return next((broker for broker in brokers if row is not None and broker.address == row[0]), None)

    found = await eventually(find, 30, what="a broker at the job")
    assert found is not None
    return found
