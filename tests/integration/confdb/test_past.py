"""The configuration of then is what was registered at each moment, by the audit trail alone."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa

from confdb.past import ConfigMoment, Past, TopicPast
from confdb.services import ConfigService
from confdb.store import ConfigStore
from msgbroker.contract.errors import NamespaceNotFoundError

LONG_AGO = datetime.now(UTC) - timedelta(days=1)


async def past_of(store: ConfigStore, topic: str = "TP_TRADE", since: datetime = LONG_AGO) -> TopicPast:
    return await Past(store).of_topic("default", topic, since)


async def now(store: ConfigStore) -> ConfigMoment:
    """Return what is registered, as the tables have it."""
    return replace((await past_of(store, since=datetime.now(UTC) + timedelta(days=1))).moments[-1], made_by=None)


async def test_each_moment_is_what_was_registered_then(trade: ConfigService, store: ConfigStore) -> None:
    truth = [await now(store)]

    async def then() -> None:
        truth.append(await now(store))

    group = ("default", "SG_POINTS", "TP_TRADE")
    await trade.subscriptions.create(*group, "EC_PAID", expression='headers.region == "hz"')
    await then()
    await trade.subscriptions.update(*group, "EC_PAID", expression='headers.region == "bj"')
    await then()
    await trade.subscriptions.update(*group, "EC_PAID", paused=True)
    await then()
    await trade.stress.allow(*group, "*")
    await then()
    await trade.topics.update("default", "TP_TRADE", stress_refused=True)
    await then()
    await trade.subscriber_groups.update("default", "SG_POINTS", paused=True)
    await then()
    # With its subscription and its entry of the whitelist, at once; and another one under the same name.
    await trade.subscriber_groups.delete("default", "SG_POINTS")
    await then()
    await trade.subscriber_groups.create("default", "SG_POINTS")
    await then()
    await trade.subscriptions.create(*group, "*")
    await then()
    await trade.topics.delete("default", "TP_TRADE", with_subscriptions=True)
    await then()
    await trade.topics.create("default", "TP_TRADE")
    await then()

    past = await past_of(store)

    assert past.is_whole
    found = [replace(moment, made_by=None) for moment in past.moments]
    assert found[-len(truth) :] == truth
    first = found[0]
    assert first.topic is None
    assert [len(each) for each in (first.groups, first.subscriptions, first.allowed)] == [0, 0, 0]
    changes = [moment.made_by for moment in past.moments[1:]]
    assert [change.version for change in changes if change] == sorted(change.version for change in changes if change)
    deletion = changes[-5]
    assert deletion is not None
    assert (deletion.actor, deletion.actions) == (
        "operator:ann",
        (
            "stress_whitelist.delete SG_POINTS TP_TRADE/*",
            "subscription.delete SG_POINTS TP_TRADE/EC_PAID",
            "subscriber_group.delete SG_POINTS",
        ),
    )


async def test_what_is_no_business_of_the_topic_is_left_out(trade: ConfigService, store: ConfigStore) -> None:
    before = len((await past_of(store)).moments)
    await trade.topics.create("default", "TP_OTHER")
    await trade.event_codes.add("default", "TP_OTHER", "EC_PAID")
    await trade.subscriptions.create("default", "SG_POINTS", "TP_OTHER", "EC_PAID")
    await trade.namespaces.create("other")
    await trade.topics.create("other", "TP_TRADE")

    assert len((await past_of(store)).moments) == before


async def test_it_reaches_back_as_far_as_is_asked_and_says_where_that_is_too_far(
    trade: ConfigService, store: ConfigStore
) -> None:
    for number in range(5):
        await trade.topics.update("default", "TP_TRADE", stress_refused=number % 2 == 0)

    cut = await Past(store).of_topic("default", "TP_TRADE", LONG_AGO, changes_max=2)
    recent = await past_of(store, since=datetime.now(UTC) + timedelta(seconds=1))

    assert (cut.is_whole, len(cut.moments)) == (False, 3)
    assert (recent.is_whole, len(recent.moments)) == (True, 1)
    with pytest.raises(NamespaceNotFoundError):
        await Past(store).of_topic("nobody", "TP_TRADE", LONG_AGO)


async def test_that_changes_may_have_been_lost_is_known_until_no_message_is_as_old(
    trade: ConfigService, store: ConfigStore
) -> None:
    assert not (await past_of(store)).has_lost_changes
    async with store.transaction() as session:
        # As of another cluster: the standby of this one was promoted.
        await session.execute(sa.text("UPDATE config_version SET timeline = 'another/00000001'"))
    unnoticed = await past_of(store)
    await trade.subscriber_groups.create("default", "SG_OTHER")
    skipped = await past_of(store)
    await trade.subscriber_groups.create("default", "SG_AFTER_IT")
    since = (await past_of(store)).read_at
    later = await past_of(store, since=since)

    assert [each.has_lost_changes for each in (unnoticed, skipped, await past_of(store), later)] == [
        True, True, True, False,
    ]  # fmt: skip
