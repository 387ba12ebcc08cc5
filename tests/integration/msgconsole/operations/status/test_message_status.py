"""What becomes of messages with real brokers and clients, as their status tells it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

from confdb.brokers import LiveBroker
from confdb.routes import SubscriptionMode
from confdb.services import ConfigService
from msgbroker.client import MessageCenter, Receipt
from msgbroker.contract.errors import GroupNotFoundError, ThingNotFoundError
from msgbroker.server.app import Broker
from msgbroker.v1 import subscriber_pb2
from msgconsole.operations.brokers import asking
from msgconsole.operations.dead_letters.purge import purge
from msgconsole.operations.dead_letters.redrive import redrive
from msgconsole.operations.lanes.meant import WantedMessage
from msgconsole.operations.lanes.resetting import WantedReset, reset_group
from msgconsole.operations.lanes.steering import Steer, steer_message
from msgconsole.operations.replays.replay import WantedReplay, replay
from msgconsole.operations.status import message_status
from msgconsole.operations.status.answers import Basis, State, Why
from msgconsole.operations.status.message_status import find_status
from msgconsole.operations.status.wanted import WantedStatus
from msgconsole.operations.stores import Stores
from msgdb.dead_letters.wanted import WantedDeadLetters
from tests.support.collecting import GROUP, PAID, REFUNDED, TOPIC, register_group, subscribed
from tests.support.jobs import ended, reject
from tests.support.raw_streams import raw_subscriber
from tests.support.statuses import look, until, until_certain, with_group
from tests.support.stress import STRESS, allow, disallow

HZ = "SG_HZ"
BY_ADA: dict[str, Any] = {"actor": "ada", "reason": "why"}


async def subscribe_hz(config: ConfigService) -> None:
    version = (await config.subscriber_groups.create("default", HZ)).version
    made = await config.subscriptions.create("default", HZ, TOPIC, PAID, expression='headers.region == "hz"')
    assert made.version > version
    await config.wait_until_active(made.version)


async def test_each_group_is_told_what_it_got_and_why_not(
    stores: Stores, broker: Broker, config: ConfigService, center: MessageCenter
) -> None:
    await subscribe_hz(config)
    await register_group(config, "SG_REFUNDS", REFUNDED)
    await config.subscriber_groups.create("default", "SG_NOTHING")
    without = await center.publish(TOPIC, PAID, b"a", key="order-1")
    elsewhere = await center.publish(TOPIC, PAID, b"b", headers={"region": "bj"})
    wanted = await center.publish(TOPIC, PAID, b"c", headers={"region": "hz"})
    async with subscribed(broker.address) as ours, subscribed(broker.address, HZ) as theirs:
        await ours.until(3)
        await theirs.until(1)
        await until(stores, wanted, State.DELIVERED)
        await until(stores, wanted, State.DELIVERED, HZ)
    await register_group(config, "SG_LATE")

    found = await look(stores, without.message_id)
    told = {each.group: each for each in found.places[0].groups}

    assert (found.topic, found.event_code, found.key, found.is_complete) == (TOPIC, PAID, "order-1", True)
    assert {name: (each.state, each.why, each.basis) for name, each in told.items()} == {
        GROUP: (State.DELIVERED, None, Basis.THEN),
        HZ: (State.NOT_MATCHED, Why.EXPRESSION_FAILED, Basis.THEN),
        "SG_LATE": (State.NOT_MATCHED, Why.GROUP_CREATED_LATER, Basis.NOW),
        "SG_NOTHING": (State.NOT_MATCHED, Why.NO_SUBSCRIPTION, Basis.NOW),
        "SG_REFUNDS": (State.NOT_MATCHED, Why.NO_SUBSCRIPTION, Basis.NOW),
    }
    assert "header 'region' is missing" in told[HZ].detail
    assert f"and not to {PAID}" in told["SG_REFUNDS"].detail
    false = await with_group(stores, elsewhere, HZ)
    assert (false.state, false.why) == (State.NOT_MATCHED, Why.EXPRESSION_FALSE)
    assert 'headers.region == "hz"' in false.detail


async def test_what_waits_is_in_flight_comes_again_and_is_given_up(
    stores: Stores, broker: Broker, config: ConfigService, center: MessageCenter
) -> None:
    receipt = await center.publish(TOPIC, PAID, b"a")
    nobody = await with_group(stores, receipt)
    assert (nobody.state, nobody.basis, nobody.is_certain) == (State.PENDING, Basis.NOW, True)
    assert "no broker serves its lane" in nobody.detail

    async with raw_subscriber(broker.address, instance_id="shop-1") as subscriber:
        (given,) = await subscriber.until(1)
        held = await until(stores, receipt, State.IN_FLIGHT)
        assert (held.instance_id, held.attempt, held.basis) == ("shop-1", 1, Basis.BROKER)
        assert held.until is not None
        assert held.until > datetime.now(UTC)

        unasked = (await look(stores, receipt.message_id, asks_brokers=False)).places[0].groups[0]
        assert (unasked.state, "was not asked" in unasked.detail) == (State.PENDING, True)

        await subscriber.settle(given, verdict=subscriber_pb2.VERDICT_RETRY, error="timeout", delay_ms=60_000)
        again = await until(stores, receipt, State.RETRYING, basis=Basis.ROWS)
        assert (again.attempt, again.last_error) == (2, "timeout")
        assert again.due_at is not None
        assert again.due_at > datetime.now(UTC) + timedelta(seconds=30)

    version = (await config.subscriber_groups.update("default", GROUP, paused=True)).version
    await config.wait_until_active(version)
    assert (await with_group(stores, receipt)).detail.endswith("the group is paused")


async def test_a_dead_letter_is_told_with_its_redrive_and_the_copy_apart(
    stores: Stores, broker: Broker, config: ConfigService, center: MessageCenter
) -> None:
    await register_group(config, "SG_OTHER")
    receipt = await center.publish(TOPIC, PAID, b"a")
    async with subscribed(broker.address, act=reject):
        dead = await until(stores, receipt, State.DEAD_LETTER)
    assert dead.dead_letter is not None
    assert (dead.dead_letter.reason, dead.dead_letter.redriven_by, dead.is_certain) == ("REJECTED", (), True)
    assert "the warehouse is closed" in (dead.last_error or "")

    begun = await redrive(stores, WantedDeadLetters(namespace="default", is_open=True), **BY_ADA)
    await ended(stores, begun.job_id)
    async with subscribed(broker.address) as ours:
        await ours.until(1)
        await until(stores, receipt, State.DELIVERED, place=1)

    found = await look(stores, receipt.message_id)
    first, second = found.places
    ids = {each.group: each.group_id for each in first.groups}
    assert [(each.redrives, each.target_group) for each in found.places] == [(0, None), (1, ids[GROUP])]
    letter = next(each for each in first.groups if each.group == GROUP).dead_letter
    assert letter is not None
    assert letter.redriven_by == (begun.job_id,)
    assert {each.group: (each.state, each.why) for each in second.groups} == {
        "SG_OTHER": (State.NOT_MATCHED, Why.FOR_ANOTHER_GROUP),
        GROUP: (State.DELIVERED, None),
    }


async def test_after_a_purge_it_is_said_that_it_may_have_died(
    stores: Stores, broker: Broker, center: MessageCenter
) -> None:
    receipt = await center.publish(TOPIC, PAID, b"a")
    async with subscribed(broker.address, act=reject):
        await until(stores, receipt, State.DEAD_LETTER)
    begun = await purge(stores, WantedDeadLetters(namespace="default", topic=TOPIC), **BY_ADA)
    await ended(stores, begun.job_id)

    told = await with_group(stores, receipt)
    later = await center.publish(TOPIC, PAID, b"b")
    async with subscribed(broker.address):
        await until_certain(stores, later, State.DELIVERED)

    assert told.state is State.DELIVERED
    assert [(other.state, f"job {begun.job_id} purged" in other.detail) for other in told.others] == [
        (State.DEAD_LETTER, True)
    ]


async def skip(stores: Stores, receipt: Receipt) -> None:
    wanted = WantedMessage(namespace="default", group=GROUP, message_id=receipt.message_id)
    done = await steer_message(stores, wanted, Steer.SKIP, **BY_ADA, wait_seconds=10, on_waiting=lambda brokers: None)
    assert done.waiting_for == []


async def test_what_was_skipped_by_hand_is_told_though_its_dead_letter_is_gone(
    stores: Stores, broker: Broker, center: MessageCenter
) -> None:
    receipt = await center.publish(TOPIC, PAID, b"a")
    await skip(stores, receipt)
    begun = await purge(stores, WantedDeadLetters(namespace="default", topic=TOPIC), **BY_ADA)
    await ended(stores, begun.job_id)

    told = await with_group(stores, receipt)

    assert (told.state, told.basis, told.is_certain) == (State.DEAD_LETTER, Basis.ROWS, True)
    assert "by ada: why" in told.detail


async def test_what_was_skipped_once_more_after_a_reset_is_told(
    stores: Stores, broker: Broker, center: MessageCenter
) -> None:
    receipt, other = [await center.publish(TOPIC, PAID, body) for body in ("a", "b")]
    await skip(stores, receipt)
    first = await with_group(stores, receipt)
    await reset(stores, 0, receipt.queue_id)
    again = await with_group(stores, receipt)
    await skip(stores, receipt)

    told = await with_group(stores, receipt)

    assert [each.state for each in (first, again, told)] == [State.DEAD_LETTER, State.PENDING, State.DEAD_LETTER]
    assert told.is_certain
    assert "of before the group was reset" in told.detail
    assert (await with_group(stores, other)).state is State.PENDING


async def reset(stores: Stores, to_offset: int, queue_id: int) -> None:
    wanted = WantedReset(namespace="default", group=GROUP, to_offset=to_offset, queue_id=queue_id)
    done = await reset_group(stores, wanted, **BY_ADA, wait_seconds=10, on_waiting=lambda brokers: None)
    assert done.waiting_for == []


async def test_what_a_reset_skipped_and_what_it_brought_again_is_told(
    stores: Stores, broker: Broker, center: MessageCenter
) -> None:
    receipts = [await center.publish(TOPIC, PAID, f"{number}") for number in range(4)]
    queue_id = receipts[0].queue_id
    async with raw_subscriber(broker.address) as subscriber:
        given = await subscriber.until(4)
        await subscriber.settle(given[1])
        await until(stores, receipts[1], State.DELIVERED)
        await subscriber.settle(given[0], verdict=subscriber_pb2.VERDICT_RETRY, error="no", delay_ms=60_000)
        await until(stores, receipts[0], State.RETRYING)

    await reset(stores, 3, queue_id)
    told = [await with_group(stores, each) for each in receipts]
    assert [each.state for each in told] == [State.SKIPPED, State.DELIVERED, State.SKIPPED, State.PENDING]
    assert "by ada: why" in told[2].detail
    assert told[2].reset_act_id is not None

    await reset(stores, 1, queue_id)
    assert [(await with_group(stores, each)).state for each in receipts] == [
        State.SKIPPED, State.PENDING, State.PENDING, State.PENDING,
    ]  # fmt: skip
    async with subscribed(broker.address) as ours:
        await ours.until(3)
        await until_certain(stores, receipts[3], State.DELIVERED)
        await until_certain(stores, receipts[1], State.DELIVERED)


async def test_a_change_that_may_have_come_before_it_was_read_is_named(
    stores: Stores, broker: Broker, config: ConfigService, center: MessageCenter
) -> None:
    await subscribe_hz(config)
    receipt = await center.publish(TOPIC, PAID, b"a", headers={"region": "hz"})
    async with subscribed(broker.address, HZ) as theirs:
        await theirs.until(1)
        assert (await until_certain(stores, receipt, State.DELIVERED, HZ)).basis is Basis.THEN
    changed = await config.subscriptions.update("default", HZ, TOPIC, PAID, expression='headers.region == "bj"')

    told = await with_group(stores, receipt, HZ)
    version = (await config.subscriptions.update("default", HZ, TOPIC, PAID, mode=SubscriptionMode.DIRECT)).version

    assert (told.state, told.basis, told.is_certain) == (State.DELIVERED, Basis.THEN, False)
    (other,) = told.others
    assert (other.state, other.why) == (State.NOT_MATCHED, Why.EXPRESSION_FALSE)
    assert f"after subscription.update {HZ} {TOPIC}/{PAID}" in other.when
    assert version > changed.version
    assert len((await with_group(stores, receipt, HZ)).others) == 1


async def test_a_paused_subscription_shelves_and_one_that_is_deleted_then_settles(
    stores: Stores, broker: Broker, config: ConfigService, center: MessageCenter
) -> None:
    await config.subscriptions.create("default", GROUP, TOPIC, REFUNDED)
    version = (await config.subscriptions.update("default", GROUP, TOPIC, PAID, paused=True)).version
    await config.wait_until_active(version)
    async with subscribed(broker.address, event_code=REFUNDED):
        receipt = await center.publish(TOPIC, PAID, b"a")
        shelved = await until(stores, receipt, State.SHELVED)
        assert shelved.is_certain
        await config.subscriptions.delete("default", GROUP, TOPIC, PAID)
        told = await until(stores, receipt, State.NOT_MATCHED)
    assert told.why is Why.SUBSCRIPTION_DELETED


async def test_a_stress_message_is_told_by_the_whitelist(
    stores: Stores, broker: Broker, config: ConfigService, center: MessageCenter
) -> None:
    await allow(config, GROUP)
    await register_group(config, "SG_OTHER")
    receipt = await center.publish(TOPIC, PAID, b"a", headers=STRESS)
    async with subscribed(broker.address) as ours, subscribed(broker.address, "SG_OTHER"):
        await ours.until(1)
        await until(stores, receipt, State.DELIVERED)
        denied = await until(stores, receipt, State.NOT_MATCHED, "SG_OTHER")
    assert (denied.why, denied.is_certain) == (Why.STRESS_NOT_ALLOWED, True)
    await disallow(config, GROUP)

    told = await with_group(stores, receipt)

    assert (told.state, [each.why for each in told.others]) == (State.DELIVERED, [Why.STRESS_NOT_ALLOWED])


async def test_a_broker_that_does_not_answer_is_named(
    stores: Stores, broker: Broker, center: MessageCenter, monkeypatch: pytest.MonkeyPatch
) -> None:
    receipt = await center.publish(TOPIC, PAID, b"a")
    async with raw_subscriber(broker.address) as subscriber:
        await subscriber.until(1)
        await until(stores, receipt, State.IN_FLIGHT)
        # That brokers which hang or are gone are not waited for, the tests of `asking` prove.
        monkeypatch.setattr(asking, "_ask_one", _is_silent)
        found = await look(stores, receipt.message_id)

    assert (found.is_complete, found.unanswered) == (False, (asking.Unanswered(broker.address, "it hangs"),))
    told = found.places[0].groups[0]
    assert (told.state, "did not answer" in told.detail) == (State.PENDING, True)


async def _is_silent(broker: LiveBroker, *_: object) -> asking.Unanswered:
    return asking.Unanswered(broker.address, "it hangs")


async def test_what_is_not_there_or_of_another_tenant_is_refused(
    stores: Stores, broker: Broker, config: ConfigService, center: MessageCenter
) -> None:
    receipt = await center.publish(TOPIC, PAID, b"a")
    await config.namespaces.create("other")

    with pytest.raises(ThingNotFoundError, match="in a live day of namespace 'default'"):
        await look(stores, uuid4())
    with pytest.raises(ThingNotFoundError):
        await find_status(stores, WantedStatus(namespace="other", message_id=receipt.message_id))
    behind = WantedStatus(namespace="default", queue_id=receipt.queue_id, queue_offset=1)
    with pytest.raises(ThingNotFoundError):
        await find_status(stores, behind)
    with pytest.raises(GroupNotFoundError):
        await look(stores, receipt.message_id, group="SG_NOBODY")


async def test_by_its_place_it_is_told_after_its_day_is_gone_as_far_as_anything_is_left(
    stores: Stores, broker: Broker, config: ConfigService, center: MessageCenter
) -> None:
    await register_group(config, "SG_OTHER")
    receipt = await center.publish(TOPIC, PAID, b"a", key="order-1")
    place = WantedStatus(namespace="default", queue_id=receipt.queue_id, queue_offset=receipt.queue_offset)
    async with subscribed(broker.address, act=reject):
        await until(stores, receipt, State.DEAD_LETTER)
    by_place = await find_status(stores, place)
    assert by_place.message_id == receipt.message_id
    async with stores.messages.connection() as conn:
        await conn.execute("DELETE FROM message")
        await conn.execute("UPDATE queue SET start_offset = 1")

    gone = await find_status(stores, place)

    assert (gone.message_id, gone.key, gone.topic) == (receipt.message_id, "order-1", TOPIC)
    assert [(each.group, each.state) for each in gone.places[0].groups] == [
        ("SG_OTHER", State.GONE),
        (GROUP, State.DEAD_LETTER),
    ]


async def test_of_a_message_that_was_stored_very_often_the_first_place_and_the_newest_are_told(
    stores: Stores, broker: Broker, center: MessageCenter, monkeypatch: pytest.MonkeyPatch
) -> None:
    receipt = await center.publish(TOPIC, PAID, b"a")
    for _ in range(2):
        wanted = WantedReplay(namespace="default", group=GROUP, message_ids=(receipt.message_id,))
        await ended(stores, (await replay(stores, wanted, **BY_ADA)).job_id)
    whole = await look(stores, receipt.message_id)
    monkeypatch.setattr(message_status, "COPIES_MAX", 2)

    cut = await look(stores, receipt.message_id)

    assert (len(whole.places), whole.is_complete) == (3, True)
    assert (cut.places, cut.has_more_places, cut.is_complete) == ((whole.places[0], whole.places[2]), True, False)
