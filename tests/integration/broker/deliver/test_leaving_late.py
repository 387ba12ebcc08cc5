"""No stress message is written to a group once its removal from the whitelist is active: however long it is stuck."""

from __future__ import annotations

import asyncio
import math

import pytest

from confdb.services import ConfigService
from msgbroker.client import MessageCenter
from msgbroker.server.app import Broker
from tests.support.broker_fixtures import StartBroker
from tests.support.by_hand import by_hand, routed
from tests.support.collecting import register_group
from tests.support.eventually import eventually
from tests.support.stress import STRESS, WHITELISTED, allow, disallow
from tests.support.unread_streams import at_rest, publish, unread_subscriber, wire_to


@pytest.fixture
async def broker(start_broker: StartBroker) -> Broker:
    """Return a broker whose leases pass for nothing that happens here."""
    return await start_broker(lease_seconds=60, drain_seconds=30)


async def test_what_is_stuck_for_longer_than_the_ack_timeout_is_not_written_either(
    trade: ConfigService, broker: Broker, center: MessageCenter
) -> None:
    await register_group(trade, WHITELISTED, ack_timeout_seconds=1)
    await allow(trade)
    async with wire_to(broker.address) as wire, unread_subscriber(wire, WHITELISTED) as unread:
        await publish(center, STRESS)
        instance = await at_rest(broker)
        assert instance.under_way
        # Its time to answer passes; the response is still stuck.
        await eventually(lambda: all(math.isinf(batch.deadline) for batch in instance.under_way))
        assert instance.outlet in broker.hub.outgoing.writing
        await disallow(trade)  # and returns once that is active
        bytes_then = wire.bytes_down
        reader = unread.read_on()
        await eventually(lambda: reader.has_ended or reader.given)
        await asyncio.sleep(0.5)
        arrived = [given.delivery for given in reader.given if given.delivery.stress]

        # At most what had left the broker before, in the client's window.
        assert wire.bytes_down - bytes_then < 8_000, f"{wire.bytes_down - bytes_then} bytes left the broker afterwards"
        assert len(arrived) == 0


async def test_what_is_stuck_in_a_group_that_is_not_understood_any_more_is_not_written_either(
    trade: ConfigService, broker: Broker, center: MessageCenter, database_url: str
) -> None:
    await register_group(trade, WHITELISTED)
    await allow(trade)
    async with wire_to(broker.address) as wire, unread_subscriber(wire, WHITELISTED) as unread:
        await publish(center, STRESS)
        await at_rest(broker)
        # A newer version gives the group something that this broker does not understand: it settles and goes elsewhere.
        version = await by_hand(
            database_url, f"UPDATE subscriber_group SET group_order = 'KEY' WHERE name = '{WHITELISTED}'"
        )
        await routed(version, broker)
        await disallow(trade)  # and returns once that is active
        bytes_then = wire.bytes_down
        reader = unread.read_on()
        await eventually(lambda: reader.has_ended or reader.given)
        await asyncio.sleep(0.5)
        arrived = [given.delivery for given in reader.given if given.delivery.stress]

        assert wire.bytes_down - bytes_then < 8_000, f"{wire.bytes_down - bytes_then} bytes left the broker afterwards"
        assert len(arrived) == 0
