"""Loading never fails because of one row: it is said to be not understood, and everything else is loaded."""

from __future__ import annotations

import psycopg
import pytest

from confdb.loading import SnapshotLoader, load_snapshot
from confdb.routes import NotUnderstood
from confdb.services import ConfigService, SubscriberGroupView, SubscriptionView, TopicView
from confdb.store import ConfigStore
from tests.support.by_hand import OF_GROUP, OF_SUBSCRIPTION, OF_TOPIC, ByHand, by_hand

GROUP = ("default", "SG_POINTS")
TOPIC = ("default", "TP_TRADE")
ALL = OF_GROUP | OF_TOPIC | OF_SUBSCRIPTION


@pytest.fixture
async def two_of_each(trade: ConfigService) -> ConfigService:
    """Return the services once there are two topics and two groups, each subscribed to each."""
    await trade.topics.create("default", "TP_STOCK", is_open=True)
    await trade.subscriber_groups.create("default", "SG_AUDIT")
    for group in ("SG_POINTS", "SG_AUDIT"):
        for topic in ("TP_TRADE", "TP_STOCK"):
            await trade.subscriptions.create("default", group, topic, "EC_PAID")
    return trade


@pytest.mark.parametrize("made", ALL.values(), ids=ALL)
async def test_one_row_that_is_not_understood_leaves_all_others_as_they_were(
    made: ByHand, two_of_each: ConfigService, store: ConfigStore, database_url: str
) -> None:
    loader = SnapshotLoader(store)
    before = await loader.load()
    assert before.unserved == ()
    assert before.withheld == {}
    await by_hand(database_url, *made.change)

    after = await loader.load()

    (unserved,) = after.unserved
    assert made.says in unserved.why.detail
    same_topics = {name for name, topic in after.topics.items() if topic is before.topics[name]}
    same_groups = {name for name, group in after.groups.items() if group is before.groups[name]}
    assert after.topics.keys() - same_topics == ({TOPIC} if made in OF_TOPIC.values() else set())
    assert after.groups.keys() - same_groups == (set() if made in OF_TOPIC.values() else {GROUP})
    group_id, topic_id = before.groups[GROUP].group_id, before.topics[TOPIC].topic_id
    other_group_id = before.groups["default", "SG_AUDIT"].group_id
    both = {topic.topic_id for topic in before.topics.values()}
    if made in OF_GROUP.values():
        assert (unserved.group_id, unserved.topic_id) == (group_id, None)
        assert after.withheld == {group_id: both}
    elif made in OF_TOPIC.values():
        assert (unserved.group_id, unserved.topic_id) == (None, topic_id)
        assert after.withheld == {group_id: {topic_id}, other_group_id: {topic_id}}
    else:
        assert (unserved.group_id, unserved.topic_id) == (group_id, topic_id)
        assert after.withheld == {group_id: {topic_id}}

    await by_hand(database_url, *made.mending)
    assert (await loader.load()).unserved == ()


# A later version may let a column be empty that never was.
COLUMNS = {
    "topic": ("namespace_id", "name", "kind", "queue_count", "generation", "body_bytes_max", "trace_rate"),
    "subscriber_group": (
        "namespace_id",
        "name",
        "ack_timeout_seconds",
        "handle_seconds_max",
        "retry_schedule_seconds",
        "attempts_max",
        "unsettled_max",
        "group_order",
        "mode",
    ),
    "subscription": ("topic_id", "event_code", "mode", "start_offsets"),
}
EMPTIED = [(table, column) for table, columns in COLUMNS.items() for column in columns]


@pytest.mark.parametrize("table, column", EMPTIED, ids=[".".join(names) for names in EMPTIED])
async def test_a_row_that_lacks_what_every_row_had_is_not_understood(
    table: str, column: str, two_of_each: ConfigService, store: ConfigStore, database_url: str
) -> None:
    loader = SnapshotLoader(store)
    before = await loader.load()
    which = {
        "topic": "name = 'TP_TRADE'",
        "subscriber_group": "name = 'SG_POINTS'",
        "subscription": "group_id = (SELECT group_id FROM subscriber_group WHERE name = 'SG_POINTS')"
        " AND topic_id = (SELECT topic_id FROM topic WHERE name = 'TP_TRADE')",
    }[table]
    await by_hand(
        database_url,
        f"ALTER TABLE {table} ALTER COLUMN {column} DROP NOT NULL",
        f"UPDATE {table} SET {column} = NULL WHERE {which}",
    )

    after = await loader.load()

    (unserved,) = after.unserved
    assert "missing" in unserved.why.detail or "no" in unserved.why.detail
    other_topic, other_group = ("default", "TP_STOCK"), ("default", "SG_AUDIT")
    assert after.topics[other_topic] is before.topics[other_topic]
    assert after.groups[other_group] is before.groups[other_group]
    assert before.topics[other_topic].topic_id not in after.withheld.get(before.groups[other_group].group_id, ())
    if column in {"namespace_id", "name"}:
        assert (after.topics.keys() | after.groups.keys()) < (before.topics.keys() | before.groups.keys())
    else:
        assert before.groups[GROUP].group_id in after.withheld
        # Any of them can be told in a heartbeat.
        assert all(type(topic_id) is int for topic_ids in after.withheld.values() for topic_id in topic_ids)


async def test_stress_rows_that_lack_something_are_told_of(
    two_of_each: ConfigService, store: ConfigStore, database_url: str
) -> None:
    await two_of_each.stress.allow("default", "SG_POINTS", "TP_TRADE", "EC_PAID")
    await by_hand(
        database_url,
        "ALTER TABLE stress_rule ALTER COLUMN value DROP NOT NULL",
        "UPDATE stress_rule SET value = NULL",
        "ALTER TABLE stress_whitelist ALTER COLUMN event_code DROP NOT NULL",
        "UPDATE stress_whitelist SET event_code = NULL",
    )

    snapshot = await load_snapshot(store)

    assert [each.thing.partition(" ")[0] for each in snapshot.unserved] == ["stress", "stress"]
    assert snapshot.unknown_stress_headers["default"].keys() == {"x-stress-test"}


async def test_all_at_once_is_loaded_too(two_of_each: ConfigService, store: ConfigStore, database_url: str) -> None:
    for name in ("unknown order", "unknown topic kind", "expression that does not compile"):
        await by_hand(database_url, *ALL[name].change)
    rule = (
        "ALTER TABLE stress_rule DROP CONSTRAINT stress_rule_operator_check",
        "UPDATE stress_rule SET operator = 'MATCHES'",
    )
    await by_hand(database_url, *rule)

    snapshot = await load_snapshot(store)

    assert len(snapshot.unserved) == 4
    assert snapshot.unknown_stress_headers["default"].keys() == {"x-stress-test"}
    assert snapshot.stress_rules == {}


async def test_a_loader_that_understands_a_feature_serves_what_requires_it(
    two_of_each: ConfigService, store: ConfigStore, database_url: str
) -> None:
    await by_hand(
        database_url, "UPDATE topic SET requires = '{colour,smell}'", "UPDATE subscriber_group SET requires = '{NULL}'"
    )

    snapshot = await SnapshotLoader(store, frozenset({"colour", "smell", "NULL"})).load()
    assert snapshot.unserved == ()
    assert snapshot.topics[TOPIC].requires == {"colour", "smell"}
    snapshot = await SnapshotLoader(store, frozenset({"colour"})).load()
    assert snapshot.topics[TOPIC].not_understood == NotUnderstood(("smell",))
    assert snapshot.groups[GROUP].not_understood == NotUnderstood(("NULL",))


@pytest.mark.parametrize("made", ALL.values(), ids=ALL)
async def test_services_show_what_they_do_not_understand_and_can_delete_it(
    made: ByHand, two_of_each: ConfigService, database_url: str
) -> None:
    await by_hand(database_url, *made.change)

    shown: list[TopicView | SubscriberGroupView | SubscriptionView] = [
        *(await two_of_each.topics.list("default")).items,
        *(await two_of_each.subscriber_groups.list("default")).items,
        *(await two_of_each.subscriptions.list("default")).items,
    ]
    assert len(shown) == 8
    required = [feature for thing in shown for feature in thing.requires]
    assert required == ([made.says] if "colour" in made.says else [])
    await two_of_each.subscriber_groups.delete("default", "SG_POINTS")
    await two_of_each.subscriber_groups.delete("default", "SG_AUDIT")
    await two_of_each.topics.delete("default", "TP_TRADE")
    assert [topic.name for topic in (await two_of_each.topics.list("default")).items] == ["TP_STOCK"]


async def test_services_take_back_what_this_version_does_not_carry_out(
    two_of_each: ConfigService, store: ConfigStore, database_url: str
) -> None:
    with psycopg.connect(database_url) as connection:
        connection.execute(
            "UPDATE subscriber_group SET group_order = 'KEY', mode = 'BROADCAST', ack_timeout_seconds = 'NaN',"
            " requires = '{group-order-key,group-mode-broadcast,colour}' WHERE name = 'SG_POINTS'"
        )

    await two_of_each.subscriber_groups.update("default", "SG_POINTS", order="NONE", ack_timeout_seconds=60)  # type: ignore[arg-type]
    (unserved,) = (await load_snapshot(store)).unserved
    assert unserved.why.features == ("colour", "group-mode-broadcast")
    changed = await two_of_each.subscriber_groups.update("default", "SG_POINTS", mode="SHARED")  # type: ignore[arg-type]
    # What else it requires is for those who know what that is.
    assert changed.thing.requires == ("colour",)
