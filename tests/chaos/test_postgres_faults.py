"""PostgreSQL that is killed, frozen and started again under load, with fsync on."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from msgbroker.client import MessageCenter, Receipt, StoreUnavailableError, UnavailableError
from msgbroker.v1 import message_pb2, publisher_pb2, publisher_pb2_grpc
from tests.chaos.history import read_log
from tests.chaos.load import EVENT_CODE, TOPIC, Load, register
from tests.support.broker_fixtures import StartBrokerProcess
from tests.support.eventually import eventually
from tests.support.own_postgres import OwnPostgres

GROUPS = ("SG_ONE", "SG_TWO")
_DUPLICATE_WINDOW_SECONDS = 3.0


async def test_nothing_acknowledged_is_lost_when_postgresql_is_killed_and_started_again(
    broker_process: StartBrokerProcess, own_postgres: OwnPostgres, rounds: int
) -> None:
    await register(own_postgres.url, *GROUPS)
    brokers = [broker_process(url=own_postgres.url) for _ in range(2)]
    faults: list[float] = []
    async with Load.running([broker.address for broker in brokers], GROUPS) as load:
        await load.more(2_000)
        for _ in range(rounds):
            faults.append(time.monotonic())
            own_postgres.kill()
            acknowledged = len(load.history.acknowledged)
            await asyncio.to_thread(own_postgres.start_again)
            faults.append(time.monotonic())
            # By itself, and soon.
            await load.more(2_000, 20)
            assert len(load.history.acknowledged) > acknowledged
        history = await load.finish()

    assert [broker.process.poll() for broker in brokers] == [None, None]
    assert not history.failed
    history.check(read_log(own_postgres.url), GROUPS)
    history.check_duplicates(faults, _DUPLICATE_WINDOW_SECONDS)


async def test_publishers_hear_that_the_store_is_away_where_they_want_to_and_can_go_on_after_it(
    broker_process: StartBrokerProcess, own_postgres: OwnPostgres
) -> None:
    await register(own_postgres.url)
    broker = broker_process(url=own_postgres.url)
    async with (
        MessageCenter(broker.address, on_unavailable="raise") as impatient,
        MessageCenter(broker.address, on_unavailable="wait") as patient,
        grpc.aio.insecure_channel(broker.address) as channel,
    ):
        unary: Any = publisher_pb2_grpc.PublisherStub(channel)
        for number, center in enumerate((impatient, patient)):
            await center.publish(TOPIC, EVENT_CODE, f"p{number}:0")
        own_postgres.kill()
        waiting = asyncio.create_task(patient.publish(TOPIC, EVENT_CODE, "p1:1"))
        with pytest.raises(UnavailableError):
            await impatient.publish(TOPIC, EVENT_CODE, "p0:1")
        said = message_pb2.Message(topic=TOPIC, event_code=EVENT_CODE, body=b"p2:0")
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await unary.Publish(publisher_pb2.PublishRequest(messages=[said]))
        await eventually(lambda: _msgdb_serves(channel, serving=False))
        assert not waiting.done()

        own_postgres.start_again()
        await eventually(lambda: _msgdb_serves(channel, serving=True), 20)
        receipts = [await waiting, await impatient.publish(TOPIC, EVENT_CODE, "p0:2")]

    assert raised.value.code() is grpc.StatusCode.UNAVAILABLE
    assert dict(raised.value.trailing_metadata() or ())["msgcenter-reason"] == StoreUnavailableError.reason
    assert all(isinstance(receipt, Receipt) for receipt in receipts)


@pytest.mark.long
async def test_a_frozen_postgresql_is_waited_for(
    broker_process: StartBrokerProcess, own_postgres: OwnPostgres, rounds: int
) -> None:
    await register(own_postgres.url, *GROUPS)
    brokers = [broker_process(url=own_postgres.url) for _ in range(2)]
    async with Load.running([broker.address for broker in brokers], GROUPS) as load:
        await load.more(2_000)
        for number in range(rounds):
            own_postgres.freeze()
            await asyncio.sleep(1 + number)
            own_postgres.thaw()
            await load.more(2_000)
        history = await load.finish()

    assert [broker.process.poll() for broker in brokers] == [None, None]
    assert not history.failed
    history.check(read_log(own_postgres.url), GROUPS)


async def test_a_broker_told_to_stop_while_postgresql_is_away_ends_all_the_same(
    broker_process: StartBrokerProcess, own_postgres: OwnPostgres
) -> None:
    await register(own_postgres.url, *GROUPS)
    broker = broker_process(url=own_postgres.url)
    async with Load.running([broker.address], GROUPS, publishers=0) as load:
        await load.more(0)
        own_postgres.kill()
        started_at = time.monotonic()
        broker.terminate()
        status = await asyncio.to_thread(broker.process.wait, 20)
        assert (status, time.monotonic() - started_at < 10) == (0, True), broker.log


async def test_a_broker_told_to_stop_while_postgresql_is_frozen_ends_all_the_same(
    broker_process: StartBrokerProcess, own_postgres: OwnPostgres
) -> None:
    await register(own_postgres.url, *GROUPS)
    broker = broker_process(url=own_postgres.url)
    async with Load.running([broker.address], GROUPS) as load:
        await load.more(1_000)
        own_postgres.freeze()
        try:
            started_at = time.monotonic()
            broker.terminate()
            status = await asyncio.to_thread(broker.process.wait, 20)
            seconds = time.monotonic() - started_at
        finally:
            own_postgres.thaw()
        # What nobody acknowledged waits for a broker.
        listen = broker.address
        assert broker_process(url=own_postgres.url, listen=listen).address == listen
        history = await load.finish()

    assert (status, seconds < 10) == (0, True), broker.log
    history.check(read_log(own_postgres.url), GROUPS)


async def _msgdb_serves(channel: grpc.aio.Channel, *, serving: bool) -> bool:
    stub: Any = health_pb2_grpc.HealthStub(channel)
    answer = await stub.Check(health_pb2.HealthCheckRequest(service="msgdb"))
    return bool(answer.status == health_pb2.HealthCheckResponse.SERVING) is serving
