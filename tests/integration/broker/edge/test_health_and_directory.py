"""What a broker says about itself, and how it goes on when its configuration is out of reach."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

import confdb.schema
from confdb.services import ConfigService
from confdb.store import ConfigStore
from msgbroker.client import MessageCenter, RegistrationDisabledError
from msgbroker.contract.errors import ConfigUnavailableError, GroupNotFoundError, PortInUseError
from msgbroker.server.app import Broker
from msgbroker.v1 import directory_pb2, directory_pb2_grpc
from msgdb.log.queues import QueueTailReader
from msgdb.store import MessageStore
from tests.support.broker_fixtures import StartBroker
from tests.support.collecting import GROUP, PAID, TOPIC, register_group, register_topic, subscribed
from tests.support.eventually import eventually
from tests.support.health import NOT_SERVING, SERVING, health

SERVICES = ("", "msgbroker.v1.Publisher", "msgbroker.v1.Subscriber", "msgbroker.v1.Directory", "msgdb", "confdb")


async def test_a_broker_says_that_it_serves(broker: Broker) -> None:
    assert [await health(broker.address, service) for service in SERVICES] == [SERVING] * len(SERVICES)


async def test_a_broker_that_leaves_says_so_first(broker: Broker) -> None:
    broker.grpc_door.health.leave()

    assert [await health(broker.address, service) for service in SERVICES[:4]] == [NOT_SERVING] * 4


async def test_two_brokers_cannot_share_a_port_by_mistake(broker: Broker, start_broker: StartBroker) -> None:
    with pytest.raises(PortInUseError, match=broker.address):
        await start_broker(listen=broker.address)


async def test_clients_find_all_brokers_through_any_of_them(broker: Broker, start_broker: StartBroker) -> None:
    other = await start_broker()

    async def listed() -> list[str]:
        async with grpc.aio.insecure_channel(broker.address) as channel:
            stub: Any = directory_pb2_grpc.DirectoryStub(channel)
            answer = await stub.ListBrokers(directory_pb2.ListBrokersRequest())
        return [listed.address for listed in answer.brokers]

    # The one that was asked comes first.
    async def both_are_listed() -> bool:
        return await listed() == [broker.address, other.address]

    await eventually(both_are_listed)


async def test_a_repeated_registration_changes_nothing(broker: Broker) -> None:
    async with MessageCenter(broker.address) as center:
        first = await center.register(TOPIC, PAID, group=GROUP)
        again = await center.register(TOPIC, PAID, group=GROUP)

    assert len(first) == 4
    assert again == []


async def test_a_repeated_registration_waits_until_what_another_one_has_made_is_active(
    config: ConfigService, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await register_topic(config)
    may_load = asyncio.Event()
    load = broker.feed._loader.load

    async def load_later() -> Any:
        await may_load.wait()
        return await load()

    monkeypatch.setattr(broker.feed._loader, "load", load_later)
    async with MessageCenter(broker.address) as center:
        first = asyncio.create_task(center.register(TOPIC, PAID, group=GROUP))
        await eventually(lambda: is_subscribed(config), what="the first one has made the subscription")
        again = asyncio.create_task(center.register(TOPIC, PAID, group=GROUP))
        # Who hears that it is there publishes.
        done, _ = await asyncio.wait([first, again], timeout=0.5)
        may_load.set()

        assert done == set()
        assert await again == []
        assert ("default", GROUP) in broker.feed.current.groups
        assert await first == [f"group {GROUP}", f"subscription {GROUP} {TOPIC}/{PAID}"]


async def is_subscribed(config: ConfigService) -> bool:
    """Return whether the group has a subscription, whoever knows of it."""
    try:
        return bool((await config.subscriptions.list("default", group=GROUP)).items)
    except GroupNotFoundError:
        return False


async def test_clients_register_nothing_where_it_is_not_allowed(start_broker: StartBroker) -> None:
    broker = await start_broker(client_registration=False)
    async with MessageCenter(broker.address) as center:
        with pytest.raises(RegistrationDisabledError):
            await center.register(TOPIC, PAID, group=GROUP)


class Confdb:
    """A configuration database of its own that can be taken away."""

    def __init__(self, url: str, admin_url: str) -> None:
        self.url = url
        self._admin_url = admin_url
        self._name = sql.Identifier(str(conninfo_to_dict(url)["dbname"]))

    def take_away(self) -> None:
        """Refuse connections, and end those there are."""
        with psycopg.connect(self._admin_url, autocommit=True) as admin:
            admin.execute(sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS false").format(self._name))
            admin.execute(
                "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = %s", (self._name._obj[0],)
            )

    def bring_back(self) -> None:
        """Take connections again."""
        with psycopg.connect(self._admin_url, autocommit=True) as admin:
            admin.execute(sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS true").format(self._name))


@pytest.fixture
def own_confdb(empty_database_url: str, postgres_url: str) -> Confdb:
    confdb.schema.upgrade(empty_database_url)
    return Confdb(empty_database_url, postgres_url)


@pytest.fixture
async def own_config(own_confdb: Confdb, message_store: MessageStore) -> AsyncIterator[ConfigService]:
    async with ConfigStore.open(own_confdb.url) as store:
        config = ConfigService(store, "test", QueueTailReader(message_store))
        await register_topic(config)
        yield config


async def test_without_its_configuration_a_broker_goes_on_by_its_last_snapshot_and_says_so(
    own_confdb: Confdb, own_config: ConfigService, start_broker: StartBroker
) -> None:
    broker = await start_broker(confdb_url=own_confdb.url)
    await register_group(own_config)

    async def confdb_is(status: int) -> bool:
        return await health(broker.address, "confdb") == status

    async with MessageCenter(broker.address) as center:
        await center.publish(TOPIC, PAID, "before")
        own_confdb.take_away()
        await eventually(lambda: confdb_is(NOT_SERVING))
        # Publishing, and a group that subscribes only now.
        await center.publish(TOPIC, PAID, "during")
        async with subscribed(broker.address) as got:
            await got.until(2)
            assert [await health(broker.address, service) for service in SERVICES[:5]] == [SERVING] * 5

            own_confdb.bring_back()
            await eventually(lambda: confdb_is(SERVING))
            await own_config.event_codes.add("default", TOPIC, "EC_NEW")

            async def is_known() -> bool:
                answers = await asyncio.gather(center.publish(TOPIC, "EC_NEW", "new"), return_exceptions=True)
                return not isinstance(answers[0], BaseException)

            await eventually(is_known)
    assert sorted(got.bodies) == ["before", "during"]


async def test_a_broker_goes_on_while_the_tables_of_its_configuration_are_restored(
    own_confdb: Confdb, own_config: ConfigService, start_broker: StartBroker
) -> None:
    broker = await start_broker(confdb_url=own_confdb.url)

    async def confdb_is(status: int) -> bool:
        return await health(broker.address, "confdb") == status

    async with MessageCenter(broker.address) as center:
        await center.publish(TOPIC, PAID, "before")
        with psycopg.connect(own_confdb.url, autocommit=True) as connection:
            before = connection.execute("SELECT heartbeat_at FROM broker").fetchall()
            for table in ("config_version", "broker"):
                connection.execute(f"ALTER TABLE {table} RENAME TO {table}_away")
            await eventually(lambda: confdb_is(NOT_SERVING))
            await center.publish(TOPIC, PAID, "during")
            for table in ("config_version", "broker"):
                connection.execute(f"ALTER TABLE {table}_away RENAME TO {table}")
            await eventually(lambda: confdb_is(SERVING))
            await eventually(lambda: connection.execute("SELECT heartbeat_at FROM broker").fetchall() > before)


async def test_a_change_reaches_a_broker_within_a_second(config: ConfigService, broker: Broker) -> None:
    changed = await config.topics.create("default", "TP_NEW")

    await eventually(lambda: broker.feed.current.version >= changed.version, 1.0)
    assert ("default", "TP_NEW") in broker.feed.current.topics


async def test_a_broker_without_its_configuration_does_not_start(
    own_confdb: Confdb, own_config: ConfigService, start_broker: StartBroker
) -> None:
    own_confdb.take_away()
    with pytest.raises(ConfigUnavailableError):
        await start_broker(confdb_url=own_confdb.url)
