"""An application as its author's `mypy --strict` sees it: checked against the installed client, and never run.

What is refused says so: an ignored error that is none would be one (`--strict` warns of it).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypedDict, assert_type
from uuid import UUID

from msgbroker.client import (
    BodyTooLargeError,
    Message,
    MessageCenter,
    MessageCenterError,
    OutgoingMessage,
    PublishTimeoutError,
    Receipt,
    Reject,
    Release,
    RetryAfter,
    SyncMessageCenter,
    UnavailableError,
)
from msgbroker.client.testing import DeadLetter, InMemoryCenter, SyncInMemoryCenter


@dataclass
class Order:
    number: int


class Row(TypedDict):
    number: int


center = MessageCenter("127.0.0.1:7400", namespace="default", on_unavailable="raise", credentials=None)


@center.subscriber(group="SG_POINTS", topic="TP_TRADE", event_code="EC_PAID", concurrency=8, timeout_seconds=20)
async def take_message(message: Message) -> int:
    assert_type(message.body, bytes)
    assert_type(message.headers, dict[str, str])
    assert_type(message.message_id, UUID)
    assert_type(message.stored_at, datetime)
    assert_type(message.text(), str)
    assert_type(message.json(), Any)
    if message.attempt > 3:
        raise Reject("too often")
    raise RetryAfter(2.5, "not yet") if message.key else Release(5)


@center.subscriber(group="SG_POINTS", topic="TP_TRADE")
async def take_body(order: dict[str, Any], message: Message) -> None: ...


@center.subscriber(group="SG_STOCK", topic="TP_TRADE", body=list[Order])
def take_orders(orders: list[Order]) -> str:
    return str(len(orders))


# A handler is what it was.
async def call_them(message: Message) -> None:
    assert_type(await take_message(message), int)
    assert_type(take_orders([Order(1)]), str)
    await take_body({}, message)
    await take_body(message)  # type: ignore[call-arg, arg-type]
    take_orders([1])  # type: ignore[list-item]


center.subscriber(group="SG")  # type: ignore[call-arg]
center.subscriber(group="SG", topic="TP", concurency=3)  # type: ignore[call-arg]
center.subscriber(group="SG", topic="TP", concurrency="3")  # type: ignore[arg-type]
MessageCenter(publish_timeout=3)  # type: ignore[call-arg]
MessageCenter(on_unavailable="retry")  # type: ignore[arg-type]


async def publish() -> None:
    async with MessageCenter(["a:1", "b:2"], publish_timeout_seconds=None) as opened:
        assert_type(opened, MessageCenter)
        receipt = await opened.publish("TP_TRADE", "EC_PAID", {"order": 1}, headers={"region": "hz"}, key="order-1")
        assert_type(receipt, Receipt)
        assert_type((receipt.message_id, receipt.queue_offset, receipt.stored_at), tuple[UUID, int, datetime])
        row: Row = {"number": 1}
        for body in (b"bytes", "text", [Order(1)], row, Order(1)):
            await opened.publish("TP_TRADE", "EC_PAID", body)
        await opened.publish("TP_TRADE", "EC_PAID", row)
        await opened.publish("TP_TRADE", "EC_PAID", Order(1))
        await opened.publish("TP_TRADE", "EC_PAID", 3)  # type: ignore[arg-type]
        assert_type(opened.publish_soon("TP_TRADE", "EC_PAID", b""), asyncio.Future[Receipt])
        assert_type(opened.publish_one_way("TP_TRADE", "EC_PAID"), bool)
        answers = await opened.publish_many(OutgoingMessage("TP_TRADE", "EC_PAID", [number]) for number in range(3))
        assert_type(answers, list[Receipt | MessageCenterError])
        await opened.flush()
        await opened.run()


async def fail() -> None:
    try:
        await center.publish("TP_TRADE", "EC_PAID", bytes(9_000), timeout_seconds=2.5)
    except BodyTooLargeError as error:
        assert_type(error.reason, str)
        assert_type(error.message, str)
        assert_type(error.retryable, bool)
        assert_type((error.body_bytes, error.body_bytes_max, error.topic), tuple[int, int, str])
    except (PublishTimeoutError, UnavailableError) as error:
        assert_type((error.reason, error.may_be_stored), tuple[str, bool])


def publish_blocking() -> None:
    with SyncMessageCenter("127.0.0.1:7400") as opened:
        assert_type(opened, SyncMessageCenter)
        assert_type(opened.publish("TP_TRADE", "EC_PAID", "text"), Receipt)
        assert_type(opened.publish_soon("TP_TRADE", "EC_PAID", "text"), Future[Receipt])
        opened.run()


def attach_handlers(to: MessageCenter) -> None:
    @to.subscriber(group="SG_POINTS", topic="TP_TRADE", register=True)
    async def handle(message: Message) -> None: ...

    handlers: list[Callable[[Message], Awaitable[None]]] = [handle]
    handlers.clear()


async def test_in_memory() -> None:
    async with InMemoryCenter(strict=True) as memory:
        attach_handlers(memory)
        memory.register_topic("TP_TRADE", "EC_PAID", queue_count=2)
        await memory.settle_all()
        assert_type(memory.dead_letters, list[DeadLetter])
        assert_type([letter.reason for letter in memory.dead_letters], list[str])
    with SyncInMemoryCenter() as blocking:
        blocking.settle_all()
        assert_type(blocking.published, list[Message])
