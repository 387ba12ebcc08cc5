"""A broker that is cut off from confdb, where others are not: it serves nothing by what was before a change is active.

It is struck off the live brokers by hand, and asks for the mark more often than it does, so that nothing waits for time
to pass.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import grpc
import psycopg
import pytest

from confdb.routes import StressOperator
from confdb.services import ConfigService
from msgbroker.client import MessageCenter
from msgbroker.contract.errors import ConfigOutdatedError
from msgbroker.server.app import Broker
from msgbroker.server.cluster import cut_off as cut_off_module
from msgbroker.v1 import message_pb2
from msgdb.reports.alarms import AlarmKind
from tests.support.broker_fixtures import StartBroker
from tests.support.collecting import GROUP, PAID, REFUNDED, TOPIC, register_group, register_topic
from tests.support.eventually import eventually
from tests.support.health import NOT_SERVING, SERVING, health
from tests.support.raw_streams import raw_publisher, raw_subscriber
from tests.support.relay import Relay

STRESS = {"x-stress-test": "true"}
LEASE_SECONDS = 60.0
"""Nothing here waits for a lease."""
WAIT_SECONDS = 30.0


@pytest.fixture
def relayed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let brokers look for the mark soon and often."""
    monkeypatch.setattr(cut_off_module, "CONTACT_SECONDS", 0.2)
    # Whoever could not beat for so long may have been struck off. Here it takes no longer.
    monkeypatch.setattr(cut_off_module, "LIVE_SECONDS", 0.2)
    monkeypatch.setattr(cut_off_module, "_LOOK_SECONDS", 0.05)


@pytest.fixture
async def relay(database_url: str, relayed: None) -> AsyncIterator[Relay]:
    """Return the way of one broker to confdb."""
    async with Relay.to(database_url) as relay:
        yield relay
        await relay.restore()


async def cut(relay: Relay, broker: Broker, database_url: str) -> None:
    """Cut the broker off confdb, and let it be struck off the live ones."""
    await relay.cut()
    await eventually(lambda: not broker.cluster.cut_off.is_in_contact)
    with psycopg.connect(database_url) as connection:
        connection.execute(
            "UPDATE broker SET heartbeat_at = heartbeat_at - interval '1 minute' WHERE broker_id = %s",
            [broker.cluster.heartbeats.identity.broker_id],
        )


def slots_of(broker: Broker) -> int:
    return sum(len(group.lanes) for group in broker.hub.groups.values())


async def test_its_lanes_go_to_the_others_before_a_subscription_is_reported_active(
    config: ConfigService, start_broker: StartBroker, database_url: str, relay: Relay
) -> None:
    await register_topic(config, queue_count=1)
    await register_group(config, GROUP, REFUNDED)
    good = await start_broker(lease_seconds=LEASE_SECONDS)
    behind = await start_broker(lease_seconds=LEASE_SECONDS, confdb_url=relay.url)
    async with raw_subscriber(behind.address, instance_id="there") as its_instance:
        await eventually(lambda: slots_of(behind) == 1)
        await cut(relay, behind, database_url)

        version = (await config.subscriptions.create("default", GROUP, TOPIC, PAID)).version
        await config.wait_until_active(version, WAIT_SECONDS)

        assert slots_of(behind) == 0
        await eventually(lambda: its_instance.has_ended)
        assert its_instance.ended is not None
        assert its_instance.ended.code() is grpc.StatusCode.UNAVAILABLE
    async with raw_subscriber(good.address) as raw, MessageCenter(good.address) as center:
        await center.publish(TOPIC, PAID, "published when it was active")
        assert [given.body for given in await raw.until(1)] == ["published when it was active"]


async def test_a_lane_it_claims_before_it_knows_that_it_is_behind_is_not_served(
    config: ConfigService, start_broker: StartBroker, database_url: str, relay: Relay, monkeypatch: pytest.MonkeyPatch
) -> None:
    await register_topic(config, queue_count=1)
    await register_group(config)
    allowed = await config.stress.allow("default", GROUP, TOPIC, PAID)
    good = await start_broker(lease_seconds=LEASE_SECONDS)
    behind = await start_broker(lease_seconds=LEASE_SECONDS, confdb_url=relay.url)
    await config.wait_until_active(allowed.version)
    await cut(relay, behind, database_url)
    opened = 0
    open_lane = behind.hub.open_lane

    def counted(*args: object) -> None:
        nonlocal opened
        opened += 1
        open_lane(*args)  # type: ignore[arg-type]

    async def look_at_nothing() -> None:
        return

    monkeypatch.setattr(behind.hub, "open_lane", counted)
    look_once = behind.cluster.cut_off.look_once
    monkeypatch.setattr(behind.cluster.cut_off, "look_once", look_at_nothing)
    # One that was under way has ended then.
    await look_once()
    version = (await config.stress.disallow("default", GROUP, TOPIC, PAID)).version
    await config.wait_until_active(version, WAIT_SECONDS)
    async with MessageCenter(good.address) as center:
        await center.publish(TOPIC, PAID, "stress", headers=STRESS)
    assert not behind.cluster.cut_off.is_behind

    async with raw_subscriber(behind.address) as raw:
        await eventually(lambda: behind.cluster.cut_off.is_behind, what="it has claimed, and looked then")
        await eventually(lambda: raw.has_ended)

    assert opened == 0
    assert config.subscriptions._tails is not None
    assert await config.subscriptions._tails.lane_owners() == set()


async def test_it_takes_nothing_in_and_says_why_until_it_has_read_the_new_configuration(
    config: ConfigService, start_broker: StartBroker, database_url: str, relay: Relay
) -> None:
    await register_topic(config, queue_count=1)
    await register_group(config)
    await start_broker(lease_seconds=LEASE_SECONDS)
    behind = await start_broker(lease_seconds=LEASE_SECONDS, confdb_url=relay.url)
    async with raw_publisher(behind.address) as earlier:
        message = message_pb2.Message(topic=TOPIC, event_code=PAID, body=b"x", headers={"x-load": "yes"})
        await earlier.send(1, [message], publisher_id=b"p" * 16)
        assert (await earlier.answer()).queue_ids
        await cut(relay, behind, database_url)
        version = (await config.stress.add_rule("default", "x-load", StressOperator.EQUALS, "yes")).version
        await config.wait_until_active(version, WAIT_SECONDS)
        await eventually(lambda: behind.cluster.cut_off.is_behind)

        await earlier.send(2, [message])

        status, told = await earlier.end()
    assert (status, told["msgcenter-reason"]) == (grpc.StatusCode.UNAVAILABLE, ConfigOutdatedError.reason)
    assert [alarm.kind for alarm in behind.alarms.standing] == [AlarmKind.CONFIG_OUTDATED]
    await behind.grpc_door.health.check_once()
    assert await health(behind.address) == NOT_SERVING

    await relay.restore()

    await eventually(lambda: not behind.cluster.cut_off.is_behind)
    assert behind.feed.current.version == version
    # Not by a client of ours: that goes to the other broker where this one refuses it.
    async with raw_publisher(behind.address) as later:
        await later.send(2, [message], publisher_id=b"p" * 16)
        assert (await later.answer()).queue_ids
    assert behind.alarms.standing == []
    await behind.grpc_door.health.check_once()
    assert await health(behind.address) == SERVING


async def test_a_configuration_that_is_newer_but_still_behind_lets_it_serve_nobody_either(
    config: ConfigService, start_broker: StartBroker, database_url: str, relay: Relay, monkeypatch: pytest.MonkeyPatch
) -> None:
    await register_topic(config, queue_count=1)
    await start_broker(lease_seconds=LEASE_SECONDS)
    behind = await start_broker(lease_seconds=LEASE_SECONDS, confdb_url=relay.url)
    await cut(relay, behind, database_url)
    version = (await config.stress.add_rule("default", "x-load", StressOperator.EQUALS, "yes")).version
    await config.wait_until_active(version, WAIT_SECONDS)
    await eventually(lambda: behind.cluster.cut_off.is_behind)
    refusals: list[object] = []
    monkeypatch.setattr(behind.hub, "refuse_all", refusals.append)

    for follow in behind.feed._callbacks:
        follow(replace(behind.feed.current, version=version - 1))

    assert len(refusals) == 1


async def test_while_confdb_is_away_for_everybody_all_goes_on(
    config: ConfigService, start_broker: StartBroker, relay: Relay
) -> None:
    await register_topic(config, queue_count=1)
    await register_group(config)
    broker = await start_broker(lease_seconds=LEASE_SECONDS, confdb_url=relay.url)
    await relay.cut()
    await eventually(lambda: not broker.cluster.cut_off.is_in_contact)

    async with raw_subscriber(broker.address) as raw, MessageCenter(broker.address) as center:
        await center.publish(TOPIC, PAID, "as before")
        await raw.until(1)

    assert raw.bodies == ["as before"]


async def test_where_nobody_else_serves_those_that_are_cut_off_go_on_and_the_change_waits(
    config: ConfigService, start_broker: StartBroker, database_url: str, relay: Relay
) -> None:
    await register_topic(config, queue_count=1)
    await register_group(config)
    broker = await start_broker(lease_seconds=LEASE_SECONDS, confdb_url=relay.url)
    async with raw_subscriber(broker.address) as raw, MessageCenter(broker.address) as center:
        await eventually(lambda: slots_of(broker) == 1)
        await cut(relay, broker, database_url)
        version = (await config.subscriptions.create("default", GROUP, TOPIC, REFUNDED)).version

        assert await config._brokers_behind(version)
        await broker.cluster.cut_off.look_once()

        await center.publish(TOPIC, PAID, "as before")
        await raw.until(1)
    assert raw.bodies == ["as before"]
