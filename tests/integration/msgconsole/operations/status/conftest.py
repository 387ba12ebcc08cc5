"""A broker with a topic of one queue and a group, and both stores."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from confdb.services import ConfigService
from confdb.store import ConfigStore
from msgbroker.client import MessageCenter
from msgbroker.server.app import Broker
from msgconsole.operations.stores import Stores
from msgdb.store import MessageStore
from tests.support.broker_fixtures import StartBroker
from tests.support.collecting import register_group, register_topic


@pytest.fixture
async def stores(database_url: str, message_store: MessageStore) -> AsyncIterator[Stores]:
    async with ConfigStore.open(database_url) as opened:
        yield Stores(opened, message_store)


@pytest.fixture
async def broker(start_broker: StartBroker, config: ConfigService) -> Broker:
    broker = await start_broker()
    await register_topic(config, queue_count=1)
    await register_group(config)
    return broker


@pytest.fixture
async def center(broker: Broker) -> AsyncIterator[MessageCenter]:
    async with MessageCenter(broker.address) as opened:
        yield opened
