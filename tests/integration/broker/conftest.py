"""A broker with a topic and two event codes, and a client of it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from confdb.services import ConfigService
from msgbroker.client import MessageCenter
from msgbroker.server.app import Broker
from tests.support.collecting import register_topic


@pytest.fixture
async def trade(config: ConfigService) -> ConfigService:
    """Return the services once TP_TRADE with EC_PAID and EC_REFUNDED is registered."""
    await register_topic(config)
    return config


@pytest.fixture
async def center(trade: ConfigService, broker: Broker) -> AsyncIterator[MessageCenter]:
    """Return a client of the broker."""
    async with MessageCenter(broker.address) as center:
        yield center
