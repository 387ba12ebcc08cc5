"""A broker carries out what operators ask of it: the connection of an instance ends, once."""

from __future__ import annotations

from collections.abc import AsyncIterator
from uuid import uuid4

import grpc
import pytest

from confdb.services import ConfigService
from msgbroker.client import MessageCenter
from msgbroker.server.app import Broker
from msgbroker.server.deliver.instances.instance import Instance
from msgbroker.server.requests import BrokerRequests
from msgbroker.v1 import subscriber_pb2, subscriber_pb2_grpc
from msgdb.acts import list_acts
from msgdb.requests import (
    NewRequest,
    Request,
    RequestOutcome,
    ask,
    find_outcomes,
    list_requests,
    note_disconnected,
)
from msgdb.store import MessageStore
from tests.support.broker_requests import asked, outcome_of
from tests.support.collecting import GROUP, PAID, TOPIC, register_group, register_topic, subscribed
from tests.support.eventually import eventually
from tests.support.raw_streams import RawSubscriber, raw_subscriber
from tests.support.unread_streams import at_rest, publish, unread_subscriber, wire_to

BY_ADA = {"actor": "ada", "reason": "it hangs"}


@pytest.fixture
async def served(config: ConfigService, broker: Broker) -> Broker:
    await register_topic(config)
    await register_group(config)
    return broker


def attached(broker: Broker) -> list[Instance]:
    return [instance for group in broker.hub.groups.values() for instance in group.instances.values()]


async def request_of(store: MessageStore, broker: Broker, attachment: str) -> int:
    """Ask for the end of a connection; return the id of what is asked."""
    (group_id,) = broker.hub.groups
    broker_id = broker.cluster.heartbeats.identity.broker_id
    new = NewRequest(broker_id, group_id, attachment, "an instance")
    return await asked(store, new)


async def acts(store: MessageStore, namespace: str = "default") -> list[str]:
    async with store.connection() as conn:
        return [act.action for act in await list_acts(conn, namespace=namespace)]


@pytest.fixture
async def holding(served: Broker) -> AsyncIterator[RawSubscriber]:
    """Connect an instance that holds a message and does not answer."""
    async with raw_subscriber(served.address) as subscriber, MessageCenter(served.address) as center:
        await center.publish(TOPIC, PAID, "held")
        await subscriber.until(1)
        yield subscriber


async def test_a_connection_ends_with_its_reason_and_others_get_what_it_held_at_once(
    served: Broker, message_store: MessageStore, holding: RawSubscriber
) -> None:
    (instance,) = attached(served)
    async with raw_subscriber(served.address, instance_id="other") as other:
        await eventually(lambda: len(attached(served)) == 2)
        request_id = await request_of(message_store, served, instance.name)

        assert await outcome_of(message_store, request_id) is RequestOutcome.DISCONNECTED
        await eventually(lambda: holding.has_ended)
        assert [given.body for given in await other.until(1)] == ["held"]
    assert holding.ended is not None
    assert holding.ended.code() is grpc.StatusCode.UNAVAILABLE
    assert dict(holding.ended.trailing_metadata() or ())["msgcenter-reason"] == "DISCONNECTED"
    assert await acts(message_store) == ["instance.disconnect"]


async def test_an_instance_that_has_connected_again_is_left_alone(
    served: Broker, message_store: MessageStore, holding: RawSubscriber
) -> None:
    (instance,) = attached(served)
    request_id = await request_of(message_store, served, instance.name)
    await outcome_of(message_store, request_id)
    await eventually(lambda: holding.has_ended)
    async with raw_subscriber(served.address) as again:
        await again.until(1)
        again_request = await request_of(message_store, served, instance.name)

        assert await outcome_of(message_store, again_request) is RequestOutcome.GONE
        assert not again.has_ended
        assert len(attached(served)) == 1
    assert await acts(message_store) == ["instance.disconnect"]


async def test_what_was_committed_without_being_heard_of_is_carried_out_and_is_one_act(
    served: Broker, message_store: MessageStore, holding: RawSubscriber
) -> None:
    (instance,) = attached(served)
    (group_id,) = served.hub.groups
    async with message_store.transaction() as conn:
        # As the broker does it, whose commit has succeeded and whose connection to the store then broke.
        broker_id = served.cluster.heartbeats.identity.broker_id
        (request_id,) = await ask(conn, [NewRequest(broker_id, group_id, instance.name, "x")], seconds=60.0, **BY_ADA)
        (request,) = await list_requests(conn, broker_id)
        assert await note_disconnected(conn, request, namespace="default")

    await eventually(lambda: holding.has_ended)
    assert await acts(message_store) == ["instance.disconnect"]
    assert request == Request(request_id, group_id, instance.name, "x", "ada", "it hangs", is_done=False)


async def test_what_was_asked_of_a_broker_is_not_carried_out_by_its_successor(
    served: Broker, message_store: MessageStore, holding: RawSubscriber
) -> None:
    (instance,) = attached(served)
    (group_id,) = served.hub.groups
    # The same name there, by chance: the row names another broker, which is gone.
    of_another = NewRequest(uuid4(), group_id, instance.name, "an instance")
    async with message_store.transaction() as conn:
        (request_id,) = await ask(conn, [of_another], seconds=60.0, **BY_ADA)
    barrier = await request_of(message_store, served, "nobody")

    assert await outcome_of(message_store, barrier) is RequestOutcome.GONE
    async with message_store.connection() as conn:
        assert await find_outcomes(conn, [request_id]) == {}
    assert (attached(served), holding.has_ended) == ([instance], False)


async def test_the_stream_of_who_does_not_read_ends_all_the_same(served: Broker, message_store: MessageStore) -> None:
    async with (
        wire_to(served.address) as wire,
        unread_subscriber(wire),
        MessageCenter(served.address) as center,
    ):
        await publish(center)
        instance = await at_rest(served)
        assert instance.outlet.is_writing
        request_id = await request_of(message_store, served, instance.name)

        assert await outcome_of(message_store, request_id) is RequestOutcome.DISCONNECTED
        # With nobody having read a word.
        await eventually(lambda: instance.outlet.is_closed)
        assert attached(served) == []


async def test_a_puller_is_disconnected_and_its_next_pull_begins_anew(
    served: Broker, message_store: MessageStore
) -> None:
    async with grpc.aio.insecure_channel(served.address) as channel, MessageCenter(served.address) as center:
        await center.publish(TOPIC, PAID, "held")
        stub = subscriber_pb2_grpc.SubscriberStub(channel)
        pull = subscriber_pb2.PullRequest(group=GROUP, instance_id="pulls", wait_ms=5_000)
        first = await stub.Pull(pull)
        (instance,) = attached(served)
        await request_of(message_store, served, instance.name)
        broker_id = served.cluster.heartbeats.identity.broker_id
        ours = BrokerRequests(store=message_store, hub=served.hub, publishers=list, broker_id=broker_id)
        # As the broker's own loop does. Where that is in the middle of it, the second look finds it committed.
        for _ in range(2):
            await ours.carry_out_once()
        # Whether it calls again or not: what it held is its group's.
        assert attached(served) == []
        second = await stub.Pull(pull)

    assert [each.delivery.message.body for each in (*first.messages, *second.messages)] == [b"held", b"held"]
    assert second.messages[0].delivery.attempt == 2


async def test_our_client_connects_again_by_itself(served: Broker, message_store: MessageStore) -> None:
    async with subscribed(served.address, instance_id="ours") as collected, MessageCenter(served.address) as center:
        await eventually(lambda: attached(served))
        (instance,) = attached(served)
        request_id = await request_of(message_store, served, instance.name)
        assert await outcome_of(message_store, request_id) is RequestOutcome.DISCONNECTED
        await eventually(lambda: attached(served) and attached(served)[0].name != instance.name)
        await center.publish(TOPIC, PAID, "later")

        assert await collected.until(1) == ["later"]
