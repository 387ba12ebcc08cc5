"""Who is connected: instances and publishers, whichever brokers they are at."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import grpc
import pytest

from confdb.services import ConfigService
from confdb.store import ConfigStore
from msgbroker.client import MessageCenter
from msgbroker.client.connect.inspection import WhichInstances
from msgbroker.contract.errors import FeatureNotEverywhereError, InvalidSettingError
from msgbroker.server.app import Broker
from msgbroker.v1 import subscriber_pb2, subscriber_pb2_grpc
from msgconsole.operations.brokers import disconnecting, requesting
from msgconsole.operations.brokers.connected import (
    InstanceRow,
    PublisherRow,
    PublishersReport,
    list_instances,
    list_publishers,
)
from msgconsole.operations.brokers.disconnecting import (
    DisconnectPlan,
    PublisherDisconnectPlan,
    disconnect,
    disconnect_publisher,
    plan_disconnect,
    plan_publisher_disconnect,
)
from msgconsole.operations.stores import Stores
from msgdb.acts import list_acts
from msgdb.requests import RequestOutcome
from msgdb.store import MessageStore
from tests.support.broker_fixtures import StartBroker
from tests.support.collecting import GROUP, PAID, TOPIC, register_group, register_topic, subscribed
from tests.support.eventually import eventually
from tests.support.raw_streams import raw_subscriber

BEGAN = datetime.now(UTC) - timedelta(seconds=1)
ANY = WhichInstances()


@pytest.fixture
async def stores(database_url: str, message_store: MessageStore) -> AsyncIterator[Stores]:
    async with ConfigStore.open(database_url) as opened:
        yield Stores(opened, message_store)


@pytest.fixture
async def trade(config: ConfigService, broker: Broker) -> ConfigService:
    await register_topic(config)
    await register_group(config)
    return config


async def named(stores: Stores, instance_id: str) -> InstanceRow:
    """Return an instance once it is connected."""

    async def look() -> list[InstanceRow]:
        return list((await list_instances(stores, WhichInstances(instance_id=instance_id), 10)).instances)

    (row,) = await eventually(look)
    return row


async def test_an_instance_is_told_of_with_what_it_holds_and_says(
    stores: Stores, broker: Broker, trade: ConfigService
) -> None:
    async with (
        raw_subscriber(broker.address, credit=50, host="shop-1", client_version="node/1.2") as subscriber,
        MessageCenter(broker.address) as center,
    ):
        for body in "abc":
            await center.publish(TOPIC, PAID, body)
        first, *_ = await subscriber.until(3)
        before = await named(stores, "raw")
        await subscriber.settle(first, verdict=subscriber_pb2.VERDICT_RETRY)

        async def heard() -> list[InstanceRow]:
            return [row for row in [await named(stores, "raw")] if row.last_verdict]

        (after,) = await eventually(heard)

    assert (before.namespace, before.group, before.host, before.client_version) == (
        "default",
        GROUP,
        "shop-1",
        "node/1.2",
    )
    assert before.broker == broker.address
    assert (before.credit, before.unsettled, before.last_verdict, before.pulls) == (50, 3, None, False)
    assert BEGAN < before.since <= datetime.now(UTC)
    assert after.last_verdict_at is not None
    assert (after.unsettled, after.last_verdict, after.attachment) == (2, "RETRY", before.attachment)
    assert before.since < after.last_verdict_at <= datetime.now(UTC)
    assert after.settled_per_second > 0


async def test_our_client_says_its_version_and_a_puller_is_told_of_as_such(
    stores: Stores, broker: Broker, trade: ConfigService
) -> None:
    async with grpc.aio.insecure_channel(broker.address) as channel, subscribed(broker.address, instance_id="ours"):
        stub = subscriber_pb2_grpc.SubscriberStub(channel)
        await stub.Pull(subscriber_pb2.PullRequest(group=GROUP, instance_id="pulls"))
        ours, pulls = await named(stores, "ours"), await named(stores, "pulls")

    assert ours.client_version.startswith("python/")
    assert (ours.pulls, pulls.pulls, pulls.credit) == (False, True, 0)


async def test_instances_of_all_brokers_are_one_list_and_can_be_narrowed_and_cut(
    stores: Stores, broker: Broker, start_broker: StartBroker, trade: ConfigService
) -> None:
    other = await start_broker()
    await register_group(trade, "SG_OTHER")
    await trade.namespaces.create("other")
    async with (
        raw_subscriber(broker.address, instance_id="b"),
        raw_subscriber(other.address, instance_id="a"),
        raw_subscriber(other.address, "SG_OTHER", instance_id="c"),
    ):

        async def all_three() -> bool:
            return len((await list_instances(stores, ANY, 10)).instances) == 3

        await eventually(all_three)
        everyone = await list_instances(stores, ANY, 10)
        of_group = await list_instances(stores, WhichInstances(group=GROUP), 10)
        elsewhere = await list_instances(stores, WhichInstances(namespace="other"), 10)
        cut = await list_instances(stores, ANY, 2)

    assert [row.instance_id for row in everyone.instances] == ["c", "a", "b"]
    assert [row.broker for row in everyone.instances] == [other.address, other.address, broker.address]
    assert [row.instance_id for row in of_group.instances] == ["a", "b"]
    assert (elsewhere.instances, everyone.has_more, everyone.unanswered) == ([], False, [])
    assert (len(cut.instances), cut.has_more) == (2, True)


async def test_a_publisher_is_told_of_with_what_it_publishes(
    stores: Stores, broker: Broker, trade: ConfigService
) -> None:
    await trade.wait_until_active((await trade.publisher_groups.create("default", "PG_SHOP")).version)
    async with MessageCenter(broker.address, publisher_group="PG_SHOP") as center:
        for _ in range(5):
            await center.publish(TOPIC, PAID, "x")
        (row,) = (await list_publishers(stores, "", "PG_SHOP", 10)).publishers
        others = await list_publishers(stores, "", "PG_OTHER", 10)
    gone = await eventually(lambda: _is_empty(stores))

    assert (row.namespace, row.broker, row.unanswered_frames) == ("default", broker.address, 0)
    assert (len(row.publisher_id), row.client_version[:7]) == (32, "python/")
    assert BEGAN < row.since <= datetime.now(UTC)
    assert 0 < row.messages_per_second <= 5
    assert (others.publishers, gone) == ([], True)


async def _is_empty(stores: Stores) -> bool:
    return not (await list_publishers(stores, "", "PG_SHOP", 10)).publishers


# --- disconnecting ----------------------------------------------------------------------------------------------------


async def test_an_instance_is_disconnected_from_all_brokers_and_groups_and_others_stay(
    stores: Stores, broker: Broker, start_broker: StartBroker, trade: ConfigService
) -> None:
    other = await start_broker()
    await register_group(trade, "SG_OTHER")
    async with (
        raw_subscriber(broker.address, instance_id="a") as here,
        raw_subscriber(other.address, "SG_OTHER", instance_id="a") as there,
        raw_subscriber(other.address, instance_id="b") as another,
    ):

        async def plan() -> DisconnectPlan | None:
            found = await plan_disconnect(stores, WhichInstances(instance_id="a"))
            return found if len(found.connections) == 2 else None

        found = await eventually(plan)
        assert found is not None
        assert not here.has_ended
        done = await disconnect(stores, found.connections, actor="ada", reason="hangs", on_waiting=lambda _: None)
        again = await disconnect(stores, found.connections, actor="ada", reason="hangs", on_waiting=lambda _: None)
        await eventually(lambda: all(each.has_ended for each in (here, there)))
        assert not another.has_ended

    assert {(each.group, each.broker, each.outcome) for each in done} == {
        (GROUP, broker.address, RequestOutcome.DISCONNECTED),
        ("SG_OTHER", other.address, RequestOutcome.DISCONNECTED),
    }
    assert {each.outcome for each in again} == {RequestOutcome.GONE}
    async with stores.messages.connection() as conn:
        acts = await list_acts(conn)
    assert {act.thing for act in acts} == {f"instance a of {GROUP}", "instance a of SG_OTHER"}
    assert {act.namespace for act in acts} == {"default"}
    assert len(acts) == 2


async def test_an_instance_of_another_namespace_is_disconnected_only_where_that_is_named(
    stores: Stores, broker: Broker, trade: ConfigService
) -> None:
    await trade.namespaces.create("other")
    made = await trade.subscriber_groups.create("other", GROUP)
    await trade.wait_until_active(made.version)
    async with (
        raw_subscriber(broker.address, instance_id="a"),
        raw_subscriber(broker.address, instance_id="a", namespace="other"),
    ):

        async def both() -> bool:
            return len((await list_instances(stores, WhichInstances(instance_id="a"), 10)).instances) == 2

        await eventually(both)
        with pytest.raises(InvalidSettingError, match="namespace must be given: default, other have an instance"):
            await plan_disconnect(stores, WhichInstances(instance_id="a"))
        (meant,) = (await plan_disconnect(stores, WhichInstances("other", instance_id="a"))).connections

    assert meant.namespace == "other"


async def test_a_broker_that_does_not_take_it_in_time_will_not_and_is_named_meanwhile(
    stores: Stores, broker: Broker, trade: ConfigService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requesting, "_TELL_SECONDS", 0.0)
    waited_for: set[str] = set()
    async with raw_subscriber(broker.address) as subscriber:
        row = await named(stores, "raw")
        # Of a broker that died a moment ago.
        dead = dataclasses.replace(row, broker_id=uuid4())
        (done,) = await disconnect(
            stores, [dead], actor="ada", reason="hangs", on_waiting=waited_for.update, seconds=0.3
        )

        assert (done.outcome, waited_for) == (RequestOutcome.EXPIRED, {broker.address})
        assert not subscriber.has_ended


async def connected_publisher(stores: Stores) -> PublisherRow:
    """Return the one publisher there is, once it is connected."""

    async def look() -> list[PublisherRow]:
        return list((await list_publishers(stores, "", "", 10)).publishers)

    (row,) = await eventually(look)
    return row


async def test_a_publisher_is_disconnected_by_what_its_id_begins_with(
    stores: Stores, broker: Broker, trade: ConfigService
) -> None:
    await trade.namespaces.create("other")
    async with MessageCenter(broker.address) as center:
        await center.publish(TOPIC, PAID, "x")
        row = await connected_publisher(stores)
        plan = await plan_publisher_disconnect(stores, "default", row.publisher_id[:8].upper())
        elsewhere = await plan_publisher_disconnect(stores, "other", row.publisher_id)
        (done,) = await disconnect_publisher(
            stores, plan.connections, actor="ada", reason="floods", on_waiting=lambda _: None
        )
        await center.publish(TOPIC, PAID, "y")
        after = await connected_publisher(stores)

    assert [each.attachment for each in plan.connections] == [row.attachment]
    assert elsewhere == PublisherDisconnectPlan([], [])
    assert (done.publisher_id, done.broker, done.outcome) == (
        row.publisher_id,
        broker.address,
        RequestOutcome.DISCONNECTED,
    )
    assert (after.publisher_id, after.attachment == row.attachment) == (row.publisher_id, False)
    async with stores.messages.connection() as conn:
        (act,) = await list_acts(conn)
    assert (act.action, act.thing) == ("publisher.disconnect", f"publisher {row.publisher_id} of no group")


@pytest.mark.parametrize("publisher_id", ["", "abc", "not an id", "12345x"])
async def test_what_is_no_publishers_id_is_refused(
    stores: Stores, broker: Broker, trade: ConfigService, publisher_id: str
) -> None:
    with pytest.raises(InvalidSettingError, match="must be the hexadecimal digits of an id, the first 4 at least"):
        await plan_publisher_disconnect(stores, "default", publisher_id)


async def test_an_id_that_several_begin_with_is_refused_and_so_is_a_broker_that_names_no_streams(
    stores: Stores, broker: Broker, trade: ConfigService, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with MessageCenter(broker.address) as center:
        await center.publish(TOPIC, PAID, "x")
        row = await connected_publisher(stores)
    told = [row, dataclasses.replace(row, publisher_id=row.publisher_id[:-4] + "xxxx")]

    async def list_two(*_: object) -> PublishersReport:
        return PublishersReport(told, has_more=False, unanswered=[])

    monkeypatch.setattr(disconnecting, "list_publishers", list_two)
    with pytest.raises(InvalidSettingError, match=f"must be one publisher's: {told[0].publisher_id}, .* begin so"):
        await plan_publisher_disconnect(stores, "default", row.publisher_id[:6])
    told[:] = [dataclasses.replace(row, attachment="")]
    with pytest.raises(FeatureNotEverywhereError, match=f"upgrade first: {broker.address}"):
        await plan_publisher_disconnect(stores, "default", row.publisher_id[:6])
