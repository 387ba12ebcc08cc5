"""The publisher and subscriber processes of a bench run.

Each is told what to do on its command line (JSON), says `{"ready": ...}` on standard output, and at last its results.
The publisher begins when it reads a line; so does the subscriber end.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from array import array
from collections.abc import Iterator
from typing import Any, Final

import grpc

from msgbroker.client import Message, MessageCenter
from msgbroker.contract.errors import ClientBufferFullError
from msgbroker.v1 import message_pb2, publisher_pb2, publisher_pb2_grpc
from msgconsole.bench.samples import percentile
from msgconsole.bench.scenario import Publishing

TOPIC: Final = "TP_BENCH"
EVENT_CODE: Final = "EC_BENCH"
HEADERS: Final = {"region": "hz", "amount": "250", "channel": "web"}
_KEYS: Final = 4_096


def messages_of(task: dict[str, Any]) -> Iterator[str]:
    """Return the keys of the task's messages, empty for those without."""
    share = task["keyed_share"]
    owed = 0.0
    for number in range(task["messages"]):
        owed += share
        if owed >= 1:
            owed -= 1
            yield f"order-{number % _KEYS}"
        else:
            yield ""


async def publish(task: dict[str, Any]) -> dict[str, Any]:
    """Publish as the task says, and return what was measured."""
    body = bytes(task["body_bytes"])
    headers = HEADERS if task["with_headers"] else None
    async with MessageCenter(task["addresses"], unanswered_messages_max=20_000) as center:
        # Connected before the clock starts.
        await center.publish(TOPIC, EVENT_CODE, body, headers=headers)
        await _wait_for_go()
        keys = messages_of(task)
        started_at = time.time()
        match Publishing(task["publishing"]):
            case Publishing.STREAM:
                await _publish_stream(center, keys, body, headers)
            case Publishing.AWAIT:
                await _publish_awaiting(center, keys, body, headers, task["concurrency"])
            case Publishing.RATE:
                await _publish_at_rate(center, keys, body, headers, task["rate"])
            case Publishing.UNARY:
                await _publish_unary(task["addresses"], keys, body, headers, task["concurrency"])
        return {"started_at": started_at, "ended_at": time.time()}


async def _publish_stream(
    center: MessageCenter, keys: Iterator[str], body: bytes, headers: dict[str, str] | None
) -> None:
    for key in keys:
        try:
            last = center.publish_soon(TOPIC, EVENT_CODE, body, headers=headers, key=key)
        except ClientBufferFullError:
            await center.ready()
            last = center.publish_soon(TOPIC, EVENT_CODE, body, headers=headers, key=key)
    await last
    await center.flush()


async def _publish_awaiting(
    center: MessageCenter, keys: Iterator[str], body: bytes, headers: dict[str, str] | None, concurrency: int
) -> None:
    async def caller() -> None:
        for key in keys:
            await center.publish(TOPIC, EVENT_CODE, body, headers=headers, key=key)

    await asyncio.gather(*(caller() for _ in range(concurrency)))


async def _publish_at_rate(
    center: MessageCenter, keys: Iterator[str], body: bytes, headers: dict[str, str] | None, rate: float
) -> None:
    started_at = time.monotonic()
    for number, key in enumerate(keys):
        early_seconds = started_at + number / rate - time.monotonic()
        if early_seconds > 0:
            await asyncio.sleep(early_seconds)
        last = center.publish_soon(TOPIC, EVENT_CODE, body, headers=headers, key=key)
    await last


async def _publish_unary(
    address: str, keys: Iterator[str], body: bytes, headers: dict[str, str] | None, concurrency: int
) -> None:
    async with grpc.aio.insecure_channel(address) as channel:
        stub: Any = publisher_pb2_grpc.PublisherStub(channel)

        async def caller() -> None:
            for key in keys:
                message = message_pb2.Message(
                    topic=TOPIC, event_code=EVENT_CODE, body=body, key=key, headers=headers or {}
                )
                result = await stub.Publish(publisher_pb2.PublishRequest(messages=[message]))
                assert not result.refusals, result

        await asyncio.gather(*(caller() for _ in range(concurrency)))


async def subscribe(task: dict[str, Any]) -> dict[str, Any]:
    """Count what arrives at each group until all has arrived, and return counts and latencies."""
    expected = task["messages"]
    groups: list[str] = task["groups"]
    counts = dict.fromkeys(groups, 0)
    latencies = array("d")
    done = asyncio.Event()
    waiting_for = set(groups)
    marks: dict[str, float] = {}
    now_ns = time.time_ns
    async with MessageCenter(task["addresses"]) as center:

        def listen(group: str) -> None:
            @center.subscriber(group=group, topic=TOPIC, event_code=EVENT_CODE)
            async def count(message: Message) -> None:
                counts[group] = number = counts[group] + 1
                if number & task["latency_mask"] == 0:
                    latencies.append(now_ns() / 1_000 - message.born_at.timestamp() * 1_000_000)
                if number == expected:
                    marks[group] = time.time()
                    waiting_for.discard(group)
                    if not waiting_for:
                        done.set()

        for group in groups:
            listen(group)
        await center.start()
        _say({"ready": True})
        try:
            async with asyncio.timeout(task["seconds_max"]):
                await done.wait()
        except TimeoutError:
            # What is missing is seen in the counts.
            marks.setdefault("timeout", time.time())
        ordered = sorted(latency / 1_000 for latency in latencies)
        return {
            "counts": counts,
            "ended_at": max(marks.values()),
            "latency_ms": {
                name: round(percentile(ordered, share), 3)
                for name, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p999", 0.999), ("max", 1.0))
            },
        }


async def _wait_for_go() -> None:
    _say({"ready": True})
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)


def _say(what: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def main() -> None:
    """Run the worker that the command line describes."""
    import uvloop

    task = json.loads(sys.argv[1])
    _say(uvloop.run({"publish": publish, "subscribe": subscribe}[task["role"]](task)))


if __name__ == "__main__":
    main()
