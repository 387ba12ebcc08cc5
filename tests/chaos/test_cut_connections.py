"""Connections that are cut under load, with answers still in them."""

from __future__ import annotations

import asyncio
import time
from urllib.parse import quote

from psycopg.conninfo import conninfo_to_dict

from tests.chaos.history import History, read_log
from tests.chaos.load import Load, register
from tests.support.broker_fixtures import StartBrokerProcess
from tests.support.relay import Relay

GROUPS = ("SG_ONE", "SG_TWO")
_CUTS_PER_ROUND = 3
_DUPLICATE_WINDOW_SECONDS = 2.0


async def test_what_was_under_way_between_clients_and_broker_is_stored_once_and_in_order(
    broker_process: StartBrokerProcess, database_url: str, free_port: int, rounds: int
) -> None:
    await register(database_url, *GROUPS)
    listen = f"127.0.0.1:{free_port}"
    async with Relay.to(f"postgresql://{listen}/any") as relay:
        address = f"127.0.0.1:{relay._port}"
        # Advertised, too: clients learn of brokers' own addresses, which must not lead around the relay.
        broker = broker_process(listen=listen, advertise=address)
        assert broker.address == address
        history, faults = await _cut_under_load(relay, address, rounds)

    assert not history.failed
    history.check(read_log(database_url), GROUPS)
    history.check_duplicates(faults, _DUPLICATE_WINDOW_SECONDS)


async def test_what_was_under_way_between_broker_and_database_is_stored_once_and_in_order(
    broker_process: StartBrokerProcess, database_url: str, rounds: int
) -> None:
    await register(database_url, *GROUPS)
    async with Relay.to(database_url) as relay:
        broker = broker_process(url=_through(relay, database_url))
        # The relay runs in this loop: waiting must not stop it.
        address = await asyncio.to_thread(lambda: broker.address)
        history, faults = await _cut_under_load(relay, address, rounds)
        assert broker.process.poll() is None, broker.log

    assert not history.failed
    history.check(read_log(database_url), GROUPS)
    history.check_duplicates(faults, _DUPLICATE_WINDOW_SECONDS)


async def _cut_under_load(relay: Relay, address: str, rounds: int) -> tuple[History, list[float]]:
    faults: list[float] = []
    async with Load.running([address], GROUPS, publishers=3, instances=1) as load:
        await load.more(1_000)
        for _ in range(rounds * _CUTS_PER_ROUND):
            relay.frozen.clear()
            relay.freeze()
            # Something is in it, and will never arrive.
            async with asyncio.timeout(10):
                await relay.frozen.wait()
            faults.append(time.monotonic())
            await relay.cut()
            await relay.restore()
            await load.more(1_000, 30)
            faults.append(time.monotonic())
        return await load.finish(), faults


def _through(relay: Relay, url: str) -> str:
    to = conninfo_to_dict(url)
    password = f":{quote(str(to['password']))}" if to.get("password") else ""
    return f"postgresql://{quote(str(to.get('user', 'postgres')))}{password}@127.0.0.1:{relay._port}/{to['dbname']}"
