"""The example client where brokers end, and with what an application seldom does: large messages, an id in use."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from confdb.services import ConfigService
from msgbroker.client import Message
from msgbroker.server.app import Broker
from tests.chaos.history import Place, read_log
from tests.contract.harness import Recorder
from tests.polyglot.node_center import NodeCenter
from tests.support.broker_fixtures import StartBrokerProcess
from tests.support.broker_processes import port_to_come_back_to
from tests.support.collecting import GROUP, PAID, TOPIC, register_group, register_topic
from tests.support.eventually import eventually


class Way:
    """A TCP relay to a broker, on which answers may be kept from the client."""

    def __init__(self) -> None:
        self.address = ""
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.carrying: set[asyncio.Task[None]] = set()

    async def cut(self) -> None:
        """Let all connections end, with what is kept from the client; later ones are as before."""
        for task in self.carrying:
            task.cancel()
        await asyncio.gather(*self.carrying, return_exceptions=True)
        self.carrying.clear()
        self.may_answer.set()

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_down: bool) -> None:
        """Carry bytes until one side ends."""
        try:
            with suppress(OSError):
                while data := await reader.read(65_536):
                    if is_down:
                        await self.may_answer.wait()
                    writer.write(data)
                    await writer.drain()
        finally:
            writer.close()


@asynccontextmanager
async def way_to(port: int) -> AsyncIterator[Way]:
    """Open a relay to whatever broker listens on *port*."""
    way = Way()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            from_broker, to_broker = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            writer.transport.abort()
            return
        way.carrying.add(asyncio.create_task(way.carry(reader, to_broker, is_down=False)))
        way.carrying.add(asyncio.create_task(way.carry(from_broker, writer, is_down=True)))

    async with await asyncio.start_server(accept, "127.0.0.1", 0) as server:
        way.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        yield way
        await way.cut()


def record(center: NodeCenter) -> Recorder:
    """Attach a handler that acknowledges everything and return what it was called with."""
    recorder = Recorder()

    @center.subscriber(group=GROUP, topic=TOPIC)
    async def handle(message: Message) -> None:
        recorder.add(message)

    return recorder


async def test_what_a_killed_broker_had_stored_and_not_answered_is_sent_again_and_stored_once(
    node: None, broker_process: StartBrokerProcess, config: ConfigService, database_url: str
) -> None:
    await register_topic(config, queue_count=1)
    await register_group(config)
    port = port_to_come_back_to()
    async with way_to(port) as way, NodeCenter(way.address) as center:
        # Advertised, too: the client learns where brokers are, which must not lead around the relay.
        where = {"listen": f"127.0.0.1:{port}", "advertise": way.address}
        broker = broker_process(**where)
        await asyncio.to_thread(lambda: broker.address)
        recorder = record(center)
        await center.start()
        receipts = [await center.publish(TOPIC, PAID, "0")]
        way.may_answer.clear()
        publishing = [center.publish_soon(TOPIC, PAID, str(n)) for n in range(1, 101)]
        await eventually(lambda: len(read_log(database_url)) == 101)
        broker.kill()
        publishing += [center.publish_soon(TOPIC, PAID, str(n)) for n in range(101, 151)]
        await way.cut()
        broker_process(**where)
        receipts += await asyncio.gather(*publishing)
        resent = await center.ask("resent")
        await eventually(lambda: {*recorder.bodies} == {str(n).encode() for n in range(151)}, 20)

    assert resent > 0
    assert [receipt.duplicate for receipt in receipts] == [False] + [True] * 100 + [False] * 50
    log = read_log(database_url)
    assert [log[place] for place in sorted(log)] == [str(n) for n in range(151)]
    assert [log[Place(receipt.queue_id, receipt.queue_offset)] for receipt in receipts] == [str(n) for n in range(151)]


async def test_what_runs_when_a_broker_stops_is_finished_and_does_not_come_again(
    node: None, broker_process: StartBrokerProcess, config: ConfigService
) -> None:
    await register_topic(config, queue_count=1)
    await register_group(config)
    listen = f"127.0.0.1:{port_to_come_back_to()}"
    broker = broker_process(listen=listen)
    attempts: list[tuple[bytes, int]] = []
    done = asyncio.Event()
    await asyncio.to_thread(lambda: broker.address)
    async with NodeCenter(listen, concurrency=1) as center:

        @center.subscriber(group=GROUP, topic=TOPIC)
        async def handle(message: Message) -> None:
            attempts.append((message.body, message.attempt))
            if message.body == b"last":
                done.set()
            if len(attempts) == 1:
                broker.terminate()
                await eventually(lambda: "broker.draining" in broker.log)

        await center.start()
        for body in ("runs", "waits"):
            center.publish_soon(TOPIC, PAID, body)
        await asyncio.to_thread(broker.process.wait)
        broker_process(listen=listen)
        await center.publish(TOPIC, PAID, "last")
        async with asyncio.timeout(20):
            await done.wait()

    assert attempts == [(b"runs", 1), (b"waits", 1), (b"last", 1)]


async def test_of_a_process_that_is_killed_what_it_had_begun_counts_and_nothing_else(
    node: None, broker: Broker, config: ConfigService
) -> None:
    await register_topic(config, queue_count=1)
    await register_group(config, retry_schedule_seconds=(0.01, 0.01))
    begun = asyncio.Event()
    async with NodeCenter(broker.address) as second:
        async with NodeCenter(broker.address, concurrency=1) as first:

            @first.subscriber(group=GROUP, topic=TOPIC)
            async def hang(message: Message) -> None:
                begun.set()
                await asyncio.Event().wait()

            await first.start()
            for body in ("begun", "waits", "waits as well"):
                await second.publish(TOPIC, PAID, body)
            await begun.wait()
            first.kill()
        recorder = record(second)
        await second.start()
        await recorder.wait(3)

    attempts = {message.body: message.attempt for message in recorder.messages}
    assert attempts == {b"begun": 2, b"waits": 1, b"waits as well": 1}


async def test_a_message_that_is_larger_than_a_grpc_message_comes_in_parts(
    node: None, broker: Broker, config: ConfigService
) -> None:
    await register_topic(config, body_bytes_max=4 * 1024 * 1024)
    await register_group(config)
    body = bytes(range(256)) * (4 * 1024 * 4)
    async with NodeCenter(broker.address) as center:
        recorder = record(center)
        await center.start()
        await center.publish(TOPIC, PAID, body)
        await recorder.wait(1)

    assert recorder.bodies == [body]


async def test_an_instance_whose_id_another_process_has_taken_does_not_come_back(
    node: None, broker: Broker, config: ConfigService, caplog: pytest.LogCaptureFixture
) -> None:
    await register_topic(config)
    await register_group(config)
    async with (
        NodeCenter(broker.address, instanceId="one") as first,
        NodeCenter(broker.address, instanceId="one") as second,
    ):
        lost, recorder = record(first), record(second)
        await first.start()
        await second.start()
        await eventually(lambda: "INSTANCE_REPLACED" in caplog.text)
        await first.publish(TOPIC, PAID, b"1")
        await recorder.wait(1)

    assert lost.messages == []
