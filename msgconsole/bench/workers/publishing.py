"""A publisher process of the bench: publishes its share of the load, and tells how that went."""

from __future__ import annotations

import asyncio
import contextlib
import time
from array import array
from collections.abc import AsyncIterator
from typing import Any

import grpc

from msgbroker.client import MessageCenter
from msgbroker.contract.errors import ClientBufferFullError
from msgbroker.v1 import message_pb2, publisher_pb2, publisher_pb2_grpc
from msgconsole.bench.measures.resources import percentiles
from msgconsole.bench.scenario import Publishing
from msgconsole.bench.workers.lines import Orders, reporting
from msgconsole.bench.workers.load import EVENT_CODE, TOPIC, Load, Planned


async def publish(task: dict[str, Any], orders: Orders) -> dict[str, Any]:
    """Publish as the task says, and return what was measured."""
    load = Load(task)
    stop = asyncio.Event()
    receipts_ms = array("d")
    async with MessageCenter(task["addresses"]) as center:
        # Connected before the clock starts.
        key, headers = load.first
        body = bytes(task["body_bytes"])
        await center.publish(TOPIC, EVENT_CODE, body, headers=headers, key=key)
        await orders.begin()
        started_at = time.time()
        async with (
            orders.setting(stop),
            reporting(lambda: {"published": load.published}),
            _ending(load, stop, task["seconds"]),
        ):
            match Publishing(task["publishing"]):
                case Publishing.STREAM:
                    await _publish_stream(center, load, body)
                case Publishing.AWAIT:
                    await _publish_awaiting(center, load, body, task["concurrency"], receipts_ms)
                case Publishing.RATE:
                    await _publish_at_rate(center, load, body, task["rate"])
                case Publishing.UNARY:
                    await _publish_unary(task["addresses"], load, body, task["concurrency"], receipts_ms)
        return {
            "started_at": started_at,
            "ended_at": time.time(),
            "published": load.published,
            "matching": load.matching,
            "receipt_ms": percentiles(receipts_ms.tolist()),
        }


@contextlib.asynccontextmanager
async def _ending(load: Load, stop: asyncio.Event, seconds: float) -> AsyncIterator[None]:
    """End *load* when *stop* is set or, unless that is 0, after *seconds*."""

    async def end() -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds or None):
                await stop.wait()
        load.stopped = True

    task = asyncio.create_task(end())
    try:
        yield
    finally:
        task.cancel()


async def _publish_stream(center: MessageCenter, load: Load, body: bytes) -> None:
    last: asyncio.Future[Any] | None = None
    for key, headers in load:
        try:
            last = center.publish_soon(TOPIC, EVENT_CODE, body, headers=headers, key=key)
        except ClientBufferFullError:
            await center.ready()
            last = center.publish_soon(TOPIC, EVENT_CODE, body, headers=headers, key=key)
    if last is not None:
        await last
    await center.flush()


async def _publish_awaiting(
    center: MessageCenter, load: Load, body: bytes, concurrency: int, receipts_ms: array[float]
) -> None:
    planned = iter(load)

    async def caller() -> None:
        for key, headers in planned:
            asked_at = time.perf_counter()
            await center.publish(TOPIC, EVENT_CODE, body, headers=headers, key=key)
            receipts_ms.append((time.perf_counter() - asked_at) * 1_000)

    await asyncio.gather(*(caller() for _ in range(concurrency)))


async def _publish_at_rate(center: MessageCenter, load: Load, body: bytes, rate: float) -> None:
    started_at = time.monotonic()
    last: asyncio.Future[Any] | None = None
    for number, (key, headers) in enumerate(load):
        early_seconds = started_at + number / rate - time.monotonic()
        if early_seconds > 0:
            await asyncio.sleep(early_seconds)
        last = center.publish_soon(TOPIC, EVENT_CODE, body, headers=headers, key=key)
    if last is not None:
        await last


async def _publish_unary(address: str, load: Load, body: bytes, concurrency: int, receipts_ms: array[float]) -> None:
    planned = iter(load)
    async with grpc.aio.insecure_channel(address) as channel:
        stub: Any = publisher_pb2_grpc.PublisherStub(channel)

        async def caller() -> None:
            for message in planned:
                asked_at = time.perf_counter()
                result = await stub.Publish(_request(message, body))
                receipts_ms.append((time.perf_counter() - asked_at) * 1_000)
                assert not result.refusals, result

        await asyncio.gather(*(caller() for _ in range(concurrency)))


def _request(planned: Planned, body: bytes) -> publisher_pb2.PublishRequest:
    message = message_pb2.Message(
        topic=TOPIC, event_code=EVENT_CODE, body=body, key=planned.key, headers=planned.headers or {}
    )
    return publisher_pb2.PublishRequest(messages=[message])
