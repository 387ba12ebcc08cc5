"""A feature may be used once this version carries it out and every broker that is running understands it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from uuid import UUID, uuid4

import psycopg
import pytest

from confdb import features
from confdb.brokers import BrokerBeat, BrokerRegistry
from confdb.features import Aspect, Feature, feature_of
from confdb.routes import GroupMode, GroupOrder, StressOperator, TopicKind
from confdb.services import ConfigService
from confdb.store import ConfigStore
from msgbroker.contract.errors import FailedPreconditionError, FeatureNotEverywhereError, KindNotSupportedError
from tests.integration.confdb.conftest import KnownTails
from tests.support.eventually import eventually
from tests.support.registry import age

ALL = frozenset(Feature)
WAITING = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"


@pytest.fixture(autouse=True)
def understood(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this version carry out everything that has a name."""
    monkeypatch.setattr(features, "UNDERSTOOD", ALL)


@pytest.fixture
def registry(store: ConfigStore) -> BrokerRegistry:
    return BrokerRegistry(store)


def beat_of(port: int, understood: frozenset[str] = ALL, broker_id: UUID | None = None) -> BrokerBeat:
    return BrokerBeat(
        broker_id=broker_id or uuid4(),
        address=f"127.0.0.1:{port}",
        host="host-1",
        pid=42,
        snapshot_version=1,
        process_version="0.1.0",
        features=understood,
    )


async def use_each(service: ConfigService) -> list[str]:
    """Try to use each feature; return the features of those that were refused."""
    refused = []

    async def attempt(made: Callable[[], object]) -> None:
        try:
            await made()  # type: ignore[misc]
        except FeatureNotEverywhereError as error:
            refused.append(error.feature)

    groups, topics = service.subscriber_groups, service.topics
    await attempt(lambda: groups.create("default", "SG_KEY", order=GroupOrder.KEY))
    await attempt(lambda: groups.create("default", "SG_GLOBAL", order=GroupOrder.GLOBAL))
    await attempt(lambda: groups.create("default", "SG_BROADCAST", mode=GroupMode.BROADCAST))
    await attempt(lambda: groups.update("default", "SG_POINTS", order=GroupOrder.KEY, mode=GroupMode.SHARED))
    await attempt(lambda: groups.update("default", "SG_POINTS", mode=GroupMode.BROADCAST))
    for kind in (TopicKind.ORDERED, TopicKind.SCHEDULED, TopicKind.TRANSACTIONAL):
        await attempt(lambda kind=kind: topics.create("default", f"TP_{kind}", kind=kind))  # type: ignore[misc]
    return refused


async def test_what_every_broker_understands_may_be_used_and_is_required_of_whoever_serves_it(
    trade: ConfigService, registry: BrokerRegistry
) -> None:
    await registry.beat(beat_of(7401))
    await registry.beat(beat_of(7402))

    assert await use_each(trade) == []
    groups = {group.name: group for group in (await trade.subscriber_groups.list("default")).items}
    assert groups["SG_KEY"].requires == ("group-order-key",)
    assert groups["SG_BROADCAST"].requires == ("group-mode-broadcast",)
    assert groups["SG_POINTS"].requires == ("group-order-key", "group-mode-broadcast")
    assert (await trade.topics.get("default", "TP_ORDERED")).requires == ("topic-kind-ordered",)
    back = await trade.subscriber_groups.update("default", "SG_POINTS", order=GroupOrder.NONE, mode=GroupMode.SHARED)
    assert back.thing.requires == ()


async def test_without_a_broker_there_is_nobody_to_ask(trade: ConfigService) -> None:
    assert await use_each(trade) == []


async def test_a_feature_is_refused_while_a_broker_does_not_understand_it_and_nothing_is_changed(
    trade: ConfigService, registry: BrokerRegistry
) -> None:
    await registry.beat(beat_of(7401))
    old = beat_of(7402, frozenset())
    await registry.beat(old)
    before = [group.name for group in (await trade.subscriber_groups.list("default")).items]

    refused = await use_each(trade)

    assert refused == [
        "group-order-key",
        "group-order-global",
        "group-mode-broadcast",
        "group-order-key",
        "group-mode-broadcast",
        "topic-kind-ordered",
        "topic-kind-scheduled",
        "topic-kind-transactional",
    ]
    assert [group.name for group in (await trade.subscriber_groups.list("default")).items] == before
    assert (await trade.subscriber_groups.get("default", "SG_POINTS")).order is GroupOrder.NONE
    with pytest.raises(FeatureNotEverywhereError) as raised:
        await trade.topics.create("default", "TP_X", kind=TopicKind.ORDERED)
    assert isinstance(raised.value, FailedPreconditionError)
    assert raised.value.reason == "FEATURE_NOT_EVERYWHERE"
    assert raised.value.facts == {
        "feature": "topic-kind-ordered",
        "brokers": "broker 127.0.0.1:7402 (version 0.1.0)",
    }
    # What every version does needs no leave of anybody.
    await trade.subscriber_groups.update("default", "SG_POINTS", order=GroupOrder.NONE, paused=True)

    await registry.leave(old.broker_id)
    assert await use_each(trade) == []


async def test_a_broker_of_a_version_without_features_understands_none(trade: ConfigService, database_url: str) -> None:
    with psycopg.connect(database_url) as connection:
        connection.execute(
            "INSERT INTO broker (broker_id, address, host, pid, snapshot_version)"
            " VALUES (gen_random_uuid(), 'old:7400', 'old', 1, 1)"
        )

    with pytest.raises(FeatureNotEverywhereError, match=r"old:7400 \(version unknown\)"):
        await trade.topics.create("default", "TP_X", kind=TopicKind.ORDERED)


async def test_what_this_version_does_not_carry_out_is_refused_whatever_brokers_understand(
    trade: ConfigService, registry: BrokerRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    await registry.beat(beat_of(7401))
    monkeypatch.setattr(features, "UNDERSTOOD", ALL - {Feature.TOPIC_KIND_ORDERED})

    with pytest.raises(KindNotSupportedError, match="topic kind ORDERED is not supported yet; use NORMAL"):
        await trade.topics.create("default", "TP_X", kind=TopicKind.ORDERED)


async def test_a_stress_operator_of_a_later_version_waits_until_every_broker_understands_it(
    trade: ConfigService, registry: BrokerRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = {Aspect.STRESS_OPERATOR: frozenset({"EQUALS"})}
    monkeypatch.setattr(features, "_OF_THE_FIRST_VERSION", {**features._OF_THE_FIRST_VERSION, **first})
    prefix = feature_of(Aspect.STRESS_OPERATOR, "PREFIX")
    with pytest.raises(KindNotSupportedError, match="stress operator PREFIX is not supported yet"):
        await trade.stress.add_rule("default", "x-load", StressOperator.PREFIX, "t")

    monkeypatch.setattr(features, "UNDERSTOOD", ALL | {prefix})
    await registry.beat(beat_of(7401))
    with pytest.raises(FeatureNotEverywhereError, match="7401"):
        await trade.stress.add_rule("default", "x-load", StressOperator.PREFIX, "t")


async def test_a_broker_that_is_cut_off_and_holds_lanes_is_not_forgotten(
    trade: ConfigService, registry: BrokerRegistry, tails: KnownTails, database_url: str
) -> None:
    cut_off = beat_of(7402, frozenset())
    await registry.beat(cut_off)
    age(database_url, cut_off.broker_id, 3_000)
    await registry.beat(beat_of(7401))
    tails.owners = {cut_off.broker_id}
    with pytest.raises(FeatureNotEverywhereError, match="7402"):
        await trade.topics.create("default", "TP_X", kind=TopicKind.ORDERED)

    # So long that its row is gone: what it understands nobody knows.
    await registry.leave(cut_off.broker_id)
    with pytest.raises(FeatureNotEverywhereError, match=f"{cut_off.broker_id}.*holds lanes"):
        await trade.topics.create("default", "TP_X", kind=TopicKind.ORDERED)

    tails.owners = set()
    await trade.topics.create("default", "TP_X", kind=TopicKind.ORDERED)


async def test_a_broker_that_was_heard_of_a_moment_ago_counts_though_it_holds_nothing(
    trade: ConfigService, registry: BrokerRegistry, database_url: str
) -> None:
    silent = beat_of(7402, frozenset())
    await registry.beat(silent)
    age(database_url, silent.broker_id, 30)
    await registry.beat(beat_of(7401))
    with pytest.raises(FeatureNotEverywhereError, match="7402"):
        await trade.topics.create("default", "TP_X", kind=TopicKind.ORDERED)

    age(database_url, silent.broker_id, 90)
    await trade.topics.create("default", "TP_X", kind=TopicKind.ORDERED)


async def test_after_an_outage_of_the_registry_the_brokers_of_before_count_until_they_are_heard_of_again(
    trade: ConfigService, registry: BrokerRegistry, database_url: str
) -> None:
    one, other = beat_of(7401), beat_of(7402, frozenset())
    for beat in (one, other):
        await registry.beat(beat)
        age(database_url, beat.broker_id, 600)
    with pytest.raises(FeatureNotEverywhereError, match="7402"):
        await trade.topics.create("default", "TP_X", kind=TopicKind.ORDERED)

    # Somebody is back; whoever is not within a minute is gone.
    await registry.beat(one)
    await trade.topics.create("default", "TP_X", kind=TopicKind.ORDERED)


async def test_a_broker_that_registers_while_a_change_waits_its_turn_is_asked(
    trade: ConfigService, registry: BrokerRegistry, database_url: str
) -> None:
    """The check is made inside of the change, when all before it have committed: not when it was asked for."""
    with psycopg.connect(database_url) as other:
        other.execute("SELECT version FROM config_version FOR UPDATE")
        creating = asyncio.create_task(trade.topics.create("default", "TP_X", kind=TopicKind.ORDERED))
        with psycopg.connect(database_url, autocommit=True) as watching:
            await eventually(lambda: watching.execute(WAITING).fetchone() == (1,), what="the change waits")
        await registry.beat(beat_of(7402, frozenset()))

    with pytest.raises(FeatureNotEverywhereError, match="7402"):
        await creating


async def test_who_cannot_know_which_brokers_hold_lanes_cannot_let_a_feature_be_used(store: ConfigStore) -> None:
    with pytest.raises(ValueError, match="QueueTails"):
        await ConfigService(store, "test").topics.create("default", "TP_X", kind=TopicKind.ORDERED)
    await ConfigService(store, "test").topics.create("default", "TP_X")


async def test_what_a_broker_understands_and_withholds_is_in_what_the_others_see(registry: BrokerRegistry) -> None:
    broker_id = uuid4()
    beat = BrokerBeat(
        broker_id=broker_id, address="here:1", host="here", pid=1, snapshot_version=1,
        features=frozenset({"b", "a"}), withheld={7: frozenset({2, 1})},
    )  # fmt: skip
    (live,) = await registry.beat(beat)

    assert live.features == {"a", "b"}
    assert live.withheld == {7: {1, 2}}
    assert live.serves(7, 3, frozenset({"a"}))
    assert not live.serves(7, 1, frozenset({"a"}))
    assert not live.serves(7, 3, frozenset({"c"}))
    assert await registry.list_live() == [live]
