"""What is told where the log has lost its end: other messages lie where lanes have settled what was lost."""

from __future__ import annotations

import pytest

from confdb.services import ConfigService
from msgbroker.client import MessageCenter, Receipt
from msgbroker.server.app import Broker
from msgbroker.v1 import subscriber_pb2
from msgconsole.operations.status.answers import State
from msgconsole.operations.status.message_status import find_status
from msgconsole.operations.status.wanted import WantedStatus
from msgconsole.operations.stores import Stores
from msgdb.acts import list_acts
from tests.support.collecting import GROUP, PAID, TOPIC, register_group, subscribed
from tests.support.dead_letter_rows import all_dead_letters, bury
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
    assert (act.namespace, act.is_namespace_noted) == (None, True)


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


async def test_of_a_place_where_two_messages_lay_no_dead_letter_is_told_as_that_of_the_other_one(
    stores: Stores, broker: Broker, center: MessageCenter, config: ConfigService
) -> None:
    await register_group(config, "SG_OTHER")
    _, receipt = await publish(center, "a", 2)
    async with stores.messages.connection() as conn:
        place = {"queue_id": receipt.queue_id, "topic": TOPIC, "event_code": PAID}
        # The log lost its end in between: each group has a dead letter of what lay there then.
        for group in (GROUP, "SG_OTHER"):
            group_id = (await config.subscriber_groups.get("default", group)).group_id
            await bury(conn, 1, **place, group_id=group_id, group_name=group)
        ids = {letter.message_id for letter in await all_dead_letters(conn)}
        await conn.execute("DELETE FROM message")
        await conn.execute("UPDATE queue SET start_offset = 2")

    found = await find_status(stores, WantedStatus(namespace="default", queue_id=receipt.queue_id, queue_offset=1))

    assert len(ids) == 2
    of_this = [each.group for each in found.places[0].groups if each.dead_letter is not None]
    # It is told under the id of one of the two.
    assert len(of_this) == 1
