"""A handler may fail in any way: its message is tried again by the schedule, and the client goes on."""

from __future__ import annotations

from confdb.services import ConfigService
from msgbroker.client import Message, MessageCenter
from msgbroker.server.app import Broker
from msgdb.store import MessageStore
from tests.support.collecting import GROUP, PAID, TOPIC, dead_letters, register_group
from tests.support.eventually import eventually


async def test_a_handler_in_a_thread_that_runs_out_of_an_iterator_fails_like_any_other(
    trade: ConfigService, broker: Broker, center: MessageCenter, message_store: MessageStore
) -> None:
    await register_group(trade, ack_timeout_seconds=60, retry_schedule_seconds=[0.1], attempts_max=2)
    handled: list[tuple[bytes, int]] = []

    def handle(message: Message) -> None:
        handled.append((message.body, message.attempt))
        if message.body == b"no such row":
            # The usual slip: no default, nothing found.
            next(row for row in [1, 2, 3] if row > 3)

    async with MessageCenter(broker.address, drain_timeout_seconds=1.0) as subscribing:
        subscribing.subscriber(group=GROUP, topic=TOPIC, concurrency=2)(handle)
        await subscribing.start()
        for _ in range(2):
            await center.publish(TOPIC, PAID, b"no such row")
        await center.publish(TOPIC, PAID, b"good")
        await eventually(lambda: (b"good", 1) in handled, 8.0, what=f"the good one is handled: {handled}")

        async def are_dead() -> bool:
            await broker.checkpointer.flush_once()
            return len(await dead_letters(trade, message_store)) == 2

        await eventually(are_dead, 8.0, what=f"dead letters after two attempts: {handled}")


async def test_a_body_of_brackets_is_rejected_and_not_tried_again(
    trade: ConfigService, broker: Broker, center: MessageCenter, message_store: MessageStore
) -> None:
    await register_group(trade)
    async with MessageCenter(broker.address, drain_timeout_seconds=1.0) as subscribing:

        @subscribing.subscriber(group=GROUP, topic=TOPIC)
        async def handle(order: dict) -> None:  # type: ignore[type-arg]
            pass

        await subscribing.start()
        await center.publish(TOPIC, PAID, b"[" * 4_000)

        async def is_dead() -> bool:
            await broker.checkpointer.flush_once()
            return [letter.summary.reason for letter in await dead_letters(trade, message_store)] == ["UNREADABLE_BODY"]

        await eventually(is_dead, 5.0)
