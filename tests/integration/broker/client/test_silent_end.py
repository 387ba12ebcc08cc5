"""No task of the client ends in silence: whatever ends it, `run` ends with it."""

from __future__ import annotations

import asyncio

from confdb.services import ConfigService
from msgbroker.client import Message, MessageCenter
from msgbroker.server.app import Broker
from tests.support.collecting import GROUP, TOPIC, register_group
from tests.support.eventually import eventually


async def test_run_ends_when_the_groups_task_was_cancelled_by_somebody(trade: ConfigService, broker: Broker) -> None:
    await register_group(trade)
    async with MessageCenter(broker.address, drain_timeout_seconds=0.5) as subscribing:

        @subscribing.subscriber(group=GROUP, topic=TOPIC)
        async def handle(_: Message) -> None:
            pass

        running = asyncio.ensure_future(subscribing.run())
        await eventually(lambda: broker.grpc_door.subscriber._instances)
        await asyncio.sleep(0.2)
        # As code does that cleans up "all tasks but mine".
        (task,) = [task for task in asyncio.all_tasks() if task.get_name() == f"subscriber {GROUP}"]
        task.cancel()
        await eventually(lambda: not broker.grpc_door.subscriber._instances)
        done, _ = await asyncio.wait([running], timeout=5)
        running.cancel()
        await asyncio.wait([running])

    assert done, "nothing is subscribed any more, and run() waits for ever"
