"""A broker that dies and comes back: what the clients' log tells of it, and what is raised meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from confdb.services import ConfigService
from msgbroker.client import BrokerUnavailableError, Message, MessageCenter, UnavailableCause
from tests.support.broker_processes import BrokerProcess
from tests.support.collecting import GROUP, PAID, TOPIC, register_group
from tests.support.eventually import eventually


async def test_a_broker_that_dies_and_comes_back_is_told_of_once_each(
    trade: ConfigService, broker_process: Callable[..., BrokerProcess], caplog: pytest.LogCaptureFixture
) -> None:
    await register_group(trade)
    broker = broker_process()
    address = await asyncio.to_thread(lambda: broker.address)
    received = asyncio.Event()

    def told(who: str) -> list[str]:
        return [record.getMessage() for record in caplog.records if record.getMessage().startswith(f"{who}.")]

    async with (
        MessageCenter(address) as center,
        MessageCenter(address, on_unavailable="raise", publish_timeout_seconds=600) as impatient,
    ):

        @center.subscriber(group=GROUP, topic=TOPIC, event_code=PAID)
        async def handle(message: Message) -> None:
            received.set()

        await center.start()
        await center.publish(TOPIC, PAID, b"before")
        await received.wait()
        # gRPC's own poller may say something in a process of many event loops.
        assert [record for record in caplog.records if record.name.startswith("msgbroker")] == []

        broker.kill()
        publishing = asyncio.ensure_future(center.publish(TOPIC, PAID, b"meanwhile", timeout_seconds=60))
        await eventually(lambda: told("subscriber") and told("publisher"))
        with pytest.raises(BrokerUnavailableError, match=f"{address}: connection refused") as refused:
            await impatient.publish(TOPIC, PAID, b"never")
        with pytest.raises(BrokerUnavailableError, match=f"{address}: connection refused"):
            await impatient.register(TOPIC, PAID)

        again = broker_process(listen=address)
        await asyncio.to_thread(lambda: again.address)
        await publishing
        await eventually(lambda: len(told("subscriber")) == 2, 30)
        await impatient.publish(TOPIC, PAID, b"after")

    assert (refused.value.cause, refused.value.may_be_stored) == (UnavailableCause.REFUSED, False)
    for who, whose in (("subscriber", f"group={GROUP} "), ("publisher", "")):
        lost, back = told(who)[0], told(who)[-1]
        where = f"{whose}address={address}"
        assert lost.startswith((f"{who}.broker_lost: {where} ", f"{who}.broker_not_reached: {where} "))
        assert back.startswith(f"{who}.broker_found: {where} seconds=")
