"""What the log holds is delivered again, to one group, and nothing else changes."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest

from confdb.services import ConfigService
from msgbroker.client import MessageCenter
from msgbroker.contract.errors import (
    GroupNotFoundError,
    NothingSelectedError,
    SubscriptionNotFoundError,
    ThingNotFoundError,
    TopicNotFoundError,
)
from msgbroker.server.app import Broker
from msgconsole.operations import counting
from msgconsole.operations.replays.replay import WantedReplay, plan_replay, replay
from msgconsole.operations.stores import Stores
from msgdb.jobs.records import JobKind, NewJob
from msgdb.jobs.steering import begin_job
from msgdb.postgres.history import find_history
from tests.support.collecting import GROUP, PAID, REFUNDED, TOPIC, all_settled, register_group, subscribed
from tests.support.jobs import ended
from tests.support.stress import STRESS, allow

OTHER = "SG_STOCK"
BY_ADA: dict[str, Any] = {"actor": "ada", "reason": "the ledger lost a day"}


@pytest.fixture
async def groups(trade: ConfigService) -> ConfigService:
    """Register a group that wants what was paid in one region, and one that wants all."""
    await register_group(trade, OTHER, "*")
    await trade.subscriber_groups.create("default", GROUP)
    made = await trade.subscriptions.create("default", GROUP, TOPIC, PAID, expression='headers.region == "hz"')
    await trade.wait_until_active(made.version)
    return trade


def wanted(**said: Any) -> WantedReplay:
    return WantedReplay(**{"namespace": "default", "group": GROUP, "topic": TOPIC, **said})


async def publish(center: MessageCenter, count: int, event_code: str = PAID, region: str = "hz") -> list[bytes]:
    receipts = [
        await center.publish(TOPIC, event_code, f"{event_code} {region} {number}", headers={"region": region}, key="k")
        for number in range(count)
    ]
    return [receipt.message_id.bytes for receipt in receipts]


async def test_what_a_group_asks_for_comes_again_to_it_alone_under_its_id(
    groups: ConfigService, broker: Broker, stores: Stores, center: MessageCenter
) -> None:
    async with subscribed(broker.address) as ours, subscribed(broker.address, OTHER) as others:
        ids = await publish(center, 5)
        await publish(center, 3, REFUNDED)
        await publish(center, 2, region="sh")
        await ours.until(5)
        await others.until(10)

        begun = await replay(stores, wanted(), **BY_ADA)
        status = await ended(stores, begun.job_id)
        await ours.until(10)
        await all_settled(broker)

        assert (begun.plan.looked_at, begun.plan.replayed, begun.plan.is_exact) == (10, 5, True)
        assert (status.state, status.done, status.scanned, status.skipped) == ("DONE", 5, 10, 0)
        assert len(others.messages) == 10
    # In their order, because they have one key.
    assert [message.message_id.bytes for message in ours.messages] == [*ids, *ids]
    assert [(message.replayed, message.redrives) for message in ours.messages[5:]] == [(True, 0)] * 5


async def test_times_codes_keys_and_headers_narrow_it_and_so_does_nothing_else(
    groups: ConfigService, broker: Broker, stores: Stores, center: MessageCenter
) -> None:
    await publish(center, 4)
    between = await database_time(stores)
    await publish(center, 3)
    await publish(center, 2, REFUNDED)
    await publish(center, 1, region="sh")

    async def counted(**said: Any) -> int:
        plan = await plan_replay(stores, wanted(**said))
        assert plan.is_exact
        return plan.replayed

    assert await counted() == 7
    assert await counted(stored_from=between) == 3
    assert await counted(stored_before=between) == 4
    assert await counted(stored_from=between, whatever_it_asks_for=True) == 6
    assert await counted(whatever_it_asks_for=True, event_code=REFUNDED) == 2
    assert await counted(whatever_it_asks_for=True, headers={"region": "sh"}) == 1
    assert await counted(key="k") == 7
    assert await counted(key="another") == 0
    with pytest.raises(NothingSelectedError):
        await replay(stores, wanted(key="another"), **BY_ADA)


async def test_single_messages_are_replayed_by_their_ids_whatever_the_group_asks_for(
    groups: ConfigService, broker: Broker, stores: Stores, center: MessageCenter
) -> None:
    receipt = await center.publish(TOPIC, REFUNDED, "one", headers={"region": "sh"})
    asked = wanted(topic=None, message_ids=(receipt.message_id,))
    async with subscribed(broker.address, event_code=REFUNDED) as ours:
        await ended(stores, (await replay(stores, asked, **BY_ADA)).job_id)
        assert await ours.until(1) == ["one"]
    with pytest.raises(ThingNotFoundError, match="message"):
        await replay(stores, wanted(topic=None, message_ids=(uuid4(),)), **BY_ADA)


async def test_a_message_that_is_named_twice_is_replayed_once(
    groups: ConfigService, broker: Broker, stores: Stores, center: MessageCenter
) -> None:
    first, second = [await center.publish(TOPIC, PAID, body) for body in ("one", "two")]
    asked = wanted(topic=None, message_ids=(second.message_id, first.message_id, second.message_id))

    begun = await replay(stores, asked, **BY_ADA)

    assert (begun.plan.looked_at, begun.plan.replayed) == (2, 2)
    assert (await ended(stores, begun.job_id)).done == 2


async def test_stress_messages_that_the_group_may_not_see_are_told_of(
    groups: ConfigService, broker: Broker, stores: Stores, center: MessageCenter
) -> None:
    receipt = await center.publish(TOPIC, PAID, "stress", headers=STRESS | {"region": "hz"})
    await publish(center, 2)

    by_range = await plan_replay(stores, wanted())
    by_id = await plan_replay(stores, wanted(topic=None, message_ids=(receipt.message_id,)))
    assert [(plan.replayed, plan.denied) for plan in (by_range, by_id)] == [(3, 1), (1, 1)]

    await allow(groups, GROUP)
    assert (await plan_replay(stores, wanted())).denied == 0


async def test_what_was_replayed_or_redriven_is_not_replayed_itself(
    groups: ConfigService, broker: Broker, stores: Stores, center: MessageCenter
) -> None:
    await publish(center, 2)
    await ended(stores, (await replay(stores, wanted(), **BY_ADA)).job_id)

    again = await replay(stores, wanted(), **BY_ADA)

    assert (again.plan.looked_at, again.plan.replayed) == (4, 2)
    assert (await ended(stores, again.job_id)).done == 2


async def test_it_goes_by_what_the_group_asked_for_when_it_began(
    groups: ConfigService, broker: Broker, stores: Stores, center: MessageCenter
) -> None:
    await publish(center, 30)
    begun = await replay(stores, wanted(), **BY_ADA, rate=30)
    await groups.subscriptions.create("default", GROUP, TOPIC, REFUNDED)
    await groups.subscriptions.delete("default", GROUP, TOPIC, PAID)

    assert (await ended(stores, begun.job_id)).done == 30


async def test_a_large_range_is_estimated_and_says_so(
    groups: ConfigService, broker: Broker, stores: Stores, center: MessageCenter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counting, "EXACT_MAX", 10)
    monkeypatch.setattr(counting, "_SAMPLE_MESSAGES", 5)
    for _ in range(10):
        await publish(center, 3)
        await publish(center, 1, region="sh")

    plan = await plan_replay(stores, wanted())

    assert not plan.is_exact
    assert plan.looked_at == 40
    assert 25 <= plan.replayed <= 35


async def test_what_went_with_its_day_is_counted_as_skipped(
    groups: ConfigService, broker: Broker, stores: Stores, center: MessageCenter
) -> None:
    await publish(center, 4)
    plan = await plan_replay(stores, wanted())
    ((queue_id, _, end),) = plan.spec.ranges
    async with stores.messages.transaction() as conn:
        await conn.execute("DELETE FROM message WHERE queue_id = %s AND queue_offset < %s", (queue_id, end - 1))
        new = NewJob(JobKind.REPLAY, "default", plan.thing, plan.spec.as_json(), plan.replayed)
        job_id = await begin_job(conn, new, **BY_ADA)

    status = await ended(stores, job_id)

    assert (status.state, status.done, status.skipped, status.scanned) == ("DONE", 1, 3, 4)


async def test_in_another_history_of_the_store_nothing_is_replayed(
    groups: ConfigService, broker: Broker, stores: Stores, center: MessageCenter
) -> None:
    await publish(center, 2)
    async with stores.messages.transaction() as conn:
        history = await find_history(conn)
        assert history is not None
    plan = await plan_replay(stores, wanted())
    assert plan.spec.history_id == str(history.history_id)
    async with stores.messages.transaction() as conn:
        spec = plan.spec.as_json() | {"history_id": str(uuid4())}
        job_id = await begin_job(conn, NewJob(JobKind.REPLAY, "default", plan.thing, spec, 2), **BY_ADA)

    status = await ended(stores, job_id)

    assert status.state == "FAILED"
    assert "another history" in (status.last_error or "")


@pytest.mark.parametrize(
    "said, error",
    [
        ({"group": "SG_NOBODY"}, GroupNotFoundError),
        ({"topic": "TP_NONE"}, TopicNotFoundError),
        ({"topic": "TP_OTHER"}, SubscriptionNotFoundError),
        ({"namespace": "shop"}, GroupNotFoundError),
    ],
)
async def test_what_cannot_be_delivered_is_refused_before_anything_begins(
    groups: ConfigService, stores: Stores, said: dict[str, Any], error: type[Exception]
) -> None:
    await groups.topics.create("default", "TP_OTHER")
    with pytest.raises(error):
        await plan_replay(stores, wanted(**said))


async def database_time(stores: Stores) -> datetime:
    async with stores.messages.connection() as conn:
        row = await (await conn.execute("SELECT clock_timestamp()")).fetchone()
    assert row is not None
    found: datetime = row[0]
    return found.astimezone(UTC)
