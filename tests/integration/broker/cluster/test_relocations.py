"""Instances whose broker has none of their lanes, or cannot read what they subscribe to, go where that is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextvars import ContextVar
from typing import Any

import pytest

from confdb import route_rows
from confdb.expressions.compiled import compile_expression
from confdb.services import ConfigService
from msgbroker.contract.errors import InvalidExpressionError
from msgbroker.server.app import Broker
from tests.support.broker_fixtures import StartBroker
from tests.support.by_hand import by_hand, routed
from tests.support.collecting import (
    PAID,
    TOPIC,
    register_group,
    register_topic,
    subscribed,
)
from tests.support.eventually import eventually
from tests.support.raw_streams import RawSubscriber, raw_subscriber
from tests.support.two_brokers import lanes, publish


def relocate_after(seconds: float, *brokers: Broker) -> None:
    """Let instances be told where to go when they have been in the wrong place for so long."""
    for broker in brokers:
        broker.cluster.ownership._misplaced._after_seconds = seconds


def addresses(raw: RawSubscriber) -> set[str]:
    """Return where the instance was told to go."""
    return {address for told in raw.told for address in told.relocation.addresses}


def agreed_owner(brokers: Sequence[Broker]) -> str:
    """Return the address of the broker that has lanes, if all of them know that it is the only one that should."""
    for broker in brokers:
        others = [other for other in brokers if other is not broker]
        owner_ids = [{*ids} for other in others for ids in other.cluster.ownership._wanted.owners.values()]
        if lanes(broker) and owner_ids == [{broker.cluster.heartbeats.identity.broker_id}] * len(others):
            return broker.address
    return ""


async def test_an_instance_is_told_where_the_lanes_are_and_not_where_others_have_none_either(
    config: ConfigService, start_broker: StartBroker
) -> None:
    brokers = [await start_broker(lease_seconds=60) for _ in range(3)]
    relocate_after(math.inf, *brokers)
    await register_topic(config, queue_count=1)
    await register_group(config)
    async with (
        raw_subscriber(brokers[0].address, instance_id="a") as a,
        raw_subscriber(brokers[1].address, instance_id="b") as b,
        raw_subscriber(brokers[2].address, instance_id="c") as c,
    ):
        owner = await eventually(lambda: agreed_owner(brokers), what="all agree who owns the one lane, and it does")
        relocate_after(0.0, *brokers)
        await eventually(lambda: len([raw for raw in (a, b, c) if addresses(raw)]) == 2)

    assert sorted(sorted(addresses(raw)) for raw in (a, b, c)) == [[], [owner], [owner]]


async def test_what_cannot_be_read_where_the_only_instance_is_is_served_by_a_broker_that_can_read_it(
    config: ConfigService, start_broker: StartBroker, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    has_old_compiler = ContextVar("has_old_compiler", default=False)

    def compile_here(text: str) -> Any:
        if has_old_compiler.get():
            raise InvalidExpressionError("undeclared reference to 'headers.size'")
        return compile_expression(text)

    # No feature tells of it: the versions of a library differ.
    monkeypatch.setattr(route_rows, "compile_expression", compile_here)
    token = has_old_compiler.set(True)
    older = [await start_broker(lease_seconds=60) for _ in range(2)]
    has_old_compiler.reset(token)
    newer = await start_broker(lease_seconds=60)
    relocate_after(0.5, *older, newer)
    await register_topic(config)
    await register_group(config)
    await register_topic(config, "TP_STOCK")
    await config.subscriptions.create("default", "SG_POINTS", "TP_STOCK", PAID)
    header = (
        "UPDATE subscription SET mode = 'HEADER', expression = 'true'"
        f" WHERE topic_id = (SELECT topic_id FROM topic WHERE name = '{TOPIC}')"
    )
    await routed(await by_hand(database_url, header), *older, newer)
    await eventually(lambda: all(len(broker.cluster.heartbeats.brokers) == 3 for broker in [*older, newer]))
    async with subscribed(older[0].address) as got:
        await publish(newer.address, 10)
        await got.until(10, 30)
        assert [len(g.instances) for b in [*older, newer] for g in b.hub.groups.values() if g.instances] == [1]
