"""Deleting what is in use, and subscribing from a beginning that the group has passed."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from confdb.services import ConfigService, WantedChanges
from confdb.store import ConfigStore
from msgbroker.client import MessageCenter
from msgbroker.contract.errors import (
    GroupNotFoundError,
    InvalidSettingError,
    SubscriptionNotFoundError,
    ThingInUseError,
    TopicNotFoundError,
)
from msgbroker.server.app import Broker
from msgconsole.operations.configuration import deletions
from msgconsole.operations.configuration.deletions import (
    DeletedBy,
    delete_group,
    delete_subscription,
    delete_topic,
    find_group_use,
    find_subscription_use,
    find_topic_use,
)
from msgconsole.operations.configuration.subscribing import WantedSubscription, subscribe, update_subscription
from msgconsole.operations.stores import Stores
from msgdb.dead_letters.choosing import Landing, note_redriven
from msgdb.store import MessageStore
from tests.support.collecting import GROUP, PAID, REFUNDED, TOPIC, all_settled, register_group, subscribed
from tests.support.dead_letter_rows import bury
from tests.support.eventually import eventually
from tests.support.jobs import ended

OTHER = "SG_STOCK"


@pytest.fixture
async def stores(database_url: str, message_store: MessageStore) -> AsyncIterator[Stores]:
    async with ConfigStore.open(database_url) as config_store:
        yield Stores(config_store, message_store)


async def publish(center: MessageCenter, event_code: str, *names: str, **headers: str) -> None:
    for name in names:
        await center.publish(TOPIC, event_code, name, key="one", headers=headers)


def wanted(event_code: str, expression: str | None = None) -> WantedSubscription:
    return WantedSubscription(
        namespace="default",
        group=GROUP,
        topic=TOPIC,
        event_code=event_code,
        expression=expression,
        from_beginning=True,
    )


# --- in use -----------------------------------------------------------------------------------------------------------


async def test_a_group_with_instances_or_unsettled_messages_is_deleted_only_by_force(
    trade: ConfigService, broker: Broker, stores: Stores, center: MessageCenter
) -> None:
    await register_group(trade)
    async with subscribed(broker.address):

        async def refused() -> ThingInUseError | None:
            with pytest.raises(ThingInUseError) as error:
                await delete_group(stores, "default", GROUP, by=DeletedBy("ada"))
            return error.value if "is in use by 1 connected instance, 0 unsettled" in error.value.message else None

        error = await eventually(refused, what="the registry knows of the instance")
        assert error is not None
        assert (error.kind, error.name) == ("group", GROUP)

    async def nobody_is_there() -> bool:
        return (await find_group_use(stores, "default", GROUP)).instances == 0

    await eventually(nobody_is_there, what="the registry knows that it has gone")
    assert not (await find_group_use(stores, "default", GROUP)).is_in_use
    await publish(center, PAID, "one", "two")
    assert (await find_group_use(stores, "default", GROUP)).unsettled == 2
    with pytest.raises(ThingInUseError, match="2 unsettled messages"):
        await delete_group(stores, "default", GROUP, by=DeletedBy("ada"))
    await delete_group(stores, "default", GROUP, by=DeletedBy("ada", "no longer needed", force=True))
    with pytest.raises(GroupNotFoundError):
        await find_group_use(stores, "default", GROUP)


async def test_the_dead_letters_that_could_not_be_redriven_any_more_are_counted(
    trade: ConfigService, stores: Stores
) -> None:
    await register_group(trade)
    await trade.subscriptions.create("default", GROUP, TOPIC, REFUNDED)
    group_id = (await trade.subscriber_groups.get("default", GROUP)).group_id
    async with stores.messages.connection() as conn:
        of_topic = await bury(conn, 3, group_id=group_id, topic=TOPIC)
        await bury(conn, 2, group_id=group_id, topic="TP_OTHER")
        await bury(conn, 1, group_id=group_id + 1, topic=TOPIC)
        await note_redriven(conn, 1, [Landing(of_topic[0], None, None)])

    assert (await find_group_use(stores, "default", GROUP)).dead_letters == 4
    assert (await find_topic_use(stores, "default", TOPIC)).dead_letters == 2
    # By its other subscription to the topic they can be.
    assert (await find_subscription_use(stores, "default", GROUP, TOPIC, PAID)).dead_letters == 0
    await trade.subscriptions.delete("default", GROUP, TOPIC, REFUNDED)
    assert (await find_subscription_use(stores, "default", GROUP, TOPIC, PAID)).dead_letters == 2
    await trade.subscriptions.delete("default", GROUP, TOPIC, PAID)
    assert (await find_group_use(stores, "default", GROUP)).dead_letters == 4


def test_nothing_is_deleted_by_force_without_a_reason() -> None:
    with pytest.raises(InvalidSettingError, match="reason"):
        DeletedBy("ada", " ", force=True)


async def test_whoever_deletes_does_not_wait_until_dead_letters_are_counted(
    trade: ConfigService, stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    await register_group(trade)

    async def count(*_: object) -> None:
        pytest.fail("of very many that takes a minute, and may fail")

    monkeypatch.setattr(deletions, "count_wanted", count)
    for delete in (
        delete_subscription(stores, "default", GROUP, TOPIC, PAID, by=DeletedBy("ada")),
        delete_group(stores, "default", GROUP, by=DeletedBy("ada")),
        delete_topic(stores, "default", TOPIC, by=DeletedBy("ada")),
    ):
        await delete


async def test_a_group_that_nobody_uses_is_deleted(trade: ConfigService, stores: Stores) -> None:
    await register_group(trade)

    gone = await delete_group(stores, "default", GROUP, by=DeletedBy("ada"))

    assert gone.thing.name == GROUP
    (entry,) = (await trade.audit.list(WantedChanges(kinds=["subscriber_group"], name=GROUP))).items[:1]
    assert (entry.actor, entry.action) == ("ada", "subscriber_group.delete")


async def test_a_subscription_is_in_use_for_what_its_group_has_of_the_topic(
    trade: ConfigService, broker: Broker, stores: Stores, center: MessageCenter
) -> None:
    await register_group(trade)
    await publish(center, PAID, "one")

    with pytest.raises(ThingInUseError, match="1 unsettled message "):
        await delete_subscription(stores, "default", GROUP, TOPIC, PAID, by=DeletedBy("ada"))
    with pytest.raises(SubscriptionNotFoundError):
        await find_subscription_use(stores, "default", GROUP, TOPIC, REFUNDED)
    await delete_subscription(
        stores, "default", GROUP, TOPIC, PAID, by=DeletedBy("ada", "no longer needed", force=True)
    )
    assert (await trade.subscriptions.list("default")).items == ()


async def test_a_topic_goes_with_its_subscriptions_by_force_alone(
    trade: ConfigService, broker: Broker, stores: Stores, center: MessageCenter
) -> None:
    for group in (GROUP, OTHER, "SG_C", "SG_D"):
        await register_group(trade, group)
    await publish(center, PAID, "one")

    use = await find_topic_use(stores, "default", TOPIC)
    assert (use.groups, use.unsettled) == (("SG_C", "SG_D", GROUP, OTHER), 4)
    with pytest.raises(ThingInUseError, match=r"groups SG_C, SG_D, SG_POINTS and 1 more, 0 connected"):
        await delete_topic(stores, "default", TOPIC, by=DeletedBy("ada"))
    await delete_topic(stores, "default", TOPIC, by=DeletedBy("ada", "no longer needed", force=True))
    assert (await trade.subscriptions.list("default")).items == ()
    with pytest.raises(TopicNotFoundError):
        await find_topic_use(stores, "default", TOPIC)


# --- from the beginning -----------------------------------------------------------------------------------------------


async def test_a_group_that_has_read_a_topic_gets_what_is_stored_for_its_new_subscription_and_nothing_twice(
    trade: ConfigService, broker: Broker, stores: Stores, center: MessageCenter
) -> None:
    await publish(center, PAID, "paid before it began")
    await register_group(trade)
    async with subscribed(broker.address) as ours:
        await publish(center, PAID, "paid")
        await publish(center, REFUNDED, "refunded hz", region="hz")
        await publish(center, REFUNDED, "refunded sh", region="sh")
        await ours.until(1)
        hz = 'headers.region == "hz" || !("region" in headers)'
        done = await subscribe(stores, wanted("*", expression=hz), actor="ada")
        await trade.wait_until_active(done.made.version)
        assert done.job_id is not None
        status = await ended(stores, done.job_id)
        await publish(center, REFUNDED, "refunded later", region="hz")
        await ours.until(4)
        await all_settled(broker)

    assert (status.state, status.done) == ("DONE", 2)
    assert sorted(ours.bodies) == ["paid", "paid before it began", "refunded hz", "refunded later"]


async def test_a_group_that_has_read_nothing_needs_no_job(
    trade: ConfigService, broker: Broker, stores: Stores, center: MessageCenter
) -> None:
    await publish(center, PAID, "paid")
    await trade.subscriber_groups.create("default", GROUP)
    done = await subscribe(stores, wanted(PAID), actor="ada")
    await trade.wait_until_active(done.made.version)

    assert done.job_id is None
    async with subscribed(broker.address) as ours:
        assert await ours.until(1) == ["paid"]


async def test_a_changed_subscription_says_from_where_on_it_holds(
    trade: ConfigService, broker: Broker, stores: Stores, center: MessageCenter
) -> None:
    await register_group(trade)
    await publish(center, PAID, "one", "two")

    changed, held = await update_subscription(
        stores, "default", GROUP, TOPIC, PAID, actor="ada", expression='headers.region == "hz"'
    )

    assert changed.thing.expression == 'headers.region == "hz"'
    assert sorted(each.from_offset for each in held) == [0, 0, 0, 2]
