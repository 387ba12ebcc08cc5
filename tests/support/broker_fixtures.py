"""Fixtures with brokers in them: in this process, in processes of their own, and a PostgreSQL that may be killed.

Imports stay inside the fixtures: unit tests load this module, too.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from confdb.services import ConfigService
    from msgbroker.server.app import Broker
    from msgdb.store import MessageStore
    from tests.support.broker_processes import BrokerProcess
    from tests.support.own_postgres import OwnPostgres

StartBroker = Callable[..., Awaitable["Broker"]]
StartBrokerProcess = Callable[..., "BrokerProcess"]

LEASE_SECONDS = 3.0
_SHOWN_CHARS = 6_000


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "chaos: kills and freezes processes")
    config.addinivalue_line("markers", "long: takes minutes; runs with MSGCENTER_CHAOS=long")


@pytest.fixture
async def message_store(database_url: str) -> AsyncIterator[MessageStore]:
    """Return the test's message store."""
    from msgdb.store import MessageStore

    async with MessageStore.open(database_url, pool_size=4) as store:
        yield store


@pytest.fixture
async def config(database_url: str, message_store: MessageStore) -> AsyncIterator[ConfigService]:
    """Return the services that change the configuration of the test's brokers."""
    from confdb.services import ConfigService
    from confdb.store import ConfigStore
    from msgdb.log.queues import QueueTailReader

    async with ConfigStore.open(database_url) as store:
        yield ConfigService(store, "test", QueueTailReader(message_store))


@pytest.fixture
async def start_broker(database_url: str) -> AsyncIterator[StartBroker]:
    """Return a function that starts a broker in this process; settings by name."""
    from msgbroker.server.app import open_broker
    from msgbroker.server.settings import BrokerSettings

    async with AsyncExitStack() as stack:
        brokers: list[Broker] = []

        async def start(**settings: Any) -> Broker:
            given = {
                "msgdb_url": database_url,
                "confdb_url": database_url,
                "listen": "127.0.0.1:0",
                "lease_seconds": LEASE_SECONDS,
                "checkpoint_seconds": 0.05,
                "drain_seconds": 2.0,
                "client_registration": True,
            }
            broker = await stack.enter_async_context(open_broker(BrokerSettings.load(**{**given, **settings})))
            brokers.append(broker)
            return broker

        yield start
        for broker in brokers:
            ended = [task for task in broker._running if task.done()]
            assert broker._stop.is_set() or not ended, f"a part of the broker is dead: {ended}"


@pytest.fixture
async def broker(start_broker: StartBroker) -> Broker:
    """Return a broker in this process, on the test's database."""
    return await start_broker()


@pytest.fixture
def broker_process(database_url: str, tmp_path: Path) -> Iterator[StartBrokerProcess]:
    """Return a function that starts a broker in a process of its own; settings by name. All are ended with the test."""
    from tests.support.broker_processes import BrokerProcess

    started: list[BrokerProcess] = []

    def start(**settings: Any) -> BrokerProcess:
        url = settings.pop("url", database_url)
        process = BrokerProcess.start(url, tmp_path / f"broker-{len(started)}.log", settings)
        started.append(process)
        return process

    yield start
    for process in started:
        process.end()
        # Shown with a test that fails.
        sys.stdout.write(f"--- {process.log_file.name}\n{process.log[-_SHOWN_CHARS:]}\n")


@pytest.fixture
def own_postgres() -> Iterator[OwnPostgres]:
    """Return a PostgreSQL of the test's own, durable, migrated, that may be killed and started again."""
    from tests.support.own_postgres import OwnPostgres

    with tempfile.TemporaryDirectory(prefix="msgcenter-chaos-") as directory:
        postgres = OwnPostgres.start(Path(directory))
        try:
            yield postgres
        finally:
            postgres.stop()
