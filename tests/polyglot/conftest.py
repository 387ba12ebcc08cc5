"""A real broker, and Node as its client."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest
import pytest_asyncio

from tests.contract.harness import BrokerHarness, open_broker_harness
from tests.polyglot.node import install_packages
from tests.polyglot.node_center import NodeCenter


class NodeHarness(BrokerHarness):
    """A real broker on a real database, and clients that are not ours."""

    def center(self) -> Any:
        """Return a client in Node."""
        return NodeCenter(self._address)


@pytest.fixture(scope="session")
def node() -> None:
    """Have all that the example client needs."""
    install_packages()


@pytest_asyncio.fixture
async def harness(node: None, database_url: str) -> AsyncIterator[BrokerHarness]:
    """A broker, to be used from Node."""
    async with AsyncExitStack() as stack:
        yield await open_broker_harness(database_url, stack, NodeHarness)
