"""Subscriber groups, their subscriptions, and the stress whitelist."""

from __future__ import annotations

import math

import pytest

from confdb.routes import GroupMode, GroupOrder, StressOperator, SubscriptionMode
from confdb.services import ConfigService
from confdb.store import ConfigStore
from msgbroker.contract import limits
from msgbroker.contract.errors import (
    BeginningPassedError,
    EventCodeNotFoundError,
    ExpressionTooCostlyError,
    GroupNotFoundError,
    InvalidExpressionError,
    InvalidSettingError,
    KindNotSupportedError,
    LimitReachedError,
    StoreUnavailableError,
    SubscriptionNotFoundError,
    ThingAlreadyExistsError,
    ThingNotFoundError,
    TopicNotFoundError,
)
from tests.integration.confdb.conftest import KnownTails


async def test_a_group_has_the_defaults_of_the_limits(service: ConfigService) -> None:
    group = (await service.subscriber_groups.create("default", "SG_POINTS")).thing

    assert group == await service.subscriber_groups.get("default", "SG_POINTS")
    assert group.ack_timeout_seconds == limits.ACK_TIMEOUT_SECONDS_DEFAULT
    assert group.handle_seconds_max == limits.HANDLE_SECONDS_DEFAULT
    assert group.retry_schedule_seconds == limits.RETRY_SCHEDULE_SECONDS_DEFAULT
    assert group.attempts_max == len(limits.RETRY_SCHEDULE_SECONDS_DEFAULT) + 1
    assert group.unsettled_max == limits.UNSETTLED_MAX_DEFAULT
    assert (group.order, group.mode, group.paused) == (GroupOrder.NONE, GroupMode.SHARED, False)


@pytest.mark.parametrize(
    "setting, value",
    [
        ("ack_timeout_seconds", 0.5),
        ("ack_timeout_seconds", limits.ACK_TIMEOUT_SECONDS_MAX + 1),
        ("ack_timeout_seconds", math.nan),
        ("handle_seconds_max", -1),
        ("handle_seconds_max", limits.HANDLE_SECONDS_CEILING + 1),
        ("handle_seconds_max", math.nan),
        ("retry_schedule_seconds", [10, -1]),
        ("retry_schedule_seconds", [math.inf]),
        ("retry_schedule_seconds", [limits.RETRY_DELAY_SECONDS_MAX + 1]),
        ("retry_schedule_seconds", [1] * limits.ATTEMPTS_MAX_CEILING),
        ("attempts_max", 0),
        ("attempts_max", limits.ATTEMPTS_MAX_CEILING + 1),
        ("unsettled_max", 0),
        ("unsettled_max", limits.CREDIT_MAX + 1),
        ("order", "SIDEWAYS"),
        ("mode", "WHISPER"),
    ],
)
async def test_a_group_setting_out_of_bounds_is_refused_by_name(
    service: ConfigService, setting: str, value: object
) -> None:
    with pytest.raises(InvalidSettingError, match=f"^{setting} "):
        await service.subscriber_groups.create("default", "SG_POINTS", **{setting: value})  # type: ignore[arg-type]
    await service.subscriber_groups.create("default", "SG_POINTS")
    with pytest.raises(InvalidSettingError, match=f"^{setting} "):
        await service.subscriber_groups.update("default", "SG_POINTS", **{setting: value})  # type: ignore[arg-type]


async def test_orders_and_modes_that_are_not_carried_out_yet_are_refused(service: ConfigService) -> None:
    with pytest.raises(KindNotSupportedError, match="group order KEY"):
        await service.subscriber_groups.create("default", "SG_POINTS", order=GroupOrder.KEY)
    with pytest.raises(KindNotSupportedError, match="group mode BROADCAST"):
        await service.subscriber_groups.create("default", "SG_POINTS", mode=GroupMode.BROADCAST)


async def test_attempts_follow_a_new_retry_schedule_unless_they_were_set(service: ConfigService) -> None:
    await service.subscriber_groups.create("default", "FOLLOWS", retry_schedule_seconds=[1, 2])
    await service.subscriber_groups.create("default", "SET", retry_schedule_seconds=[1, 2], attempts_max=2)

    follows = await service.subscriber_groups.update("default", "FOLLOWS", retry_schedule_seconds=[1, 2, 3, 4])
    as_set = await service.subscriber_groups.update("default", "SET", retry_schedule_seconds=[1, 2, 3, 4])

    assert (follows.thing.attempts_max, as_set.thing.attempts_max) == (5, 2)
    assert (await service.subscriber_groups.get("default", "SET")).retry_schedule_seconds == (1, 2, 3, 4)


async def test_a_group_can_be_paused_listed_and_deleted_with_its_subscriptions(trade: ConfigService) -> None:
    await trade.subscriptions.create("default", "SG_POINTS", "TP_TRADE", "EC_PAID")
    await trade.stress.allow("default", "SG_POINTS", "TP_TRADE", "*")
    paused = (await trade.subscriber_groups.update("default", "SG_POINTS", paused=True)).thing
    assert paused.paused
    assert (await trade.subscriber_groups.list("default")).items == (paused,)

    await trade.subscriber_groups.delete("default", "SG_POINTS")

    assert (await trade.subscriptions.list("default")).items == ()
    assert (await trade.stress.list_whitelist("default")).items == ()
    gone = {(entry.kind, entry.name) for entry in (await trade.audit.list()).items if entry.action.endswith(".delete")}
    assert gone == {
        ("subscriber_group", "SG_POINTS"),
        ("subscription", "SG_POINTS TP_TRADE/EC_PAID"),
        ("stress_whitelist", "SG_POINTS TP_TRADE/*"),
    }


async def test_a_subscription_starts_at_the_tails_of_the_queues(trade: ConfigService, tails: KnownTails) -> None:
    topic = (await trade.topics.update("default", "TP_TRADE", queue_count=6)).thing

    created = await trade.subscriptions.create("default", "SG_POINTS", "TP_TRADE", "EC_PAID")

    assert tails.asked == [(topic.topic_id, 2, 6)]
    assert created.thing.start_offsets == tails.offsets
    assert (await trade.subscriptions.list("default")).items == (created.thing,)
    assert (created.thing.mode, created.thing.expression) == (SubscriptionMode.DIRECT, None)


async def test_a_subscription_from_the_beginning_asks_for_no_tails(trade: ConfigService, tails: KnownTails) -> None:
    created = await trade.subscriptions.create("default", "SG_POINTS", "TP_TRADE", "EC_PAID", from_beginning=True)

    assert (created.thing.start_offsets, tails.asked) == ({}, [])
    group = await trade.subscriber_groups.get("default", "SG_POINTS")
    topic = await trade.topics.get("default", "TP_TRADE")
    assert tails.kept == [(group.group_id, topic.topic_id, created.version)]


async def test_a_group_that_has_read_a_topic_cannot_subscribe_from_its_beginning(
    trade: ConfigService, tails: KnownTails
) -> None:
    tails.is_read = True
    with pytest.raises(BeginningPassedError, match=r"'SG_POINTS' has read topic 'TP_TRADE'.*another group") as refused:
        await trade.subscriptions.create("default", "SG_POINTS", "TP_TRADE", "EC_PAID", from_beginning=True)

    assert refused.value.facts == {"group": "SG_POINTS", "topic": "TP_TRADE"}
    assert (await trade.subscriptions.list("default")).items == ()
    assert (await trade.subscriptions.create("default", "SG_POINTS", "TP_TRADE", "EC_PAID")).thing.start_offsets


async def test_a_repeat_of_a_subscription_from_the_beginning_is_a_repeat(
    trade: ConfigService, tails: KnownTails
) -> None:
    await trade.subscriptions.create("default", "SG_POINTS", "TP_TRADE", "EC_PAID", from_beginning=True)
    tails.is_read = True

    # An application that registers what it needs says the same at each start.
    with pytest.raises(ThingAlreadyExistsError):
        await trade.subscriptions.create("default", "SG_POINTS", "TP_TRADE", "EC_PAID", from_beginning=True)


async def test_tails_are_read_before_the_subscription_can_be_seen(store: ConfigStore, trade: ConfigService) -> None:
    seen_while_asking: list[int] = []

    class Watching(KnownTails):
        async def tails(self, topic_id: int, generation: int, queue_count: int) -> dict[int, int]:
            seen_while_asking.append(len((await trade.subscriptions.list("default")).items))
            # Nor is anything locked meanwhile: others change what they like.
            await trade.topics.update("default", "TP_TRADE", description="changed meanwhile")
            return {}

    await ConfigService(store, "test", Watching()).subscriptions.create("default", "SG_POINTS", "TP_TRADE", "EC_PAID")

    assert seen_while_asking == [0]


async def test_without_the_message_store_no_subscription_is_registered(
    store: ConfigStore, trade: ConfigService
) -> None:
    class Away(KnownTails):
        async def tails(self, topic_id: int, generation: int, queue_count: int) -> dict[int, int]:
            raise StoreUnavailableError("stopped")

    with pytest.raises(StoreUnavailableError):
        await ConfigService(store, "test", Away()).subscriptions.create("default", "SG_POINTS", "TP_TRADE", "EC_PAID")

    assert (await trade.subscriptions.list("default")).items == ()


async def test_a_topic_replaced_while_its_tails_are_read_gets_no_subscription(
    store: ConfigStore, trade: ConfigService
) -> None:
    class Replacing(KnownTails):
        async def tails(self, topic_id: int, generation: int, queue_count: int) -> dict[int, int]:
            await trade.topics.delete("default", "TP_TRADE")
            await trade.topics.create("default", "TP_TRADE", is_open=True)
            return {1: 5}

    with pytest.raises(TopicNotFoundError):
        await ConfigService(store, "test", Replacing()).subscriptions.create(
            "default", "SG_POINTS", "TP_TRADE", "EC_PAID"
        )


async def test_a_header_subscription_keeps_its_expression_and_a_bad_one_is_refused(trade: ConfigService) -> None:
    created = await trade.subscriptions.create(
        "default", "SG_POINTS", "TP_TRADE", "*", expression='headers.region == "hz"'
    )
    assert (created.thing.mode, created.thing.expression) == (SubscriptionMode.HEADER, 'headers.region == "hz"')

    with pytest.raises(InvalidExpressionError, match="line 1, column 1"):
        await trade.subscriptions.create("default", "SG_POINTS", "TP_TRADE", "EC_PAID", expression="region")


async def test_an_expression_that_costs_too_much_is_refused_and_nothing_is_changed(trade: ConfigService) -> None:
    nested = "headers.exists(a, headers.exists(b, a == b))"

    with pytest.raises(ExpressionTooCostlyError, match="50,000 at most"):
        await trade.subscriptions.create("default", "SG_POINTS", "TP_TRADE", "EC_PAID", expression=nested)

    assert (await trade.subscriptions.list("default")).items == ()


async def test_a_subscription_needs_what_it_names(trade: ConfigService) -> None:
    with pytest.raises(GroupNotFoundError):
        await trade.subscriptions.create("default", "SG_NOBODY", "TP_TRADE", "EC_PAID")
    with pytest.raises(TopicNotFoundError):
        await trade.subscriptions.create("default", "SG_POINTS", "TP_NOTHING", "EC_PAID")
    with pytest.raises(EventCodeNotFoundError):
        await trade.subscriptions.create("default", "SG_POINTS", "TP_TRADE", "EC_NEVER")


async def test_an_open_topic_can_be_subscribed_to_before_its_codes_register_themselves(trade: ConfigService) -> None:
    await trade.topics.update("default", "TP_TRADE", is_open=True)

    await trade.subscriptions.create("default", "SG_POINTS", "TP_TRADE", "EC_LATER")


async def test_a_repeated_subscription_is_refused_and_a_missing_one_cannot_be_deleted(trade: ConfigService) -> None:
    await trade.subscriptions.create("default", "SG_POINTS", "TP_TRADE", "EC_PAID")

    with pytest.raises(ThingAlreadyExistsError, match="SG_POINTS TP_TRADE/EC_PAID"):
        await trade.subscriptions.create("default", "SG_POINTS", "TP_TRADE", "EC_PAID", expression="true")
    with pytest.raises(SubscriptionNotFoundError):
        await trade.subscriptions.delete("default", "SG_POINTS", "TP_TRADE", "EC_REFUNDED")


async def test_subscriptions_are_listed_by_group_and_by_topic(trade: ConfigService) -> None:
    await trade.topics.create("default", "TP_STOCK")
    await trade.subscriber_groups.create("default", "SG_MAIL")
    wanted = [("SG_POINTS", "TP_TRADE"), ("SG_POINTS", "TP_STOCK"), ("SG_MAIL", "TP_STOCK")]
    for group, topic in wanted:
        await trade.subscriptions.create("default", group, topic, "*")

    async def listed(group: str | None = None, topic: str | None = None) -> list[tuple[str, str]]:
        page = await trade.subscriptions.list("default", group=group, topic=topic)
        return [(item.group, item.topic) for item in page.items]

    assert await listed() == wanted
    assert await listed(group="SG_POINTS") == wanted[:2]
    assert await listed(topic="TP_STOCK") == wanted[1:]
    assert await listed(group="SG_MAIL", topic="TP_TRADE") == []


async def test_a_subscription_from_now_on_needs_a_message_store(store: ConfigStore, trade: ConfigService) -> None:
    with pytest.raises(ValueError, match="QueueTails"):
        await ConfigService(store, "test").subscriptions.create("default", "SG_POINTS", "TP_TRADE", "EC_PAID")


async def test_a_new_namespace_begins_with_the_default_stress_rule(service: ConfigService) -> None:
    await service.namespaces.create("tenant")

    for namespace in ("default", "tenant"):
        (rule,) = (await service.stress.list_rules(namespace)).items
        assert (rule.header, rule.operator, rule.value) == ("x-stress-test", StressOperator.EQUALS, "true")


async def test_stress_rules_are_added_and_removed_by_what_they_say(service: ConfigService) -> None:
    await service.stress.add_rule("default", "x-load", StressOperator.EXISTS)
    with pytest.raises(ThingAlreadyExistsError, match="x-load EXISTS"):
        await service.stress.add_rule("default", "x-load", StressOperator.EXISTS)

    await service.stress.remove_rule("default", "x-load", StressOperator.EXISTS)

    assert len((await service.stress.list_rules("default")).items) == 1
    with pytest.raises(ThingNotFoundError, match="x-load EXISTS"):
        await service.stress.remove_rule("default", "x-load", StressOperator.EXISTS)


@pytest.mark.parametrize(
    "header, operator, value",
    [("", "EQUALS", "1"), ("x", "LIKE", "1"), ("x", "EXISTS", "1"), ("x", "PREFIX", ""), ("x\0", "EQUALS", "1")],
)
async def test_a_stress_rule_that_means_nothing_is_refused(
    service: ConfigService, header: str, operator: str, value: str
) -> None:
    with pytest.raises(InvalidSettingError):
        await service.stress.add_rule("default", header, operator, value)  # type: ignore[arg-type]


async def test_a_namespace_takes_so_many_stress_rules_and_no_more(
    service: ConfigService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "STRESS_RULES_PER_NAMESPACE_MAX", 2)
    await service.stress.add_rule("default", "x-load", StressOperator.EQUALS, "2")

    with pytest.raises(LimitReachedError):
        await service.stress.add_rule("default", "x-load", StressOperator.EQUALS, "3")
    with pytest.raises(ThingAlreadyExistsError):
        await service.stress.add_rule("default", "x-load", StressOperator.EQUALS, "2")


async def test_a_group_takes_so_many_subscriptions_and_no_more(
    trade: ConfigService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "SUBSCRIPTIONS_PER_GROUP_MAX", 1)
    await trade.subscriptions.create("default", "SG_POINTS", "TP_TRADE", "EC_PAID")

    with pytest.raises(LimitReachedError):
        await trade.subscriptions.create("default", "SG_POINTS", "TP_TRADE", "*")
    assert len((await trade.subscriptions.list("default")).items) == 1


async def test_a_repeat_in_a_full_group_is_a_repeat(trade: ConfigService, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SUBSCRIPTIONS_PER_GROUP_MAX", 1)
    await trade.subscriptions.create("default", "SG_POINTS", "TP_TRADE", "EC_PAID")

    # An application that registers what it needs says the same at each start.
    with pytest.raises(ThingAlreadyExistsError):
        await trade.subscriptions.create("default", "SG_POINTS", "TP_TRADE", "EC_PAID")


async def test_the_whitelist_names_groups_and_message_types(trade: ConfigService) -> None:
    allowed = await trade.stress.allow("default", "SG_POINTS", "TP_TRADE", "EC_PAID")
    with pytest.raises(ThingAlreadyExistsError):
        await trade.stress.allow("default", "SG_POINTS", "TP_TRADE", "EC_PAID")
    with pytest.raises(EventCodeNotFoundError):
        await trade.stress.allow("default", "SG_POINTS", "TP_TRADE", "EC_NEVER")
    assert (await trade.stress.list_whitelist("default", group="SG_POINTS")).items == (allowed.thing,)

    await trade.stress.disallow("default", "SG_POINTS", "TP_TRADE", "EC_PAID")

    assert (await trade.stress.list_whitelist("default")).items == ()
    with pytest.raises(ThingNotFoundError):
        await trade.stress.disallow("default", "SG_POINTS", "TP_TRADE", "EC_PAID")


async def test_an_event_code_or_topic_that_goes_takes_its_whitelist_entries_along(trade: ConfigService) -> None:
    await trade.stress.allow("default", "SG_POINTS", "TP_TRADE", "EC_PAID")
    await trade.stress.allow("default", "SG_POINTS", "TP_TRADE", "*")

    await trade.event_codes.remove("default", "TP_TRADE", "EC_PAID")
    assert [entry.event_code for entry in (await trade.stress.list_whitelist("default")).items] == ["*"]

    await trade.topics.delete("default", "TP_TRADE")
    assert (await trade.stress.list_whitelist("default")).items == ()
