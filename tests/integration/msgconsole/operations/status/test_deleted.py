"""What is told of groups, topics and subscriptions that were deleted since a message was stored."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from uuid import UUID

import pytest

from confdb.services import ConfigService
from msgbroker.client import MessageCenter
from msgbroker.contract.errors import GroupNotFoundError
from msgbroker.server.app import Broker
from msgbroker.v1 import subscriber_pb2
from msgconsole.operations.status import deleted, unserved
from msgconsole.operations.status.answers import Basis, GroupStatus, State, Why
from msgconsole.operations.status.message_status import find_status
from msgconsole.operations.status.wanted import WantedStatus
from msgconsole.operations.stores import Stores
from tests.support.collecting import GROUP, PAID, REFUNDED, TOPIC, register_group, subscribed
from tests.support.dead_letter_rows import bury
from tests.support.eventually import eventually
from tests.support.jobs import reject
from tests.support.raw_streams import raw_subscriber
from tests.support.statuses import look, until, until_certain

_LEFT_BY_A_KILLED_BROKER = """
UPDATE cursor SET acked_offset = 0, acked_ranges = '{}', owner = '00000000-0000-4000-8000-000000000001',
                  lease_until = clock_timestamp() - interval '1 minute'
"""


async def told(stores: Stores, message_id: UUID, group: str | None = None) -> list[GroupStatus]:
    return list((await look(stores, message_id, group=group)).places[0].groups)


async def settled_down(stores: Stores, message_id: UUID) -> list[GroupStatus]:
    """Return what is told once no broker may serve the lane of a deleted group any more, as far as that is known."""

    async def is_quiet() -> list[GroupStatus] | None:
        found = await told(stores, message_id)
        return None if any(each.state is State.IN_FLIGHT for each in found) else found

    quiet = await eventually(is_quiet, what="nothing in flight")
    assert quiet is not None
    return quiet


async def test_a_deleted_group_is_told_of_with_what_became_of_each_message(
    stores: Stores, broker: Broker, config: ConfigService, center: MessageCenter
) -> None:
    before = datetime.now(UTC)
    delivered = await center.publish(TOPIC, PAID, b"a")
    async with subscribed(broker.address) as ours:
        await ours.until(1)
        await until(stores, delivered, State.DELIVERED)
    dead = await center.publish(TOPIC, PAID, b"b")
    async with subscribed(broker.address, act=reject):
        await until(stores, dead, State.DEAD_LETTER)
    waiting = await center.publish(TOPIC, PAID, b"c")
    async with raw_subscriber(broker.address) as subscriber:
        (given,) = await subscriber.until(1)
        await subscriber.settle(given, verdict=subscriber_pb2.VERDICT_RETRY, error="timeout", delay_ms=60_000)
        await until(stores, waiting, State.RETRYING, basis=Basis.ROWS)
    unread = await center.publish(TOPIC, PAID, b"d")
    unwanted = await center.publish(TOPIC, REFUNDED, b"e")
    await config.subscriber_groups.delete("default", GROUP)

    found = [(await told(stores, each.message_id))[0] for each in (delivered, dead, waiting, unread, unwanted)]

    assert [(each.state, each.why) for each in found] == [
        (State.DELIVERED, None),
        (State.DEAD_LETTER, None),
        (State.NOT_MATCHED, Why.GROUP_DELETED),
        (State.NOT_MATCHED, Why.GROUP_DELETED),
        (State.NOT_MATCHED, Why.NO_SUBSCRIPTION),
    ]
    gone = found[0].deleted
    assert gone is not None
    assert (gone.by, gone.subscriptions) == ("test", (PAID,))
    assert gone.created_at is not None
    assert gone.created_at < before < gone.at
    assert (found[2].last_error, "it waited for attempt 2" in found[2].detail) == ("timeout", True)
    assert found[1].dead_letter is not None
    # Brokers may not have heard of it yet.
    assert [each.state for each in found[3].others] == [State.PENDING]


async def test_of_one_name_each_group_is_told_apart(
    stores: Stores, broker: Broker, config: ConfigService, center: MessageCenter
) -> None:
    first = await center.publish(TOPIC, PAID, b"a")
    async with subscribed(broker.address) as ours:
        await ours.until(1)
        await until(stores, first, State.DELIVERED)
    await config.subscriber_groups.delete("default", GROUP)
    await register_group(config)
    second = await center.publish(TOPIC, PAID, b"b")
    async with subscribed(broker.address) as ours:
        await ours.until(1)
        await until_second(stores, second.message_id)

    old, new = await told(stores, first.message_id, GROUP)
    late, got = await told(stores, second.message_id, GROUP)

    assert old.group == new.group
    assert old.group_id < new.group_id
    assert [each.deleted is None for each in (old, new, late, got)] == [False, True, False, True]
    assert [(each.state, each.why) for each in (old, new, late, got)] == [
        (State.DELIVERED, None),
        (State.NOT_MATCHED, Why.GROUP_CREATED_LATER),
        (State.NOT_MATCHED, Why.GROUP_DELETED),
        (State.DELIVERED, None),
    ]


async def until_second(stores: Stores, message_id: UUID) -> None:
    async def is_there() -> bool:
        return (await told(stores, message_id, GROUP))[-1].state is State.DELIVERED

    await eventually(is_there, what="delivered to the group that was made again")


async def test_what_was_traced_is_told_for_certain(
    stores: Stores, broker: Broker, config: ConfigService, center: MessageCenter
) -> None:
    version = (await config.topics.update("default", TOPIC, trace_rate=1.0)).version
    await config.wait_until_active(version)
    receipt = await center.publish(TOPIC, PAID, b"a")
    async with subscribed(broker.address) as ours:
        await ours.until(1)
        await until_certain(stores, receipt, State.DELIVERED)
    await config.subscriptions.update("default", GROUP, TOPIC, PAID, expression='"vip" in headers')
    await config.subscriber_groups.delete("default", GROUP)

    async def is_traced() -> bool:
        return (await told(stores, receipt.message_id))[0].basis is Basis.ROWS

    await eventually(is_traced, what="the trace of it")
    (found,) = await told(stores, receipt.message_id)

    assert (found.state, found.is_certain) == (State.DELIVERED, True)
    assert "acknowledged it at" in found.detail


async def test_of_a_topic_that_was_deleted_and_made_again_it_is_told_what_became_of_the_old_messages(
    stores: Stores, broker: Broker, config: ConfigService, center: MessageCenter
) -> None:
    delivered = await center.publish(TOPIC, PAID, b"a")
    async with subscribed(broker.address) as ours:
        await ours.until(1)
        await until(stores, delivered, State.DELIVERED)
    unread = await center.publish(TOPIC, PAID, b"b")
    await config.topics.delete("default", TOPIC, with_subscriptions=True)
    await config.topics.create("default", TOPIC)
    await config.event_codes.add("default", TOPIC, PAID)
    await config.subscriptions.create("default", GROUP, TOPIC, PAID)

    (got,) = await told(stores, delivered.message_id)
    (lost,) = await settled_down(stores, unread.message_id)

    assert (got.state, got.deleted) == (State.DELIVERED, None)
    assert (lost.state, lost.why) == (State.NOT_MATCHED, Why.TOPIC_DELETED)
    assert "the topic was deleted at" in lost.detail


async def test_a_subscription_that_is_no_more_is_told_of(
    stores: Stores, broker: Broker, config: ConfigService, center: MessageCenter
) -> None:
    receipt = await center.publish(TOPIC, PAID, b"a")
    await config.subscriptions.delete("default", GROUP, TOPIC, PAID)

    (without,) = await told(stores, receipt.message_id)
    await config.subscriptions.create("default", GROUP, TOPIC, PAID)
    (begun_again,) = await told(stores, receipt.message_id)

    for each in (without, begun_again):
        assert (each.state, each.why) == (State.NOT_MATCHED, Why.SUBSCRIPTION_DELETED)
        assert f"until subscription.delete {GROUP} {TOPIC}/{PAID} of" in each.detail


async def test_there_is_no_end_of_deleted_groups(
    stores: Stores, broker: Broker, config: ConfigService, center: MessageCenter, monkeypatch: pytest.MonkeyPatch
) -> None:
    receipt = await center.publish(TOPIC, PAID, b"a")
    for _ in range(3):
        await config.subscriber_groups.create("default", "SG_SHORT")
        await config.subscriber_groups.delete("default", "SG_SHORT")
    whole = await look(stores, receipt.message_id)
    monkeypatch.setattr(deleted, "DELETED_MAX", 2)

    cut = await look(stores, receipt.message_id)

    assert (len(whole.places[0].groups), whole.is_complete) == (4, True)
    assert (cut.places[0].groups, cut.is_complete) == ((whole.places[0].groups[0], *whole.places[0].groups[2:]), False)
    with pytest.raises(GroupNotFoundError):
        await look(stores, receipt.message_id, group="SG_NEVER")


async def test_of_a_message_that_is_gone_the_dead_letters_of_deleted_groups_are_left(
    stores: Stores, broker: Broker, config: ConfigService, center: MessageCenter
) -> None:
    await register_group(config, "SG_OTHER")
    receipt = await center.publish(TOPIC, PAID, b"a")
    async with subscribed(broker.address, act=reject):
        await until(stores, receipt, State.DEAD_LETTER)
    await config.subscriber_groups.delete("default", GROUP)
    await config.subscriber_groups.create("default", GROUP)
    async with stores.messages.connection() as conn:
        await conn.execute("DELETE FROM message")
        await conn.execute("UPDATE queue SET start_offset = 1")
    place = WantedStatus(namespace="default", queue_id=receipt.queue_id, queue_offset=receipt.queue_offset)

    found = (await find_status(stores, place)).places[0].groups
    await config.topics.delete("default", TOPIC, with_subscriptions=True)
    still = await find_status(stores, replace(place, group=GROUP))

    assert [(each.group, each.state, each.deleted is None) for each in found] == [
        ("SG_OTHER", State.GONE, True),
        (GROUP, State.DEAD_LETTER, False),
        (GROUP, State.GONE, True),
    ]
    assert found[1].deleted is not None
    assert found[1].deleted.by == "test"
    assert (still.topic, [each.state for each in still.places[0].groups]) == (TOPIC, [State.DEAD_LETTER, State.GONE])


async def test_what_was_acknowledged_after_the_last_checkpoint_is_not_told_for_certain_as_not_delivered(
    stores: Stores, broker: Broker, config: ConfigService, center: MessageCenter, monkeypatch: pytest.MonkeyPatch
) -> None:
    receipt = await center.publish(TOPIC, PAID, b"a")
    async with subscribed(broker.address) as ours:
        await ours.until(1)
        await until(stores, receipt, State.DELIVERED)

    async def is_nobodys() -> bool:
        async with stores.messages.connection() as conn:
            return await (await conn.execute("SELECT owner FROM cursor")).fetchall() == [(None,)]

    await eventually(is_nobodys, what="the lane given up")
    async with stores.messages.connection() as conn:
        # As a broker leaves it that is killed before its checkpoint.
        await conn.execute(_LEFT_BY_A_KILLED_BROKER)
    await config.subscriber_groups.delete("default", GROUP)
    # All brokers have heard of it by now.
    monkeypatch.setattr(unserved, "UNCERTAIN_US", -1e9)

    (found,) = await told(stores, receipt.message_id)

    assert (found.state, found.why) == (State.NOT_MATCHED, Why.GROUP_DELETED)
    assert not found.is_certain


async def test_what_expired_after_its_group_was_deleted_is_told_of_that_group(
    stores: Stores, broker: Broker, config: ConfigService, center: MessageCenter
) -> None:
    for body in (b"a", b"b"):
        receipt = await center.publish(TOPIC, PAID, body)
    group_id = (await config.subscriber_groups.get("default", GROUP)).group_id
    await config.subscriber_groups.delete("default", GROUP)
    async with stores.messages.connection() as conn:
        # As maintenance does: it knows the names of registered groups only.
        said = {"queue_id": receipt.queue_id, "topic": TOPIC, "event_code": PAID, "reason": "EXPIRED"}
        await bury(conn, 1, group_id=group_id, group_name="", **said)
        await conn.execute("DELETE FROM message")
        await conn.execute("UPDATE queue SET start_offset = 2")
    place = WantedStatus(namespace="default", queue_id=receipt.queue_id, queue_offset=1, group=GROUP)

    (found,) = (await find_status(stores, place)).places[0].groups

    assert (found.group, found.group_id, found.deleted is None) == (GROUP, group_id, False)
