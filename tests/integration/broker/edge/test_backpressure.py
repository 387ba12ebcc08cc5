"""A flood of publishers is slowed down by flow control, and costs the broker a bounded amount of memory."""

from __future__ import annotations

import asyncio
import secrets
import time
from typing import Any

import grpc
import psutil
import psycopg
import pytest

from confdb.services import ConfigService
from msgbroker.client import MessageCenter, OutgoingMessage
from msgbroker.v1 import message_pb2, publisher_pb2
from msgdb.append import sql
from msgdb.postgres.connections import Connection
from msgdb.store import MessageStore
from tests.support.broker_fixtures import StartBroker, StartBrokerProcess
from tests.support.collecting import PAID, TOPIC, register_group, subscribed
from tests.support.eventually import eventually
from tests.support.raw_streams import PUBLISH_STREAM, parts_of

_PUBLISHERS = 8
_FRAMES = 24
_FRAME_MESSAGES = 1_000
_FLOOD_BYTES = _PUBLISHERS * _FRAMES * _FRAME_MESSAGES * 1_024
_UNANSWERED_FRAMES_MAX = _PUBLISHERS * 3
"""What the broker holds, and what gRPC's windows let be under way, at 1 MiB a frame."""
_GROWTH_BYTES_MAX = 110 * 1024 * 1024


class Flood:
    """Publishers that write as fast as they are let, and read their answers as they come."""

    def __init__(self, address: str) -> None:
        self._address = address
        self.sent = 0
        self.answered = 0

    async def pour(self) -> None:
        """Send everything, and return when all is answered."""
        await asyncio.gather(*(self._publish() for _ in range(_PUBLISHERS)))

    async def _publish(self) -> None:
        said = message_pb2.Message(topic=TOPIC, event_code=PAID, body=secrets.token_bytes(1_024))
        frame = publisher_pb2.PublishFrame(messages=[said] * _FRAME_MESSAGES)
        async with grpc.aio.insecure_channel(self._address) as channel:
            stream: Any = channel.stream_stream(PUBLISH_STREAM, None, publisher_pb2.PublishResult.FromString)
            call = stream()
            hello = publisher_pb2.PublisherHello(publisher_id=secrets.token_bytes(16))
            await call.write(publisher_pb2.PublishFrame(hello=hello).SerializeToString())
            reading = asyncio.create_task(self._read(call))
            for sequence in range(1, _FRAMES + 1):
                frame.sequence = sequence
                for part in parts_of(frame.SerializeToString()):
                    await call.write(part)
                self.sent += 1
            await reading
            call.cancel()

    async def _read(self, call: Any) -> None:
        for sequence in range(1, _FRAMES + 1):
            answer = await call.read()
            assert (answer.sequence, answer.HasField("failure")) == (sequence, False), answer
            self.answered += 1


@pytest.mark.timeout(180)
async def test_a_flood_is_slowed_down_while_nothing_can_be_stored_and_memory_stays_bounded(
    trade: ConfigService, broker_process: StartBrokerProcess, message_store: MessageStore
) -> None:
    broker = broker_process(ingest_bytes_max=8 * 1024 * 1024)
    async with MessageCenter(broker.address) as center, message_store.connection() as conn:
        await center.publish(TOPIC, PAID, "the queues are made")
        holding = asyncio.create_task(_hold_all_queues(message_store, conn))
        process = psutil.Process(broker.pid)
        before = process.memory_info().rss
        flood = Flood(broker.address)
        pouring = asyncio.create_task(flood.pour())
        # It comes to rest: nothing is stored, and no more is taken in.
        await _at_rest(flood)
        unanswered = flood.sent - flood.answered
        during = process.memory_info().rss
        holding.cancel()
        async with asyncio.timeout(120):
            await pouring
        after = process.memory_info().rss
        stored = await (await conn.execute("SELECT count(*) FROM message")).fetchone()

    assert unanswered < _UNANSWERED_FRAMES_MAX
    assert during - before < _GROWTH_BYTES_MAX < _FLOOD_BYTES * 0.6
    assert after - before < _GROWTH_BYTES_MAX
    assert stored == (_PUBLISHERS * _FRAMES * _FRAME_MESSAGES + 1,)


async def test_a_subscriber_that_does_not_read_costs_a_bounded_amount_of_memory(
    trade: ConfigService, broker_process: StartBrokerProcess
) -> None:
    broker = broker_process(log_cache_bytes_max=8 * 1024 * 1024)
    await register_group(trade)
    body = "x" * 8_000
    async with MessageCenter(broker.address) as center:
        await center.publish_many([OutgoingMessage(TOPIC, PAID, body) for _ in range(1_000)])
        process = psutil.Process(broker.pid)
        before = process.memory_info().rss
        for _ in range(10):
            await center.publish_many([OutgoingMessage(TOPIC, PAID, body) for _ in range(1_500)])
        after = process.memory_info().rss
        assert after - before < 60 * 1024 * 1024
        # 128 MB of backlog are delivered, from the store.
        async with subscribed(broker.address) as collected:
            await collected.until(16_000, 60)
            assert process.memory_info().rss - before < 100 * 1024 * 1024


async def test_publishers_go_on_when_there_is_room_again(trade: ConfigService, start_broker: StartBroker) -> None:
    broker = await start_broker(ingest_bytes_max=1024 * 1024)
    async with MessageCenter(broker.address) as center:
        answers = await center.publish_many([OutgoingMessage(TOPIC, PAID, "x" * 8_000) for _ in range(2_000)])

    assert not [answer for answer in answers if isinstance(answer, Exception)]
    assert broker.committer.is_idle
    assert broker.committer.budget.bytes_held == 0


async def _at_rest(flood: Flood) -> None:
    """Wait until the flood has not moved for a second."""
    sent, since = -1, 0.0

    def is_at_rest() -> bool:
        nonlocal sent, since
        if flood.sent != sent:
            sent, since = flood.sent, time.monotonic()
        return time.monotonic() - since > 1.0

    await eventually(is_at_rest, 20)


async def _hold_all_queues(store: MessageStore, conn: Connection) -> None:
    """Hold the append locks of all queues, as if PostgreSQL were stuck; again and again, as brokers end holders."""
    rows = await conn.execute("SELECT queue_id FROM queue")
    queue_ids = [queue_id for (queue_id,) in await rows.fetchall()]
    while True:
        holder = await store.connect_dedicated()
        try:
            await holder.execute(sql.begin("", (), queue_ids).encode())
            while True:
                await holder.execute("SELECT pg_sleep(0.05)")
        except psycopg.OperationalError:
            continue
        finally:
            await holder.close()
