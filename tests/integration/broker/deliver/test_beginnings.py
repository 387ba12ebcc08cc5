"""A subscription from the beginning, made while brokers claim lanes: it gets what is stored, or is refused."""

from __future__ import annotations

import asyncio

import pytest

from confdb.routes import Snapshot
from confdb.services import ConfigService
from msgbroker.client import MessageCenter, OutgoingMessage, Receipt
from msgbroker.contract.errors import BeginningPassedError
from msgbroker.server.app import Broker
from msgbroker.server.cluster.placement import LanesByGroup
from tests.support.collecting import GROUP, PAID, REFUNDED, TOPIC, register_group
from tests.support.eventually import eventually
from tests.support.raw_streams import raw_subscriber

STORED = [str(number) for number in range(10)]


def slots_of(broker: Broker) -> int:
    return sum(len(group.lanes) for group in broker.hub.groups.values())


@pytest.fixture
async def stored(trade: ConfigService, broker: Broker) -> None:
    """Store messages that nobody wants, and register a group that has read nothing."""
    async with MessageCenter(broker.address) as center:
        answers = await center.publish_many([OutgoingMessage(TOPIC, PAID, body) for body in STORED])
    assert all(isinstance(answer, Receipt) for answer in answers)
    await register_group(trade, GROUP, REFUNDED)


@pytest.mark.usefixtures("stored")
async def test_it_is_refused_where_a_broker_claims_the_lanes_while_it_is_made(
    trade: ConfigService, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    tails = trade.subscriptions._tails
    assert tails is not None
    has_cursor = tails.has_cursor

    async def has_cursor_a_moment_ago(group_id: int, topic_id: int) -> bool:
        found = await has_cursor(group_id, topic_id)
        async with raw_subscriber(broker.address):
            await eventually(lambda: slots_of(broker) == 4)
        return found

    monkeypatch.setattr(tails, "has_cursor", has_cursor_a_moment_ago)

    with pytest.raises(BeginningPassedError):
        await trade.subscriptions.create("default", GROUP, TOPIC, PAID, from_beginning=True)

    assert [one.event_code for one in (await trade.subscriptions.list("default")).items] == [REFUNDED]


@pytest.mark.usefixtures("stored")
async def test_no_broker_claims_the_lanes_before_it_knows_of_it(
    trade: ConfigService, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_load = asyncio.Event()
    load = broker.feed._loader.load
    claim_missing = broker.cluster.ownership._claims.claim_missing
    claimed_in: list[int] = []

    async def load_slowly() -> Snapshot:
        await may_load.wait()
        return await load()

    async def claim_and_note(wanted: LanesByGroup) -> None:
        await claim_missing(wanted)
        if wanted:
            claimed_in.append(slots_of(broker))

    monkeypatch.setattr(broker.feed._loader, "load", load_slowly)
    monkeypatch.setattr(broker.cluster.ownership._claims, "claim_missing", claim_and_note)
    version = (await trade.subscriptions.create("default", GROUP, TOPIC, PAID, from_beginning=True)).version
    async with raw_subscriber(broker.address) as raw:
        await eventually(lambda: len(claimed_in) >= 2)
        assert claimed_in[:2] == [0, 0]

        may_load.set()
        await trade.wait_until_active(version)
        await raw.until(len(STORED))

    assert sorted(raw.bodies) == STORED
