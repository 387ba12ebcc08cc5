"""What all streams together make a broker hold is bounded, however many there are and whatever they do.

The bound of `docs/operating.md`: what the settings say, and a reserve of 64 MiB and 1 MiB for each stream.
"""

from __future__ import annotations

import asyncio
import secrets
import statistics
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from confdb.services import ConfigService
from msgbroker.client import MessageCenter, OutgoingMessage
from msgbroker.contract import limits
from msgbroker.v1 import message_pb2, publisher_pb2
from tests.support.broker_fixtures import StartBrokerProcess
from tests.support.broker_processes import BrokerProcess
from tests.support.collecting import PAID, TOPIC, register_group, subscribed
from tests.support.eventually import eventually
from tests.support.raw_streams import PUBLISH_STREAM, parts_of
from tests.support.unread_streams import unread_subscribers

MIB = 1024 * 1024
INGEST_BYTES = MIB
OUTGOING_BYTES = 16 * MIB
SMALLEST = {"ingest_bytes_max": INGEST_BYTES, "log_cache_bytes_max": 4 * MIB, "outgoing_bytes_max": OUTGOING_BYTES}
FRAME_BYTES = 4 * MIB


def reserve_bytes(streams: int) -> int:
    """Return what so many streams may cost beside the limits."""
    return (64 + streams) * MIB


class Memory:
    """The memory of a broker's process above what it had at rest."""

    def __init__(self, broker: BrokerProcess) -> None:
        self._of = Path(f"/proc/{broker.pid}")
        self._resting_bytes = self._read("VmRSS")
        # From now on the peak is this one's.
        (self._of / "clear_refs").write_text("5")

    @property
    def peak_bytes(self) -> int:
        """The most it had, above what it had at rest."""
        return self._read("VmHWM") - self._resting_bytes

    def _read(self, name: str) -> int:
        (line,) = (line for line in (self._of / "status").read_text().splitlines() if line.startswith(name))
        return int(line.split()[1]) * 1024


class Ordinary:
    """A publisher as there are many, and how long it waits."""

    def __init__(self, center: MessageCenter) -> None:
        self._center = center
        self.waits: list[float] = []

    async def publish_while(self, others: list[asyncio.Task[str]]) -> Counter[str]:
        """Publish now and then until all *others* are done; return what became of those."""
        while not all(other.done() for other in others):
            began_at = time.monotonic()
            await self._center.publish(TOPIC, PAID, "ordinary")
            self.waits.append(time.monotonic() - began_at)
            await asyncio.sleep(0.05)
        return Counter(other.result() for other in others)


@asynccontextmanager
async def ordinary(broker: BrokerProcess) -> AsyncIterator[Ordinary]:
    """Return a publisher of a broker that has done all kinds of things once."""
    async with MessageCenter(broker.address) as center:
        await center.publish_many([OutgoingMessage(TOPIC, PAID, "x" * 1_000) for _ in range(2_000)])
        yield Ordinary(center)


def frame(topic: str) -> bytes:
    """Return an encoded frame of 4 MiB, without a number."""
    said = message_pb2.Message(topic=topic, event_code=PAID, body=secrets.token_bytes(8_100))
    encoded = publisher_pb2.PublishFrame(messages=[said] * 510).SerializeToString()
    assert 0.95 * FRAME_BYTES < len(encoded) < FRAME_BYTES
    return encoded


class Start:
    """Where streams wait until all are there: what one pours in keeps no other from saying hello in time."""

    def __init__(self, streams: int = 1) -> None:
        self._barrier = asyncio.Barrier(streams)

    async def line_up(self) -> None:
        """Wait for the others, once hello is said."""
        await self._barrier.wait()


async def pour(
    address: str, encoded: bytes, frames: int, start: Start, *, is_whole: bool = False, misses: int = 0
) -> str:
    """Send frames as fast as they are let through a connection of its own; return what became of them."""
    options = (("grpc.use_local_subchannel_pool", 1), ("grpc.max_send_message_length", -1))
    async with grpc.aio.insecure_channel(address, options) as channel:
        stream: Any = channel.stream_stream(PUBLISH_STREAM, None, publisher_pb2.PublishResult.FromString)
        call = stream()
        hello = publisher_pb2.PublisherHello(publisher_id=secrets.token_bytes(16))
        try:
            await call.write(publisher_pb2.PublishFrame(hello=hello).SerializeToString())
            await start.line_up()
            for sequence in range(1, frames + 1):
                numbered = publisher_pb2.PublishFrame(sequence=sequence).SerializeToString() + encoded
                parts = [numbered] if is_whole else parts_of(numbered)
                for part in parts[: len(parts) - misses]:
                    await call.write(part)
            for _ in range(frames):
                answer = await call.read()
                assert answer is not grpc.aio.EOF
                if answer.HasField("failure") or answer.refusals:
                    return str(answer.failure.reason or answer.refusals[0].refusal.reason)
            return "stored"
        except grpc.aio.AioRpcError as error:
            said = dict(error.trailing_metadata() or ()).get("msgcenter-reason")
            return str(said or f"{error.details()} ({error.debug_error_string()})")
        finally:
            call.cancel()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("streams, topic, becomes", [(60, TOPIC, "stored"), (300, "TP_NONE", "TOPIC_NOT_FOUND")])
async def test_any_number_of_publishers_that_send_all_they_can_cost_a_bounded_amount_and_hold_up_no_other(
    trade: ConfigService, broker_process: StartBrokerProcess, streams: int, topic: str, becomes: str
) -> None:
    broker = broker_process(**SMALLEST)
    async with ordinary(broker) as other:
        memory = Memory(broker)
        encoded = frame(topic)
        start = Start(streams)
        pouring = [asyncio.create_task(pour(broker.address, encoded, 2, start)) for _ in range(streams)]
        outcomes = await other.publish_while(pouring)

    assert outcomes == {becomes: streams}
    assert memory.peak_bytes < INGEST_BYTES + reserve_bytes(streams) < streams * FRAME_BYTES
    assert statistics.median(other.waits) < 2.0


@pytest.mark.timeout(300)
async def test_publishers_that_never_complete_a_frame_cost_a_bounded_amount_and_hold_up_no_other(
    trade: ConfigService, broker_process: StartBrokerProcess
) -> None:
    streams = 100
    broker = broker_process(**SMALLEST)
    async with ordinary(broker) as other:
        memory = Memory(broker)
        encoded = frame(TOPIC)
        start = Start(streams)
        sitting = [asyncio.create_task(pour(broker.address, encoded, 1, start, misses=1)) for _ in range(streams)]
        deadline = asyncio.create_task(asyncio.sleep(5, ""))
        await other.publish_while([deadline])
        peak_bytes = memory.peak_bytes
        assert not any(task.done() for task in sitting), "they were to sit there meanwhile"
        for task in sitting:
            task.cancel()
        await asyncio.gather(*sitting, return_exceptions=True)

    assert peak_bytes < INGEST_BYTES + reserve_bytes(streams)
    assert statistics.median(other.waits) < 2.0


async def test_a_message_of_any_size_is_refused_before_it_is_taken_in(
    trade: ConfigService, broker_process: StartBrokerProcess
) -> None:
    broker = broker_process(**SMALLEST)
    async with ordinary(broker):
        memory = Memory(broker)
        # Up to grpcio 1.83 its core takes all of it in, and then looks at its size.
        outcomes = [await pour(broker.address, b"\x1a" + b"x" * 200 * MIB, 1, Start(), is_whole=True) for _ in range(2)]

    assert all(str(limits.GRPC_MESSAGE_BYTES_MAX) in outcome for outcome in outcomes), outcomes
    assert memory.peak_bytes < 32 * MIB


@pytest.mark.timeout(300)
async def test_any_number_of_instances_that_do_not_read_cost_a_bounded_amount_and_starve_nobody(
    trade: ConfigService, broker_process: StartBrokerProcess
) -> None:
    instances, groups, count = 300, 10, 2_000
    broker = broker_process(**SMALLEST)
    for number in range(groups):
        await register_group(trade, f"SG_{number}")
    await register_group(trade, "SG_READS")
    async with ordinary(broker), AsyncExitStack() as stack:
        memory = Memory(broker)
        await stack.enter_async_context(
            unread_subscribers(broker.address, [f"SG_{number % groups}" for number in range(instances)])
        )
        got = await stack.enter_async_context(subscribed(broker.address, "SG_READS"))
        center = await stack.enter_async_context(MessageCenter(broker.address))
        # Each of the groups gets 16 MiB: far more than the windows of its instances take.
        for _ in range(count // 100):
            await center.publish_many([OutgoingMessage(TOPIC, PAID, "x" * 8_000) for _ in range(100)])
        await got.until(count, 60)
        await eventually(lambda: "outgoing.streams_ended" in broker.log, 30)

    assert memory.peak_bytes < OUTGOING_BYTES + reserve_bytes(instances) < instances * 2 * MIB
