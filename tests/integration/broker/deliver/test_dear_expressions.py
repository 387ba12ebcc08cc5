"""Expressions that are dear: their own group gets that topic slower, and nobody else notices."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import psutil
import psycopg
import pytest

from confdb.services import ConfigService
from msgbroker.client import ExpressionTooCostlyError, MessageCenter, OutgoingMessage
from msgbroker.server.app import Broker
from msgbroker.server.deliver.expressions import helper as helper_program
from msgdb.reports.alarms import AlarmKind, list_alarms
from msgdb.store import MessageStore
from tests.support.broker_fixtures import StartBroker, StartBrokerProcess
from tests.support.collecting import (
    GROUP,
    PAID,
    TOPIC,
    register_group,
    register_topic,
    subscribed,
)
from tests.support.eventually import eventually

NESTED = "headers.exists(a, headers.exists(b, " + " || ".join(f'a + b == "{n}"' for n in range(100)) + "))"
DEAR = f'{NESTED} || headers.number.endsWith("0")'
"""Makes a hundred comparisons for each pair of headers: 40 ms a message. Every tenth matches."""
HEADERS = {f"header-{number:02}": "v" * 50 for number in range(59)}

# As one that was registered before there was a limit.
_REGISTERED_BEFORE = """
UPDATE subscription SET mode = 'HEADER', expression = %s
WHERE topic_id = (SELECT topic_id FROM topic WHERE name = %s)
"""
_VERSION = "UPDATE config_version SET version = version + 1 RETURNING version"


def make_dear(database_url: str, expression: str = DEAR, topic: str = TOPIC) -> int:
    """Give the subscriptions to a topic an expression that would be refused; return the version from then on."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(_REGISTERED_BEFORE, (expression, topic))
        (version,) = connection.execute(_VERSION).fetchone() or (0,)
    return int(version)


async def publish_backlog(address: str, count: int) -> None:
    """Publish what the dear expression is to be evaluated on."""
    async with MessageCenter(address) as center:
        await center.publish_many(
            OutgoingMessage(TOPIC, PAID, str(number), headers={**HEADERS, "number": str(number)})
            for number in range(count)
        )


@asynccontextmanager
async def neighbour(address: str) -> AsyncIterator[list[float]]:
    """Publish to a topic of another tenant all the time; gives how long each took."""
    seconds: list[float] = []

    async def publish() -> None:
        async with MessageCenter(address, namespace="neighbour") as center:
            while True:
                started_at = time.monotonic()
                await center.publish("TP_OTHER", "EC_SENT", "hello")
                seconds.append(time.monotonic() - started_at)

    publishing = asyncio.create_task(publish())
    try:
        yield seconds
        assert not publishing.done()
    finally:
        publishing.cancel()
        await asyncio.gather(publishing, return_exceptions=True)


def helpers_of(pid: int) -> list[int]:
    """Return the helper processes of a broker."""
    return [child.pid for child in psutil.Process(pid).children() if helper_program.__name__ in child.cmdline()]


def is_running(pid: int) -> bool:
    """Return whether a process runs that is not ours to wait for."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


async def test_registering_again_what_was_registered_before_there_was_a_limit_changes_nothing(
    config: ConfigService, broker: Broker, database_url: str
) -> None:
    await register_topic(config)
    await register_group(config)
    make_dear(database_url)
    async with MessageCenter(broker.address) as center:
        assert await center.register(TOPIC, PAID, group=GROUP, expression=DEAR) == []
        for group, expression in ((GROUP, f"!({DEAR})"), ("SG_OTHER", DEAR)):
            with pytest.raises(ExpressionTooCostlyError):
                await center.register(TOPIC, PAID, group=group, expression=expression)


@pytest.mark.timeout(300)
async def test_a_dear_expression_costs_its_own_group_time_and_nobody_else(
    config: ConfigService, broker_process: StartBrokerProcess, database_url: str
) -> None:
    await register_topic(config, queue_count=1)
    await config.namespaces.create("neighbour")
    await config.topics.create("neighbour", "TP_OTHER", is_open=True)
    await register_group(config)
    make_dear(database_url)
    broker = broker_process(expression_niceness=0)
    await publish_backlog(broker.address, 100)
    async with neighbour(broker.address) as seconds, subscribed(broker.address) as got:
        await got.until(10, 250)
        published = len(seconds)
    said = broker.log

    assert got.bodies == [str(number) for number in range(0, 100, 10)]
    # On the event loop it would be four seconds in one go.
    assert max(seconds) < 2.0
    assert published > 20
    assert "delivery.lease_passed" not in said
    assert "cluster.lane_lost" not in said


@pytest.mark.timeout(300)
async def test_every_message_is_decided_once_whatever_happens_to_the_helper(
    config: ConfigService, broker_process: StartBrokerProcess, database_url: str
) -> None:
    await register_topic(config)
    await register_group(config)
    make_dear(database_url, f'{NESTED} || headers.number != "x"')
    broker = broker_process(expression_niceness=0)
    await publish_backlog(broker.address, 40)
    killed = 0
    async with subscribed(broker.address) as got:
        while len(got.messages) < 40:
            if killed < 3 and len(got.messages) >= 10 * killed:
                for pid in helpers_of(broker.pid):
                    os.kill(pid, signal.SIGKILL)
                    killed += 1
            await asyncio.sleep(0.02)

    assert Counter(got.bodies) == Counter(str(number) for number in range(40))
    assert broker.process.poll() is None
    assert killed == 3


@pytest.mark.parametrize("end", ["kill", "terminate"])
async def test_the_helper_ends_with_its_broker(
    config: ConfigService, broker_process: StartBrokerProcess, database_url: str, end: str
) -> None:
    await register_topic(config)
    await register_group(config)
    make_dear(database_url)
    broker = broker_process(expression_niceness=0)
    await publish_backlog(broker.address, 200)
    async with subscribed(broker.address):
        (helper,) = await eventually(lambda: helpers_of(broker.pid), 30)
        if end == "kill":
            broker.kill()
        else:
            broker.terminate()
            assert await asyncio.to_thread(broker.process.wait, 15) == 0, broker.log

    await eventually(lambda: not is_running(helper), 30)


async def test_the_other_topics_of_the_group_notice_nothing(
    config: ConfigService, broker: Broker, database_url: str
) -> None:
    await register_topic(config)
    await register_topic(config, "TP_OTHER")
    await register_group(config)
    await config.subscriptions.create("default", GROUP, "TP_OTHER", PAID, expression='headers.number == "1"')
    await config.wait_until_active(make_dear(database_url))
    # Nobody is asked: whatever needs the helper waits.
    broker.hub.evaluations.line.take = lambda: None  # type: ignore[method-assign]
    await publish_backlog(broker.address, 20)
    async with MessageCenter(broker.address) as center:
        got: list[str] = []
        for topic in (TOPIC, "TP_OTHER"):

            @center.subscriber(group=GROUP, topic=topic)
            async def remember(body: str) -> None:
                got.append(body)

        await center.start()
        await center.publish("TP_OTHER", PAID, "other", headers={"number": "1"})
        await eventually(lambda: got)

    assert got == ["other"]


async def test_a_dear_expression_is_an_alarm_that_goes_with_the_subscription(
    config: ConfigService, start_broker: StartBroker, message_store: MessageStore, database_url: str
) -> None:
    broker = await start_broker(expression_niceness=0)
    await register_topic(config)
    await register_group(config)
    await config.subscriptions.create("default", GROUP, TOPIC, "EC_REFUNDED")
    await config.wait_until_active(make_dear(database_url))

    async def standing() -> list[tuple[str, str]]:
        async with message_store.connection() as conn:
            return [(row.kind, row.thing) for row in await list_alarms(conn)]

    await publish_backlog(broker.address, 10)
    async with subscribed(broker.address) as got:
        await got.until(1, 60)
        await eventually(standing, 30)
        assert await standing() == [(AlarmKind.EXPRESSION_SLOW, f"group {GROUP}, topic {TOPIC}")]
        for event_code in (PAID, "EC_REFUNDED"):
            await config.subscriptions.delete("default", GROUP, TOPIC, event_code)
        async with asyncio.timeout(30):
            while await standing():
                await asyncio.sleep(0.05)
