"""A store of the test's own, and a connection of the readers' kind to it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from msgdb.postgres.connections import Connection
from msgdb.store import MessageStore
from spark_etl.source import pages


@pytest.fixture
async def store(database_url: str) -> AsyncIterator[MessageStore]:
    async with MessageStore.open(database_url, pool_size=4) as store:
        yield store


@pytest.fixture
async def conn(store: MessageStore) -> AsyncIterator[Connection]:
    async with store.connection() as conn:
        yield conn


@pytest.fixture
def reading(database_url: str) -> Iterator[pages.Connection]:
    with pages.connect(database_url) as connection:
        yield connection
