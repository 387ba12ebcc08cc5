"""A receipt always comes, or an error, within the publish timeout; and waiting costs nothing."""

from __future__ import annotations

import asyncio
import time

import psycopg
import pytest

from confdb.services import ConfigService
from msgbroker.client import MessageCenter, PublishTimeoutError, Receipt
from msgbroker.server.app import Broker
from tests.support.collecting import PAID, TOPIC


async def test_publishers_that_take_turns_at_the_only_place_all_get_through(
    trade: ConfigService, broker: Broker
) -> None:
    async with MessageCenter(broker.address, unanswered_messages_max=1, drain_timeout_seconds=0) as center:
        await center.publish(TOPIC, PAID, b"connected")
        cpu_before = time.process_time()
        async with asyncio.timeout(8):
            receipts = await asyncio.gather(*(center.publish(TOPIC, PAID, b"x") for _ in range(30)))

    assert len(receipts) == 30
    assert time.process_time() - cpu_before < 4


async def test_waiting_for_room_is_part_of_the_publish_timeout() -> None:
    async with MessageCenter(
        "127.0.0.1:1",
        unanswered_messages_max=2,
        publish_timeout_seconds=1.0,
        connect_timeout_seconds=0.1,
        drain_timeout_seconds=0,
    ) as center:
        started_at = time.monotonic()
        took: list[float] = []

        async def publish() -> None:
            with pytest.raises(PublishTimeoutError):
                await center.publish(TOPIC, PAID, b"x")
            took.append(time.monotonic() - started_at)

        await asyncio.gather(*(publish() for _ in range(8)))

    # Nobody is there to answer: each of the eight was published at once, and waits for its error.
    assert max(took) < 2.0, [round(seconds, 1) for seconds in took]


async def test_a_timeout_given_with_the_call_counts_instead_of_the_centers() -> None:
    async with MessageCenter(
        "127.0.0.1:1", publish_timeout_seconds=0.5, connect_timeout_seconds=0.1, drain_timeout_seconds=0
    ) as center:
        started_at = time.monotonic()
        with pytest.raises(PublishTimeoutError):
            await center.publish(TOPIC, PAID, b"x", timeout_seconds=2.0)

    assert time.monotonic() - started_at >= 1.9


async def test_a_message_does_not_time_out_with_an_older_one_of_its_frame(
    trade: ConfigService, broker: Broker, database_url: str
) -> None:
    """After an outage old and new messages go in one frame: the new ones have their whole time."""
    async with MessageCenter(broker.address, publish_timeout_seconds=3.0, drain_timeout_seconds=0) as center:
        await center.publish(TOPIC, PAID, b"connected")
        async with await psycopg.AsyncConnection.connect(database_url) as locker:
            await locker.execute("LOCK TABLE message IN ACCESS EXCLUSIVE MODE")
            started_at = time.monotonic()
            publishes = []
            for number in range(6):
                # Four frames are under way; from the fifth message on they wait for the next frame.
                publishes.append(asyncio.ensure_future(center.publish(TOPIC, PAID, str(number))))
                await asyncio.sleep(0.1)
            await asyncio.sleep(2.6)
            late_at = time.monotonic()
            late = asyncio.ensure_future(center.publish(TOPIC, PAID, b"late"))
            await asyncio.sleep(1.2)
            await locker.rollback()
        answer = (await asyncio.gather(late, return_exceptions=True))[0]
        took = time.monotonic() - late_at
        await asyncio.gather(*publishes, return_exceptions=True)

    assert late_at - started_at < 4
    assert isinstance(answer, Receipt), f"after {took:.1f} s: {answer!r}"
