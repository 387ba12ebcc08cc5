"""Namespaces, topics, event codes and publisher groups: what may be registered, changed and deleted."""

from __future__ import annotations

import pytest

from confdb.routes import TopicKind
from confdb.services import ConfigService
from msgbroker.contract import limits
from msgbroker.contract.errors import (
    EventCodeNotFoundError,
    GroupNotFoundError,
    InvalidNameError,
    InvalidRequestFieldError,
    InvalidSettingError,
    KindNotSupportedError,
    LimitReachedError,
    NamespaceNotFoundError,
    ThingAlreadyExistsError,
    ThingInUseError,
    TopicNotFoundError,
)


async def test_a_topic_is_as_it_was_registered(service: ConfigService) -> None:
    created = await service.topics.create(
        "default", "TP_TRADE", queue_count=8, body_bytes_max=65_536, is_open=True, description="Trades"
    )

    topic = await service.topics.get("default", "TP_TRADE")

    assert topic == created.thing
    assert (topic.kind, topic.queue_count, topic.generation) == (TopicKind.NORMAL, 8, 1)
    assert (topic.body_bytes_max, topic.is_open, topic.is_closed) == (65_536, True, False)
    assert topic.trace_rate == 0.01
    assert topic.description == "Trades"


async def test_a_second_registration_of_a_topic_is_refused(service: ConfigService) -> None:
    await service.topics.create("default", "TP_TRADE")

    with pytest.raises(ThingAlreadyExistsError, match="'TP_TRADE' is registered already"):
        await service.topics.create("default", "TP_TRADE")


async def test_a_topic_deleted_and_registered_again_is_another_topic(service: ConfigService) -> None:
    first = await service.topics.create("default", "TP_TRADE")
    await service.topics.delete("default", "TP_TRADE")

    second = await service.topics.create("default", "TP_TRADE")

    assert second.thing.topic_id > first.thing.topic_id


async def test_kinds_that_are_not_carried_out_yet_are_refused(service: ConfigService) -> None:
    with pytest.raises(KindNotSupportedError, match="SCHEDULED is not supported yet; use NORMAL"):
        await service.topics.create("default", "TP_TRADE", kind=TopicKind.SCHEDULED)


@pytest.mark.parametrize(
    "setting, value",
    [
        ("queue_count", 0),
        ("queue_count", limits.QUEUES_MAX + 1),
        ("body_bytes_max", 0),
        ("body_bytes_max", limits.BODY_BYTES_CEILING + 1),
        ("trace_rate", -0.01),
        ("trace_rate", 1.01),
        ("trace_rate", float("nan")),
        ("description", "x" * (limits.DESCRIPTION_CHARS_MAX + 1)),
        ("description", "\0"),
        ("description", "\ud800"),
    ],
)
async def test_a_topic_setting_out_of_bounds_is_refused_by_name(
    service: ConfigService, setting: str, value: object
) -> None:
    with pytest.raises(InvalidSettingError, match=f"^{setting} "):
        await service.topics.create("default", "TP_TRADE", **{setting: value})  # type: ignore[arg-type]
    await service.topics.create("default", "TP_TRADE")
    with pytest.raises(InvalidSettingError, match=f"^{setting} "):
        await service.topics.update("default", "TP_TRADE", **{setting: value})  # type: ignore[arg-type]


async def test_a_name_outside_of_the_alphabet_is_refused_wherever_it_is_used(service: ConfigService) -> None:
    for name in ("", "ä", "a\0b", "a b", "x" * 200):
        with pytest.raises(InvalidNameError):
            await service.topics.create("default", name)
        with pytest.raises(InvalidNameError):
            await service.topics.get("default", name)
        with pytest.raises(InvalidNameError):
            await service.topics.get(name, "TP_TRADE")
        with pytest.raises(InvalidNameError):
            await service.subscriber_groups.get("default", name)


async def test_more_queues_make_a_new_generation_and_fewer_are_refused(service: ConfigService) -> None:
    await service.topics.create("default", "TP_TRADE", queue_count=4)

    assert (await service.topics.update("default", "TP_TRADE", queue_count=4)).thing.generation == 1
    assert (await service.topics.update("default", "TP_TRADE", queue_count=6)).thing.generation == 2
    with pytest.raises(InvalidSettingError, match="queue_count is 6 and can only go up"):
        await service.topics.update("default", "TP_TRADE", queue_count=5)


async def test_an_update_changes_only_what_is_given(service: ConfigService) -> None:
    await service.topics.create("default", "TP_TRADE", description="Trades", body_bytes_max=100)

    await service.topics.update("default", "TP_TRADE", is_closed=True, stress_refused=True)
    await service.topics.update("default", "TP_TRADE", trace_rate=0.5)

    topic = await service.topics.get("default", "TP_TRADE")
    assert topic.trace_rate == 0.5
    assert (topic.is_closed, topic.stress_refused, topic.is_open) == (True, True, False)
    assert (topic.description, topic.body_bytes_max, topic.queue_count) == ("Trades", 100, 4)


async def test_a_topic_is_not_deleted_while_a_group_subscribes_to_it(trade: ConfigService) -> None:
    await trade.subscriptions.create("default", "SG_POINTS", "TP_TRADE", "*")

    with pytest.raises(ThingInUseError, match="'TP_TRADE' is in use by a subscription of group 'SG_POINTS'"):
        await trade.topics.delete("default", "TP_TRADE")

    await trade.subscriptions.delete("default", "SG_POINTS", "TP_TRADE", "*")
    await trade.topics.delete("default", "TP_TRADE")
    with pytest.raises(TopicNotFoundError):
        await trade.topics.get("default", "TP_TRADE")


async def test_a_page_of_topics_leads_to_the_next(service: ConfigService) -> None:
    for name in ("c", "a", "b"):
        await service.topics.create("default", name)

    first = await service.topics.list("default", limit=2)
    assert ([topic.name for topic in first.items], first.next_after) == (["a", "b"], "b")
    second = await service.topics.list("default", limit=2, after="b")
    assert ([topic.name for topic in second.items], second.next_after) == (["c"], None)


async def test_a_page_has_a_limit_and_a_place_to_begin(service: ConfigService) -> None:
    for limit in (0, limits.PAGE_ITEMS_MAX + 1):
        with pytest.raises(InvalidRequestFieldError, match="limit"):
            await service.topics.list("default", limit=limit)
    with pytest.raises(InvalidRequestFieldError, match="after"):
        await service.topics.list("default", after="\0")
    with pytest.raises(InvalidRequestFieldError, match="after"):
        await service.subscriptions.list("default", after=2**63)


async def test_an_event_code_is_registered_once_and_can_be_removed(trade: ConfigService) -> None:
    with pytest.raises(ThingAlreadyExistsError, match="TP_TRADE/EC_PAID"):
        await trade.event_codes.add("default", "TP_TRADE", "EC_PAID")

    await trade.event_codes.remove("default", "TP_TRADE", "EC_PAID")

    assert [code.name for code in (await trade.event_codes.list("default", "TP_TRADE")).items] == ["EC_REFUNDED"]
    with pytest.raises(EventCodeNotFoundError):
        await trade.event_codes.remove("default", "TP_TRADE", "EC_PAID")


async def test_an_event_code_is_not_removed_while_a_group_subscribes_to_it_by_name(trade: ConfigService) -> None:
    await trade.subscriptions.create("default", "SG_POINTS", "TP_TRADE", "EC_PAID")
    await trade.subscriptions.create("default", "SG_POINTS", "TP_TRADE", "*")

    with pytest.raises(ThingInUseError, match="SG_POINTS"):
        await trade.event_codes.remove("default", "TP_TRADE", "EC_PAID")
    await trade.event_codes.remove("default", "TP_TRADE", "EC_REFUNDED")


async def test_ensuring_event_codes_registers_the_missing_ones_and_a_repeat_changes_nothing(
    trade: ConfigService,
) -> None:
    first = await trade.event_codes.ensure("default", "TP_TRADE", ["EC_PAID", "EC_NEW", "EC_NEW"])
    second = await trade.event_codes.ensure("default", "TP_TRADE", ["EC_PAID", "EC_NEW"])

    assert [code.name for code in first.thing] == ["EC_NEW"]
    assert (second.thing, second.version) == ((), first.version)


async def test_a_topic_takes_so_many_event_codes_and_no_more(service: ConfigService) -> None:
    await service.topics.create("default", "TP_TRADE")
    names = [f"EC_{number}" for number in range(limits.EVENT_CODES_PER_TOPIC_MAX)]
    await service.event_codes.ensure("default", "TP_TRADE", names)

    with pytest.raises(LimitReachedError, match="topic 'TP_TRADE' has 1000 event codes: that is the most"):
        await service.event_codes.add("default", "TP_TRADE", "EC_ONE_MORE")


async def test_of_event_codes_that_are_asked_for_all_are_registered_or_none(service: ConfigService) -> None:
    await service.topics.create("default", "TP_TRADE")
    names = [f"EC_{number}" for number in range(limits.EVENT_CODES_PER_TOPIC_MAX)]
    await service.event_codes.ensure("default", "TP_TRADE", names[2:])

    with pytest.raises(LimitReachedError, match="has 998 event codes: there is no room for all of these, 1000 is the"):
        await service.event_codes.ensure("default", "TP_TRADE", ["EC_A", "EC_B", "EC_C"])
    assert len((await service.event_codes.list("default", "TP_TRADE", limit=1_000)).items) == 998


async def test_of_event_codes_that_publishers_used_as_many_are_registered_as_there_is_room_for(
    service: ConfigService,
) -> None:
    await service.topics.create("default", "TP_TRADE", is_open=True)
    names = [f"EC_{number}" for number in range(limits.EVENT_CODES_PER_TOPIC_MAX)]
    await service.event_codes.ensure("default", "TP_TRADE", names[2:])

    without_room = await service.event_codes.learn("default", "TP_TRADE", ["EC_2", "EC_A", "EC_B", "EC_A", "EC_C"])

    assert without_room == ["EC_C"]
    registered = {code.name for code in (await service.event_codes.list("default", "TP_TRADE", limit=1_000)).items}
    assert registered == {*names[2:], "EC_A", "EC_B"}
    assert await service.event_codes.learn("default", "TP_TRADE", ["EC_C"]) == ["EC_C"]


async def test_a_namespace_keeps_the_names_of_tenants_apart(trade: ConfigService) -> None:
    await trade.namespaces.create("tenant", description="Another")

    await trade.topics.create("tenant", "TP_TRADE")

    assert [namespace.name for namespace in (await trade.namespaces.list()).items] == ["default", "tenant"]
    with pytest.raises(GroupNotFoundError):
        await trade.subscriber_groups.get("tenant", "SG_POINTS")
    with pytest.raises(NamespaceNotFoundError):
        await trade.topics.list("nobody")
    with pytest.raises(ThingAlreadyExistsError):
        await trade.namespaces.create("tenant")


async def test_a_namespace_is_deleted_only_when_it_is_empty_and_not_the_default(service: ConfigService) -> None:
    await service.namespaces.create("tenant")
    await service.publisher_groups.create("tenant", "PG_SHOP")

    with pytest.raises(ThingInUseError, match="publisher group 'PG_SHOP'"):
        await service.namespaces.delete("tenant")
    with pytest.raises(ThingInUseError, match="'default'"):
        await service.namespaces.delete("default")

    await service.publisher_groups.delete("tenant", "PG_SHOP")
    await service.namespaces.delete("tenant")
    with pytest.raises(NamespaceNotFoundError):
        await service.namespaces.delete("tenant")


async def test_a_publisher_group_is_registered_listed_and_deleted(service: ConfigService) -> None:
    created = await service.publisher_groups.create("default", "PG_SHOP", description="The shop")
    with pytest.raises(ThingAlreadyExistsError):
        await service.publisher_groups.create("default", "PG_SHOP")

    assert await service.publisher_groups.get("default", "PG_SHOP") == created.thing
    assert (await service.publisher_groups.list("default")).items == (created.thing,)

    await service.publisher_groups.delete("default", "PG_SHOP")
    with pytest.raises(GroupNotFoundError, match="publisher group 'PG_SHOP'"):
        await service.publisher_groups.get("default", "PG_SHOP")
