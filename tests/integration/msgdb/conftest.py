"""A store on a database of the test's own."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from msgdb.postgres.connections import Connection
from msgdb.store import MessageStore


@pytest.fixture
async def store(database_url: str) -> AsyncIterator[MessageStore]:
    async with MessageStore.open(database_url, pool_size=4) as store:
        yield store


@pytest.fixture
async def conn(store: MessageStore) -> AsyncIterator[Connection]:
    async with store.connection() as conn:
        yield conn
