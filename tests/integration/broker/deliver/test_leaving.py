"""What leaves the broker is checked as it leaves, however long it has waited there."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import grpc
import pytest

from confdb.services import ConfigService
from msgbroker.client import MessageCenter
from msgbroker.server.app import Broker
from msgbroker.v1 import subscriber_pb2, subscriber_pb2_grpc
from msgdb.store import MessageStore
from tests.support.broker_fixtures import StartBroker
from tests.support.collecting import (
    PAID,
    TOPIC,
    all_settled,
    dead_letters,
    register_group,
    subscribed,
)
from tests.support.eventually import eventually
from tests.support.stress import STRESS, WHITELISTED, allow, disallow
from tests.support.unread_streams import (
    _BODY,
    _COUNT,
    UnreadSubscriber,
    at_rest,
    instances,
    publish,
    unread_subscriber,
    wire_to,
)


@pytest.fixture
async def broker(start_broker: StartBroker) -> Broker:
    """Return a broker whose leases pass for nothing that happens here."""
    return await start_broker(lease_seconds=60)


@pytest.fixture
async def unread(trade: ConfigService, broker: Broker) -> AsyncIterator[UnreadSubscriber]:
    """Return an instance of a whitelisted group that does not read, through a relay."""
    await register_group(trade, WHITELISTED)
    await allow(trade)
    async with wire_to(broker.address) as wire, unread_subscriber(wire, WHITELISTED) as unread:
        yield unread


def denied(broker: Broker) -> int:
    """Return how many messages were kept from the group."""
    lanes = (owned for _, owned in broker.hub.lanes())
    return broker.hub.counters.totals(lanes, {})["denied"]


async def test_no_stress_message_is_written_once_the_groups_removal_from_the_whitelist_is_active(
    trade: ConfigService, broker: Broker, center: MessageCenter, unread: UnreadSubscriber
) -> None:
    await publish(center, STRESS)
    await at_rest(broker)
    await disallow(trade)
    bytes_then = unread.wire.bytes_down
    reader = unread.read_on()
    await eventually(lambda: reader.has_ended)
    assert unread.wire.bytes_down - bytes_then < len(_BODY)

    assert reader.ended is not None
    assert reader.ended.code() is grpc.StatusCode.UNAVAILABLE
    assert "NOT_READING" in str(reader.ended.details())
    async with subscribed(broker.address, WHITELISTED) as other:
        await center.publish(TOPIC, PAID, "normal")
        await other.until(1)
        await all_settled(broker)
        assert denied(broker) + len(reader.given) == _COUNT
    assert other.bodies == ["normal"]


async def test_no_stress_message_is_written_once_the_kill_switch_is_active(
    trade: ConfigService, broker: Broker, center: MessageCenter, unread: UnreadSubscriber
) -> None:
    await publish(center, STRESS)
    await at_rest(broker)
    switched = await trade.topics.update("default", TOPIC, stress_refused=True)
    await trade.wait_until_active(switched.version)
    bytes_then = unread.wire.bytes_down
    reader = unread.read_on()
    await eventually(lambda: reader.has_ended)

    assert unread.wire.bytes_down - bytes_then < len(_BODY)


async def test_who_reads_on_in_time_is_not_ended_and_the_rest_is_denied(
    trade: ConfigService, broker: Broker, center: MessageCenter, unread: UnreadSubscriber
) -> None:
    outgoing = broker.hub.outgoing
    outgoing.config = replace(outgoing.config, stalled_seconds=60.0)
    await publish(center, STRESS)
    await at_rest(broker)
    version = (await trade.stress.disallow("default", WHITELISTED, TOPIC, PAID)).version
    await eventually(lambda: outgoing.version == version)
    # What is under way was permitted when it began.
    assert outgoing.obeyed_version(version) < version
    reader = unread.read_on()
    await trade.wait_until_active(version)
    assert outgoing.obeyed_version(version) == version
    await center.publish(TOPIC, PAID, "normal")
    await eventually(lambda: "normal" in reader.bodies)

    assert not reader.has_ended
    await reader.settle(*reader.given)
    await all_settled(broker)
    assert denied(broker) == _COUNT + 1 - len(reader.given) > 0


async def test_a_change_that_forbids_nothing_ends_no_stream(
    trade: ConfigService, broker: Broker, center: MessageCenter, unread: UnreadSubscriber
) -> None:
    await publish(center, STRESS)
    instance = await at_rest(broker)
    await eventually(lambda: instance.outlet.is_stalled)
    changed = await trade.topics.create("default", "TP_OTHER")
    await trade.wait_until_active(changed.version)

    assert not instance.is_closed
    assert instance.outlet.stress_version == changed.version


async def test_what_was_never_written_is_not_an_attempt_when_its_time_to_answer_has_passed(
    trade: ConfigService, broker: Broker, center: MessageCenter, message_store: MessageStore
) -> None:
    await register_group(trade, ack_timeout_seconds=1, attempts_max=1)
    async with wire_to(broker.address) as wire, unread_subscriber(wire) as unread:
        await publish(center)
        await at_rest(broker)
        async with subscribed(broker.address) as other:
            await all_settled(broker)
        reader = unread.read_on()
        await center.publish(TOPIC, PAID, "the last")
        await eventually(lambda: "the last" in reader.bodies)
        await broker.checkpointer.flush_once()
        letters = await dead_letters(trade, message_store)

    # What was under way when its time had passed may have arrived all the same.
    assert {letter.body for letter in letters} <= {given.delivery.message.body for given in reader.given}
    assert len(other.bodies) == len(set(other.bodies)) == _COUNT - len(letters)
    assert {message.attempt for message in other.messages} == {1}


async def test_what_was_never_written_is_not_an_attempt_when_its_stream_ends(
    trade: ConfigService, broker: Broker, center: MessageCenter, message_store: MessageStore
) -> None:
    await register_group(trade, attempts_max=1)
    async with wire_to(broker.address) as wire, unread_subscriber(wire) as unread:
        await publish(center)
        await at_rest(broker)
        async with subscribed(broker.address) as other:
            unread.call.cancel()
            await all_settled(broker)
            await broker.checkpointer.flush_once()
            letters = await dead_letters(trade, message_store)

    # One that was written pays for the stream's end.
    assert len(letters) == 1
    assert len(other.messages) == _COUNT - 1


async def test_what_waits_for_an_instance_that_does_not_read_is_given_to_others_and_it_gets_more_once_it_reads(
    trade: ConfigService, broker: Broker, center: MessageCenter
) -> None:
    await register_group(trade)
    async with wire_to(broker.address) as wire, unread_subscriber(wire) as unread:
        await publish(center)
        instance = await at_rest(broker)
        stuck = sum(len(batch.handed.fresh) for batch in instance.under_way)
        async with subscribed(broker.address) as other:
            await eventually(lambda: instance.outlet.is_stalled)
            await eventually(lambda: instance.unsettled + len(other.messages) == _COUNT)
            assert not instance.outbox
            assert instance.unsettled >= stuck > 0
            assert {message.attempt for message in other.messages} == {1}
        reader = unread.read_on()
        await center.publish(TOPIC, PAID, "the last")
        await eventually(lambda: "the last" in reader.bodies)


async def test_a_pull_that_comes_late_gets_nothing_that_is_denied_by_then(
    trade: ConfigService, broker: Broker, center: MessageCenter
) -> None:
    await register_group(trade, WHITELISTED)
    await allow(trade)
    async with grpc.aio.insecure_channel(broker.address) as channel:
        stub: Any = subscriber_pb2_grpc.SubscriberStub(channel)
        pulling = subscriber_pb2.PullRequest(group=WHITELISTED, instance_id="one", messages_max=10)
        await stub.Pull(pulling)
        (instance,) = instances(broker)
        await eventually(lambda: [owned for _, owned in broker.hub.lanes()])
        # As if the call that asked for them had ended in the same moment.
        instance.credit = 10
        await center.publish(TOPIC, PAID, "stress", headers=STRESS)
        await center.publish(TOPIC, PAID, "normal")
        await eventually(lambda: instance.unsettled == 2)
        await disallow(trade)
        pulled = (await stub.Pull(pulling)).messages

    assert [message.delivery.message.body for message in pulled] == [b"normal"]
    assert denied(broker) == 1
