"""The message centers that the conformance suite runs against."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest
import pytest_asyncio

from tests.contract.harness import (
    BlockingHarness,
    BlockingMemoryHarness,
    Harness,
    MemoryHarness,
    open_broker_harness,
)


@pytest_asyncio.fixture(params=["memory", "broker"])
async def harness(request: pytest.FixtureRequest) -> AsyncIterator[Harness]:
    """Each kind of message center in turn."""
    if request.param == "memory":
        yield MemoryHarness()
        return
    async with AsyncExitStack() as stack:
        yield await open_broker_harness(request.getfixturevalue("database_url"), stack)


@pytest_asyncio.fixture(params=["memory", "broker"])
async def blocking_harness(request: pytest.FixtureRequest) -> AsyncIterator[BlockingHarness]:
    """Each kind of message center in turn, for blocking code."""
    if request.param == "memory":
        yield BlockingMemoryHarness()
        return
    async with AsyncExitStack() as stack:
        yield await open_broker_harness(request.getfixturevalue("database_url"), stack)
