"""Topics whose older queues cannot be sealed for the moment, because a COMMIT holds them: all others go on."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager

import psycopg
from structlog.testing import capture_logs

from confdb.services import ConfigService
from msgbroker.client import MessageCenter
from msgdb.append import sql
from tests.support.broker_fixtures import StartBroker
from tests.support.collecting import GROUP, PAID, TOPIC, register_group, register_topic, subscribed
from tests.support.eventually import eventually

MANY = [f"TP_MANY_{number}" for number in range(12)]


@contextmanager
def busy_holder(url: str, queue_ids: list[int], seconds: float) -> Iterator[None]:
    """Hold the append locks of these, in a session that is at work: as one whose COMMIT waits for its standby."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(sql.begin("", (), queue_ids).encode())
        pid = connection.info.backend_pid

        def work() -> None:
            try:
                connection.execute(f"SELECT pg_sleep({seconds})")
            except psycopg.Error:
                return

        thread = threading.Thread(target=work)
        thread.start()
        try:
            yield
        finally:
            with psycopg.connect(url, autocommit=True) as other:
                other.execute("SELECT pg_terminate_backend(%s)", (pid,))
            thread.join()


def queues_of_many(url: str) -> list[int]:
    with psycopg.connect(url) as connection:
        rows = connection.execute(
            "SELECT q.queue_id FROM queue q JOIN topic t USING (topic_id) WHERE t.name LIKE 'TP_MANY%'"
        ).fetchall()
    return [row[0] for row in rows]


@asynccontextmanager
async def grown(trade: ConfigService, url: str, seconds: float) -> AsyncIterator[None]:
    """Let the topics have more queues, while their former ones are held."""
    with busy_holder(url, queues_of_many(url), seconds):
        for topic in MANY:
            changed = await trade.topics.update("default", topic, queue_count=2)
        await trade.wait_until_active(changed.version)
        yield


async def prepare(trade: ConfigService) -> None:
    for topic in MANY:
        await register_topic(trade, topic, queue_count=1)
    await register_group(trade)
    await register_group(trade, "SG_MANY", topic=MANY[0])
    for topic in MANY[1:]:
        version = (await trade.subscriptions.create("default", "SG_MANY", topic, PAID)).version
    await trade.wait_until_active(version)


async def test_layouts_that_wait_cost_no_other_lane_its_lease(
    trade: ConfigService, database_url: str, start_broker: StartBroker
) -> None:
    # The default lease.
    broker = await start_broker(lease_seconds=8.0)
    await prepare(trade)
    with capture_logs() as logs:
        async with (
            subscribed(broker.address) as points,
            subscribed(broker.address, "SG_MANY", topic=MANY[0]),
            MessageCenter(broker.address) as center,
        ):
            await center.publish(TOPIC, PAID, "before")
            await points.until(1)
            group = next(g for g in broker.hub.groups.values() if g.route.name == GROUP)
            await eventually(lambda: group.lanes)
            async with grown(trade, database_url, 60):
                without_lanes = 0.0
                deadline = time.monotonic() + 16
                while time.monotonic() < deadline:
                    without_lanes += 0.1 * (not group.lanes)
                    await asyncio.sleep(0.1)
    lost = [entry for entry in logs if entry["event"] == "delivery.lease_passed"]
    assert not lost, f"{len(lost)} leases have passed; a group that has nothing to do with it: {without_lanes:.1f} s"


async def test_layouts_that_wait_hold_up_no_publisher_of_another_topic(
    trade: ConfigService, database_url: str, start_broker: StartBroker
) -> None:
    broker = await start_broker()
    await prepare(trade)
    async with AsyncExitStack() as stack:

        async def client() -> MessageCenter:
            return await stack.enter_async_context(MessageCenter(broker.address, publish_timeout_seconds=30.0))

        # A service for each topic.
        guilty = {topic: await client() for topic in MANY}
        innocent = await client()
        for topic, center in guilty.items():
            await center.publish(topic, PAID, "before")
        await innocent.publish(TOPIC, PAID, "before")
        async with grown(trade, database_url, 60):
            waiting = [asyncio.ensure_future(center.publish(topic, PAID, "now")) for topic, center in guilty.items()]
            longest = 0.0
            for _ in range(5):
                await asyncio.sleep(0.2)
                started_at = time.monotonic()
                await innocent.publish(TOPIC, PAID, "in between")
                longest = max(longest, time.monotonic() - started_at)
        await asyncio.wait(waiting, timeout=20)
    assert longest < 3.0
