"""What is told where the log has lost its end: other messages lie where lanes have settled what was lost."""

from __future__ import annotations

import pytest

from msgbroker.client import MessageCenter, Receipt
from msgbroker.server.app import Broker
from msgbroker.v1 import subscriber_pb2
from msgconsole.operations.status.answers import State
from msgconsole.operations.stores import Stores
from msgdb.acts import list_acts
from tests.support.collecting import PAID, TOPIC, subscribed
from tests.support.eventually import eventually
from tests.support.jobs import reject
from tests.support.raw_streams import raw_subscriber
from tests.support.statuses import until, until_certain, with_group


async def publish(center: MessageCenter, name: str, count: int) -> list[Receipt]:
    return [await center.publish(TOPIC, PAID, f"{name} {number}") for number in range(count)]


async def lose_from(stores: Stores, offset: int) -> None:
    """Take the end of the log away, as a copy of its disk that was restored on the same timeline does."""
    async with stores.messages.connection() as conn:
        await conn.execute("DELETE FROM message WHERE queue_offset >= %s", (offset,))


async def given_up(stores: Stores) -> None:
    """Wait until nobody serves the lane."""

    async def is_nobodys() -> bool:
        async with stores.messages.connection() as conn:
            return await (await conn.execute("SELECT owner FROM cursor")).fetchall() == [(None,)]

    await eventually(is_nobodys, what="the lane given up")


async def test_what_was_stored_where_others_were_lost_is_not_told_as_delivered(
    stores: Stores, broker: Broker, center: MessageCenter
) -> None:
    async with subscribed(broker.address) as ours:
        old = await publish(center, "old", 20)
        await ours.until(20)
        await until_certain(stores, old[-1], State.DELIVERED)
    await given_up(stores)
    await lose_from(stores, 10)
    new = await publish(center, "new", 5)

    told = await with_group(stores, new[0])

    assert not told.is_certain
    assert [(each.state, "lost its end" in each.when) for each in told.others] == [(State.UNKNOWN, True)]

    async with subscribed(broker.address) as ours:
        await eventually(lambda: "new 4" in ours.bodies, what="what was stored after the loss")
        # Its lane was put back, and that is noted: all it has settled is of this log.
        await until_certain(stores, new[0], State.DELIVERED)
    async with stores.messages.connection() as conn:
        (act,) = await list_acts(conn, action="lanes.put_back")
    assert (act.actor.startswith("broker "), act.reason) == (True, "the log had lost its end")


async def test_a_dead_letter_of_a_message_that_was_lost_tells_that_the_one_in_its_place_is_another(
    stores: Stores, broker: Broker, center: MessageCenter
) -> None:
    async with subscribed(broker.address, act=reject):
        old = await publish(center, "old", 3)
        await until(stores, old[-1], State.DEAD_LETTER)
    await given_up(stores)
    await lose_from(stores, 1)
    # As many as were lost, and more: where the log ends tells nobody any more.
    new = await publish(center, "new", 4)

    kept = await with_group(stores, old[0])
    replaced = [await with_group(stores, each) for each in new]

    assert (kept.state, kept.is_certain) == (State.DEAD_LETTER, True)
    assert [each.state for each in replaced] == [State.UNKNOWN, State.UNKNOWN, State.PENDING, State.PENDING]
    assert "the log has lost its end" in replaced[0].detail
    assert [each.state for each in replaced[0].others] == [State.DELIVERED]
    assert replaced[2].is_certain


async def test_what_waited_at_its_place_was_another_message(
    stores: Stores, broker: Broker, center: MessageCenter
) -> None:
    async with raw_subscriber(broker.address) as subscriber:
        (old,) = await publish(center, "old", 1)
        (given,) = await subscriber.until(1)
        await subscriber.settle(given, verdict=subscriber_pb2.VERDICT_RETRY, error="timeout", delay_ms=60_000)
        await until(stores, old, State.RETRYING)
    await given_up(stores)
    async with stores.messages.connection() as conn:
        assert await (await conn.execute("SELECT acked_offset FROM cursor")).fetchall() == [(1,)]
    await lose_from(stores, 0)
    (new,) = await publish(center, "new", 1)

    told = await with_group(stores, new)

    assert (told.state, told.last_error) == (State.UNKNOWN, None)


@pytest.mark.parametrize("is_known", [False, True])
async def test_a_lane_within_its_log_is_not_doubted(
    stores: Stores, broker: Broker, center: MessageCenter, *, is_known: bool
) -> None:
    async with subscribed(broker.address, act=reject if is_known else None):
        receipts = await publish(center, "a", 3)
        await until(stores, receipts[-1], State.DEAD_LETTER if is_known else State.DELIVERED)

    assert all([(await with_group(stores, each)).is_certain for each in receipts])
