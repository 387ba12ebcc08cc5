"""A whole group that is paused and goes on while it is at work: within a second, and nothing is lost or comes twice."""

from __future__ import annotations

import asyncio

import pytest

from confdb.services import ConfigService
from msgbroker.client import Message, MessageCenter
from msgbroker.server.app import Broker
from tests.support.broker_fixtures import StartBroker
from tests.support.collecting import GROUP, PAID, TOPIC, all_settled, register_group, subscribed
from tests.support.eventually import eventually

_OTHER = "SG_OTHER"


@pytest.fixture
async def broker(start_broker: StartBroker) -> Broker:
    """Return a broker whose leases outlast whatever holds this machine up: what is lost with one would come twice."""
    return await start_broker(lease_seconds=30.0)


async def pause(trade: ConfigService, *, paused: bool) -> float:
    """Pause the group, or let it go on; return how many seconds it took until every broker did so."""
    loop = asyncio.get_running_loop()
    version = (await trade.subscriber_groups.update("default", GROUP, paused=paused)).version
    began_at = loop.time()
    await trade.wait_until_active(version)
    return loop.time() - began_at


def lanes_of(broker: Broker) -> list[tuple[int, int]]:
    """Return what each lane of the group has handed out, and what of it is in flight."""
    lanes = [owned.lane for group, owned in broker.hub.lanes() if group.route.name == GROUP]
    return [(lane.counters.handed_out, lane.in_flight_count) for lane in lanes]


async def test_a_group_is_paused_within_a_second_under_load_and_misses_nothing(
    trade: ConfigService, broker: Broker, center: MessageCenter
) -> None:
    await register_group(trade, unsettled_max=20)
    await register_group(trade, _OTHER)
    published = 0
    ended = asyncio.Event()

    async def go_on_publishing() -> None:
        nonlocal published
        while not ended.is_set():
            await asyncio.gather(
                *(center.publish(TOPIC, PAID, str(number)) for number in range(published, published + 20))
            )
            published += 20
            # No faster than the other group is given them: broker and clients share a process here.
            await other.until(published, 60)

    async def work(message: Message) -> None:
        await asyncio.sleep(0)

    seconds: list[float] = []
    async with subscribed(broker.address, act=work) as ours, subscribed(broker.address, _OTHER) as other:
        publishing = asyncio.create_task(go_on_publishing())
        for _ in range(3):
            await ours.until(len(ours.messages) + 20, 60)
            seconds.append(await pause(trade, paused=True))
            # What instances have is settled, though the group is paused; nothing more is handed out.
            await eventually(lambda: all(not in_flight for _, in_flight in lanes_of(broker)), what="none in flight")
            handed, had = lanes_of(broker), len(ours.messages)
            await other.until(len(other.messages) + 40, 60)
            assert lanes_of(broker) == handed
            assert len(ours.messages) == had
            await pause(trade, paused=False)
        ended.set()
        await publishing
        await ours.until(published, 60)
        await all_settled(broker)

    # Of a busy machine one of them is enough: brokers look at the configuration twice a second.
    assert min(seconds) < 1.0
    assert sorted(map(int, ours.bodies)) == list(range(published))
    assert {message.attempt for message in ours.messages} == {1}


async def test_attempts_that_come_due_in_a_pause_come_after_it(
    trade: ConfigService, broker: Broker, center: MessageCenter
) -> None:
    await register_group(trade, retry_schedule_seconds=(0.1, 0.1))

    async def fail_first(message: Message) -> None:
        if message.attempt == 1:
            raise ConnectionError("not yet")

    async with subscribed(broker.address, act=fail_first) as ours:
        await pause(trade, paused=True)
        await center.publish(TOPIC, PAID, "0")
        await pause(trade, paused=False)
        await ours.until(1)
        await pause(trade, paused=True)
        had = len(ours.messages)
        await center.publish(TOPIC, PAID, "1")
        assert len(ours.messages) == had
        await pause(trade, paused=False)
        await eventually(lambda: len(ours.messages) == 4, what="both, twice")
        await all_settled(broker)
    assert sorted((message.body, message.attempt) for message in ours.messages) == [
        (b"0", 1),
        (b"0", 2),
        (b"1", 1),
        (b"1", 2),
    ]
