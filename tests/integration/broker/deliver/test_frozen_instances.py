"""A process that stands still for longer than its time to answer gets messages twice: it settles what it handled."""

from __future__ import annotations

import asyncio
import threading
import time

from confdb.services import ConfigService
from msgbroker.client import Message, MessageCenter, SyncMessageCenter
from msgdb.store import MessageStore
from tests.support.broker_fixtures import StartBrokerProcess
from tests.support.collecting import GROUP, PAID, dead_letters, register_group, register_topic
from tests.support.eventually import eventually

TOPIC = "TP_ONE_QUEUE"


async def test_after_a_freeze_a_message_whose_handler_failed_is_not_settled(
    config: ConfigService, broker_process: StartBrokerProcess, message_store: MessageStore
) -> None:
    broker = broker_process()
    await register_topic(config, TOPIC, queue_count=1)
    address = await asyncio.to_thread(lambda: broker.address)
    await register_group(config, topic=TOPIC, ack_timeout_seconds=2, retry_schedule_seconds=[0.5] * 10)
    handled: list[tuple[str, int, str]] = []
    calls: dict[str, int] = {}

    async def handle(message: Message) -> None:
        body = message.body.decode()
        calls[body] = calls.get(body, 0) + 1
        if body == "freeze" and calls[body] == 1:
            # The whole process stands still, as in a virtual machine that is paused.
            time.sleep(3.6)  # noqa: ASYNC251 - that is the point
        if body in {"slow-0", "slow-1"} and message.attempt == 1:
            if calls[body] == 1:
                await asyncio.sleep(0.3)
            raise ConnectionError("a service does not answer")
        if body == "fails" and message.attempt == 1:
            await asyncio.sleep(0.3)
            handled.append((body, message.attempt, "failed"))
            raise ConnectionError("a service does not answer")
        handled.append((body, message.attempt, "done"))

    bodies = ["slow-0", "slow-1", "good-0", "fails", "good-1"]

    def publish_meanwhile() -> None:
        with SyncMessageCenter(address) as publisher:
            publisher.publish(TOPIC, PAID, b"freeze")
            for future in [publisher.publish_soon(TOPIC, PAID, body) for body in bodies]:
                future.result()

    async with MessageCenter(address, drain_timeout_seconds=2.0) as center:
        center.subscriber(group=GROUP, topic=TOPIC, concurrency=2, credit=20)(handle)
        await center.start()
        thread = threading.Thread(target=publish_meanwhile)
        thread.start()
        try:
            await eventually(lambda: ("good-1", 1, "done") in handled, 20.0)

            async def is_made_good() -> bool:
                # By rule: it comes again as attempt 2, or (never here) it is a dead letter.
                return any(body == "fails" and what == "done" for body, _, what in handled) or bool(
                    await dead_letters(config, message_store)
                )

            await eventually(is_made_good, 15.0, what=f"'fails' handled or dead, not just dropped: {handled}")
        finally:
            thread.join()
