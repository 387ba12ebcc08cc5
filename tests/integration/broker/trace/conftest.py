"""A broker that keeps its lanes however busy the machine is: here no lease is to pass."""

from __future__ import annotations

import pytest

from msgbroker.server.app import Broker
from tests.support.broker_fixtures import StartBroker

LEASE_SECONDS = 30.0


@pytest.fixture
async def broker(start_broker: StartBroker) -> Broker:
    """Return a broker in this process, on the test's database."""
    return await start_broker(lease_seconds=LEASE_SECONDS)
