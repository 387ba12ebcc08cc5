"""Groups with dead letters, and both stores as operators' acts are given them."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from confdb.store import ConfigStore
from msgconsole.operations.stores import Stores
from msgdb.store import MessageStore


@pytest.fixture
async def stores(database_url: str, message_store: MessageStore) -> AsyncIterator[Stores]:
    """Return both databases of the test's brokers."""
    async with ConfigStore.open(database_url) as config_store:
        yield Stores(config_store, message_store)
