"""What the dry run of a change foretells is what happens once it is made: by a broker, its instances and its lanes."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from typing import Any
from uuid import UUID, uuid4

import pytest

from confdb import features
from confdb.brokers import BrokerBeat, BrokerRegistry
from confdb.routes import StressOperator, SubscriptionMode
from confdb.services import ConfigService
from confdb.store import ConfigStore
from msgbroker.client import Message, MessageCenter
from msgbroker.contract.errors import BodyTooLargeError, StressRefusedError, TopicClosedError
from msgbroker.server.app import Broker
from msgconsole.operations.configuration import activity, topic_preview
from msgconsole.operations.configuration.foretelling import Foretold
from msgconsole.operations.configuration.group_preview import preview_group_update
from msgconsole.operations.configuration.newest import NamedType
from msgconsole.operations.configuration.rule_preview import GroupShare, preview_rule
from msgconsole.operations.configuration.stress_preview import preview_whitelist
from msgconsole.operations.configuration.subscribing import WantedSubscription, subscribe, update_subscription
from msgconsole.operations.configuration.subscription_preview import (
    preview_subscribe,
    preview_subscription_update,
    preview_unsubscribe,
)
from msgconsole.operations.configuration.topic_preview import preview_topic_update
from msgconsole.operations.lanes.meant import WantedMessage
from msgconsole.operations.lanes.resetting import WantedReset, reset_group
from msgconsole.operations.lanes.steering import Steer, steer_message
from msgconsole.operations.stores import Stores
from msgdb.lanes.attempts import count_by_attempt
from msgdb.store import MessageStore
from tests.support.collecting import (
    GROUP,
    PAID,
    REFUNDED,
    TOPIC,
    Collected,
    all_settled,
    dead_letters,
    register_group,
    subscribed,
)
from tests.support.eventually import eventually
from tests.support.jobs import ended

EXPRESSIONS = (
    'headers.region == "hz"',
    'headers.region != "hz"',
    "int(headers.amount) > 100",
    '"region" in headers && headers.region in ["hz", "sh"]',
    'headers.exists(k, k.startsWith("x-"))',
    'headers["amount"].matches("^[0-9]+$")',
)
PUBLISHED = 30


@pytest.fixture
async def stores(database_url: str, message_store: MessageStore) -> AsyncIterator[Stores]:
    async with ConfigStore.open(database_url) as config_store:
        yield Stores(config_store, message_store)


def by_chance(chance: random.Random) -> list[tuple[str, dict[str, str]]]:
    """Return event codes and headers of messages."""
    choices = {
        "region": ["hz", "sh", "bj"],
        "amount": ["5", "500", "much"],
        "x-origin": ["shop"],
        "x-stress-test": ["true"],
    }
    return [
        (
            chance.choice([PAID, PAID, REFUNDED]),
            {name: chance.choice(values) for name, values in choices.items() if chance.random() < 0.5},
        )
        for _ in range(PUBLISHED)
    ]


async def publish(center: MessageCenter, messages: Sequence[tuple[str, dict[str, str]]]) -> list[UUID]:
    return [
        (await center.publish(TOPIC, code, str(number), headers=headers)).message_id
        for number, (code, headers) in enumerate(messages)
    ]


async def given_again(
    broker: Broker, center: MessageCenter, ours: Collected, messages: Sequence[tuple[str, dict[str, str]]]
) -> set[int]:
    """Publish the messages once more, and return which of them the group gets."""
    before = len(ours.messages)
    await publish(center, messages)
    await all_settled(broker)
    bodies = [int(body) for body in ours.bodies[before:]]
    assert len(bodies) == len(set(bodies))
    return set(bodies)


async def nothing_waits(stores: Stores) -> bool:
    async with stores.messages.connection() as conn:
        return await (await conn.execute("SELECT count(*) FROM redelivery")).fetchone() == (0,)


def check(
    foretold: Foretold, ids: Sequence[UUID], was_given: set[int], is_given: set[int], event_code: str, codes: list[str]
) -> None:
    """Compare what was foretold of a type with what a group was given, before and after."""
    of_type = {number for number, code in enumerate(codes) if event_code in {code, "*"}}
    was, is_ = was_given & of_type, is_given & of_type
    assert was_given - of_type == is_given - of_type, "what is of other types goes on as it was"
    assert foretold.looked_at == len(of_type)
    assert (foretold.before, foretold.after) == (len(was), len(is_))
    assert (foretold.newly, foretold.no_longer) == (len(is_ - was), len(was - is_))
    assert len(foretold.newly_examples) == min(3, foretold.newly)
    assert {ids.index(each) for each in foretold.newly_examples} <= is_ - was
    assert {ids.index(each) for each in foretold.no_longer_examples} <= was - is_


@pytest.mark.parametrize("seed", range(12))
async def test_after_a_change_of_a_subscription_a_group_gets_what_was_foretold(
    seed: int, trade: ConfigService, broker: Broker, stores: Stores, center: MessageCenter
) -> None:
    chance = random.Random(seed)
    await trade.subscriber_groups.create("default", GROUP)
    code = chance.choice([PAID, "*"])
    await trade.subscriptions.create("default", GROUP, TOPIC, code, expression=chance.choice([None, *EXPRESSIONS]))
    if chance.random() < 0.5:
        other = chance.choice([REFUNDED, PAID if code == "*" else "*"])
        await trade.subscriptions.create("default", GROUP, TOPIC, other, expression=chance.choice(EXPRESSIONS))
    if chance.random() < 0.5:
        await trade.stress.allow("default", GROUP, TOPIC, PAID)
    version = (await trade.topics.update("default", TOPIC, trace_rate=0.5)).version
    await trade.wait_until_active(version)
    change: dict[str, Any] = chance.choice(
        [
            {"expression": chance.choice(EXPRESSIONS)},
            {"expression": chance.choice(EXPRESSIONS)},
            {"mode": SubscriptionMode.DIRECT},
            {"expression": chance.choice(EXPRESSIONS), "paused": True},
        ]
    )
    messages = by_chance(chance)
    codes = [event_code for event_code, _ in messages]
    async with subscribed(broker.address) as ours:
        ids = await publish(center, messages)
        await all_settled(broker)
        was_given = {int(body) for body in ours.bodies}

        preview = await preview_subscription_update(stores, NamedType("default", GROUP, TOPIC, code), **change)
        await update_subscription(stores, "default", GROUP, TOPIC, code, actor="ada", **change)
        before = len(ours.messages)
        at_once = await given_again(broker, center, ours, messages)
        # What waits for a paused subscription comes once that goes on.
        await update_subscription(stores, "default", GROUP, TOPIC, code, actor="ada", paused=False)
        await ours.until(before + len(at_once) + preview.foretold.waits)
        await eventually(lambda: nothing_waits(stores), what="nothing waits any more")
        is_given = {int(body) for body in ours.bodies[before:]}

    check(preview.foretold, ids, was_given, is_given, code, codes)
    assert preview.foretold.waits == len(is_given - at_once)
    assert preview.is_all


async def test_a_group_that_is_subscribed_gets_what_was_foretold_and_loses_it_again(
    trade: ConfigService, broker: Broker, stores: Stores, center: MessageCenter
) -> None:
    messages = by_chance(random.Random(7))
    codes = [event_code for event_code, _ in messages]
    await register_group(trade, GROUP, REFUNDED)
    wanted = WantedSubscription(
        namespace="default", group=GROUP, topic=TOPIC, event_code=PAID, expression=EXPRESSIONS[3], from_beginning=True
    )
    async with subscribed(broker.address) as ours:
        ids = await publish(center, messages)
        await all_settled(broker)
        was_given = {int(body) for body in ours.bodies}

        preview = await preview_subscribe(stores, wanted)
        assert preview.by_job
        assert preview.stored is not None
        assert preview.begins_at is not None
        done = await subscribe(stores, wanted, actor="ada")
        await trade.wait_until_active(done.made.version)
        assert done.job_id is not None
        job = await ended(stores, done.job_id)
        await all_settled(broker)
        stored = len(ours.bodies) - len(was_given)
        is_given = await given_again(broker, center, ours, messages)

        leaving = await preview_unsubscribe(stores, NamedType("default", GROUP, TOPIC, PAID))
        await trade.wait_until_active((await trade.subscriptions.delete("default", GROUP, TOPIC, PAID)).version)
        is_left = await given_again(broker, center, ours, messages)

    check(preview.foretold, ids, was_given, is_given, PAID, codes)
    assert (preview.stored.selected, preview.stored.selected - preview.stored.denied) == (job.done, stored)
    # Of both times that they were published; the copies that the job stored are not counted.
    assert (leaving.foretold.looked_at, leaving.foretold.copies) == (2 * codes.count(PAID), job.done)
    assert leaving.foretold.no_longer == 2 * len(is_given - is_left)


async def test_a_group_that_is_put_on_the_whitelist_gets_the_stress_traffic_that_was_foretold(
    trade: ConfigService, broker: Broker, stores: Stores, center: MessageCenter
) -> None:
    messages = by_chance(random.Random(3))
    codes = [event_code for event_code, _ in messages]
    await register_group(trade, GROUP, PAID, REFUNDED)
    asked = NamedType("default", GROUP, TOPIC, PAID)
    async with subscribed(broker.address) as ours:
        ids = await publish(center, messages)
        await all_settled(broker)
        was_given = {int(body) for body in ours.bodies}
        await trade.wait_until_active((await trade.subscriber_groups.update("default", GROUP, paused=True)).version)
        await publish(center, messages)

        preview = await preview_whitelist(stores, asked, allowed=True)

        before = len(ours.messages)
        await trade.stress.allow("default", GROUP, TOPIC, PAID)
        await trade.wait_until_active((await trade.subscriber_groups.update("default", GROUP, paused=False)).version)
        await all_settled(broker)
        waited = {int(body) for body in ours.bodies[before:]}
        is_given = await given_again(broker, center, ours, messages)

        leaving = await preview_whitelist(stores, asked, allowed=False)

    stress = {number for number, (code, headers) in enumerate(messages) if code == PAID and "x-stress-test" in headers}
    assert stress
    assert preview.unsettled is not None
    assert (preview.unsettled.looked_at, preview.unsettled.concerned) == (PUBLISHED, len(waited & stress))
    assert waited == is_given
    assert is_given - was_given == stress
    assert preview.foretold.newly == 2 * len(stress)
    assert {ids.index(each) for each in preview.foretold.newly_examples if each in ids} <= stress
    assert (leaving.foretold.no_longer, leaving.foretold.newly) == (3 * len(stress), 0)
    assert codes.count(PAID) * 2 == preview.foretold.looked_at


async def test_of_stress_traffic_from_before_a_subscription_nothing_is_foretold(
    trade: ConfigService, broker: Broker, stores: Stores, center: MessageCenter
) -> None:
    await register_group(trade, GROUP, PAID)
    await trade.wait_until_active((await trade.subscriber_groups.update("default", GROUP, paused=True)).version)
    asked = NamedType("default", GROUP, TOPIC, REFUNDED)
    async with subscribed(broker.address) as ours:
        await publish(center, [(REFUNDED, {"x-stress-test": "true"})] * 3)
        wanted = WantedSubscription(namespace="default", group=GROUP, topic=TOPIC, event_code=REFUNDED)
        made = (await subscribe(stores, wanted, actor="ada")).made
        await trade.wait_until_active(made.version)
        await publish(center, [(REFUNDED, {"x-stress-test": "true"})] * 2)

        preview = await preview_whitelist(stores, asked, allowed=True)

        await trade.stress.allow("default", GROUP, TOPIC, REFUNDED)
        await trade.wait_until_active((await trade.subscriber_groups.update("default", GROUP, paused=False)).version)
        await all_settled(broker)
    assert preview.unsettled is not None
    assert preview.unsettled.concerned == len(ours.messages) == 2


async def test_of_a_group_that_was_put_back_all_from_there_on_is_foretold(
    trade: ConfigService, broker: Broker, stores: Stores, center: MessageCenter
) -> None:
    await publish(center, [(PAID, {"x-stress-test": "true"})] * 3)
    await register_group(trade, GROUP, PAID)
    await reset_group(
        stores,
        WantedReset(namespace="default", group=GROUP, to_beginning=True),
        actor="ada",
        reason="why",
        wait_seconds=10.0,
        on_waiting=lambda _: None,
    )

    preview = await preview_whitelist(stores, NamedType("default", GROUP, TOPIC, PAID), allowed=True)

    allowed = await trade.stress.allow("default", GROUP, TOPIC, PAID)
    await trade.wait_until_active(allowed.version)
    async with subscribed(broker.address) as ours:
        await ours.until(3)
    assert preview.unsettled is not None
    assert preview.unsettled.concerned == 3


async def test_a_rule_is_foretold_to_keep_what_it_marks_from_groups(
    trade: ConfigService, broker: Broker, stores: Stores, center: MessageCenter
) -> None:
    messages = [(PAID, {"x-load": "yes"})] * 3 + [(PAID, {})] * 2
    await register_group(trade)
    async with subscribed(broker.address) as ours:
        await publish(center, messages)

        preview = await preview_rule(stores, "default", "x-load", StressOperator.EXISTS, "", added=True)

        await ours.until(5)
        await trade.wait_until_active((await trade.stress.add_rule("default", "x-load", StressOperator.EXISTS)).version)
        assert await given_again(broker, center, ours, messages) == {3, 4}
    (marked,) = preview.topics
    assert (marked.topic, marked.looked_at, marked.newly_marked, marked.no_longer_marked) == (TOPIC, 5, 3, 0)
    assert marked.groups == (GroupShare(GROUP, newly=0, no_longer=3),)
    assert (preview.topics_looked_at, preview.not_looked_at) == (1, ())


async def test_messages_that_would_be_dead_letters_are_those_that_are_once_their_attempt_fails(
    trade: ConfigService, broker: Broker, stores: Stores, center: MessageCenter
) -> None:
    await register_group(trade, retry_schedule_seconds=(600.0, 600.0, 600.0))
    group_id = (await trade.subscriber_groups.get("default", GROUP)).group_id

    async def fail(_: Message) -> None:
        raise ValueError("not today")

    async def waiting() -> dict[int, int] | None:
        async with stores.messages.connection() as conn:
            counted = await count_by_attempt(conn, group_id)
        return counted if sum(counted.values()) == 3 else None

    async with subscribed(broker.address, act=fail):
        ids = await publish(center, [(PAID, {})] * 3)
        assert await eventually(waiting, what="all of them wait") == {2: 3}

        more = await preview_group_update(stores, "default", GROUP, retry_schedule_seconds=(1.0,) * 5)
        fewer = await preview_group_update(stores, "default", GROUP, attempts_max=2)
        assert more.attempts is not None
        assert (more.attempts.waiting, more.attempts.last_after) == (3, 0)
        assert fewer.attempts is not None
        assert (fewer.attempts.last_before, fewer.attempts.last_after, fewer.attempts.newly_last) == (0, 3, 3)

        await trade.wait_until_active((await trade.subscriber_groups.update("default", GROUP, attempts_max=2)).version)
        for message_id in ids:
            await steer_message(
                stores,
                WantedMessage(namespace="default", group=GROUP, message_id=message_id),
                Steer.RETRY_NOW,
                actor="ada",
                reason="why",
                wait_seconds=10.0,
                on_waiting=lambda _: None,
            )

        async def all_dead() -> bool:
            return len(await dead_letters(trade, stores.messages)) == 3

        await eventually(all_dead, what="all of them are dead letters")


async def test_what_a_group_is_at_is_told_and_who_does_not_answer_is_named(
    trade: ConfigService, broker: Broker, stores: Stores, center: MessageCenter
) -> None:
    await register_group(trade)
    go_on = asyncio.Event()

    async def hold(_: Message) -> None:
        await go_on.wait()

    async with subscribed(broker.address, act=hold, instance_id="points-0") as ours:
        await publish(center, [(PAID, {})] * 3)
        await ours.until(3)

        paused = await preview_group_update(stores, "default", GROUP, paused=True)
        fewer = await preview_group_update(stores, "default", GROUP, unsettled_max=2)
        of_subscription = await preview_subscription_update(
            stores, NamedType("default", GROUP, TOPIC, PAID), paused=True
        )
        go_on.set()
    assert paused.activity is not None
    assert (paused.activity.instances, paused.activity.in_flight, paused.activity.behind) == (1, 3, 3)
    assert not paused.activity.has_more_instances
    assert paused.activity == of_subscription.activity == fewer.activity
    assert paused.holding_more is None
    assert fewer.holding_more is not None
    assert [(each.instance_id, each.unsettled) for each in fewer.holding_more] == [("points-0", 3)]


async def test_that_more_are_connected_than_are_counted_is_told(
    trade: ConfigService, broker: Broker, stores: Stores, center: MessageCenter, monkeypatch: pytest.MonkeyPatch
) -> None:
    await register_group(trade)
    await center.publish(TOPIC, PAID, b"")
    for module in (activity, topic_preview):
        monkeypatch.setattr(module, "COUNT_MAX", 1)
    async with (
        subscribed(broker.address, instance_id="points-0"),
        subscribed(broker.address, instance_id="points-1"),
        MessageCenter(broker.address) as another,
    ):
        await another.publish(TOPIC, PAID, b"")
        of_group = (await preview_group_update(stores, "default", GROUP, paused=True)).activity
        of_topic = (await preview_topic_update(stores, "default", TOPIC, is_closed=True)).publishing

    assert of_group is not None
    assert of_topic is not None
    assert (of_group.instances, of_group.has_more_instances) == (1, True)
    assert (of_topic.publishers, of_topic.has_more_publishers) == (1, True)


async def test_what_a_topic_would_refuse_is_refused_once_it_is_changed(
    trade: ConfigService, broker: Broker, stores: Stores, center: MessageCenter
) -> None:
    await register_group(trade)
    await trade.stress.allow("default", GROUP, TOPIC, PAID)
    await center.publish(TOPIC, PAID, b"x" * 100)
    large = await center.publish(TOPIC, PAID, b"x" * 101)
    await center.publish(TOPIC, PAID, b"", headers={"x-stress-test": "true"})

    smaller = await preview_topic_update(stores, "default", TOPIC, body_bytes_max=100)
    refusing = await preview_topic_update(stores, "default", TOPIC, stress_refused=True)
    closing = await preview_topic_update(stores, "default", TOPIC, is_closed=True)
    wider = await preview_topic_update(stores, "default", TOPIC, queue_count=8)

    assert smaller.refused is not None
    assert (smaller.refused.looked_at, smaller.refused.messages) == (3, 1)
    assert smaller.refused.examples == (large.message_id,)
    assert refusing.refused is not None
    assert (refusing.refused.messages, refusing.stress_groups) == (1, (GROUP,))
    assert closing.publishing is not None
    assert (closing.publishing.publishers, closing.publishing.has_more_publishers) == (1, False)
    assert not closing.publishing.unanswered
    assert (wider.queues_sealed, wider.refused) == (4, None)
    update = trade.topics.update
    await trade.wait_until_active((await update("default", TOPIC, body_bytes_max=100, stress_refused=True)).version)
    await center.publish(TOPIC, PAID, b"x" * 100)
    with pytest.raises(BodyTooLargeError):
        await center.publish(TOPIC, PAID, b"x" * 101)
    with pytest.raises(StressRefusedError):
        await center.publish(TOPIC, PAID, b"", headers={"x-stress-test": "true"})
    await trade.wait_until_active((await update("default", TOPIC, is_closed=True)).version)
    with pytest.raises(TopicClosedError):
        await center.publish(TOPIC, PAID, b"")


async def test_the_broker_that_does_not_answer_is_named(
    trade: ConfigService, broker: Broker, stores: Stores, free_port: int
) -> None:
    await register_group(trade)
    silent = f"127.0.0.1:{free_port}"
    await BrokerRegistry(stores.config).beat(
        BrokerBeat(uuid4(), silent, "host", 1, snapshot_version=1, features=features.UNDERSTOOD)
    )

    preview = await preview_group_update(stores, "default", GROUP, paused=True)
    closing = await preview_topic_update(stores, "default", TOPIC, is_closed=True)

    assert preview.activity is not None
    assert [each.broker for each in preview.activity.unanswered] == [silent]
    assert closing.publishing is not None
    assert [each.broker for each in closing.publishing.unanswered] == [silent]
