"""Conformance: handlers get bodies as their annotations ask for; of what cannot be read a dead letter says so."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from datetime import UTC, datetime

import pytest
from pydantic import BaseModel

from msgbroker.client import InvalidSettingError, Message
from tests.contract.harness import BlockingHarness, Harness, Letter, Recorder, prepare


class Order(BaseModel):
    number: int


@dataclass
class Sale:
    number: int
    sold_at: datetime


async def test_bodies_are_read_by_their_annotations(harness: Harness, caplog: pytest.LogCaptureFixture) -> None:
    await prepare(harness, "SG", "SG_SALES")
    seen: list[object] = []
    sale = Sale(1, datetime(2026, 5, 1, tzinfo=UTC))
    async with harness.center() as center:

        @center.subscriber(group="SG", topic="TP", event_code="EC")
        async def take_orders(orders: list[Order]) -> None:
            seen.extend(orders)

        @center.subscriber(group="SG", topic="TP", event_code="EC_OTHER")
        def take_sale(sale: Sale) -> None:
            seen.append(sale)

        await center.start()
        await center.publish("TP", "EC_OTHER", sale)
        await center.publish("TP", "EC", [Order(number=1), {"number": "2"}])
        receipt = await center.publish("TP", "EC", {"number": 1})
        letters = await harness.dead_letters("SG", 1)

    assert all(each in seen for each in (sale, Order(number=1), Order(number=2)))
    cause = "Input should be a valid array (the body is not of type list[Order])"
    assert letters == [Letter(b'{"number":1}', 1, "UNREADABLE_BODY", cause)]
    where = "group=SG topic=TP event_code=EC"
    said = [record for record in caplog.records if "handler." in record.getMessage()]
    assert [(record.levelno, record.getMessage()) for record in said] == [
        (
            logging.WARNING,
            f"handler.body_not_read: {where} message_id={receipt.message_id} attempt=1: {cause}",
        )
    ]


async def test_blocking_code_reads_and_publishes_them_alike(blocking_harness: BlockingHarness) -> None:
    await prepare(blocking_harness, "SG")
    recorder = Recorder()
    seen: list[list[Sale]] = []
    sales = [Sale(number, datetime(2026, 5, number, tzinfo=UTC)) for number in (1, 2)]
    center = blocking_harness.blocking_center()

    @center.subscriber(group="SG", topic="TP", event_code="EC")
    def take_sales(sales: list[Sale], message: Message) -> None:
        seen.append(sales)
        recorder.add(message)

    def take_batch(messages: list[Message]) -> None: ...

    with pytest.raises(InvalidSettingError, match=r"take_batch asks for list\[Message\] in 'messages'"):
        center.subscriber(group="SG", topic="TP")(take_batch)
    try:
        await asyncio.to_thread(center.start)
        await asyncio.to_thread(center.publish, "TP", "EC", b"no JSON")
        await asyncio.to_thread(center.publish, "TP", "EC", sales)
        letters = await blocking_harness.dead_letters("SG", 1)
        await blocking_harness.received(recorder, 1)
    finally:
        await asyncio.to_thread(center.close)

    assert seen == [sales]
    assert [(letter.body, letter.attempts, letter.reason) for letter in letters] == [(b"no JSON", 1, "UNREADABLE_BODY")]
