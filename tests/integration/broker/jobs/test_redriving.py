"""Dead letters are delivered again, each to the group it failed in, whatever happens meanwhile."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from confdb.services import ConfigService
from msgbroker.client import Message, MessageCenter
from msgbroker.contract.errors import (
    BodyTooLargeError,
    InvalidHeadersError,
    InvalidSettingError,
    NothingSelectedError,
    ThingNotFoundError,
)
from msgbroker.server.app import Broker
from msgconsole.operations.dead_letters.redrive import plan_redrive, redrive
from msgconsole.operations.stores import Stores
from msgdb.acts import list_acts
from msgdb.dead_letters.choosing import purge_dead_letters
from msgdb.dead_letters.reading import get_dead_letter, list_redrives
from msgdb.dead_letters.wanted import WantedDeadLetters
from msgdb.jobs.listing import list_failures
from msgdb.jobs.specs import Edit
from tests.support.collecting import GROUP, PAID, REFUNDED, TOPIC, all_settled, register_group, subscribed
from tests.support.dead_letter_rows import all_dead_letters, bury
from tests.support.eventually import eventually
from tests.support.jobs import buried, ended, reject

OTHER = "SG_STOCK"
BY_ADA: dict[str, Any] = {"actor": "ada", "reason": "the warehouse is open again"}
OPEN = WantedDeadLetters(namespace="default", is_open=True)


@pytest.fixture
async def groups(trade: ConfigService) -> ConfigService:
    """Register two groups that want the same messages."""
    await register_group(trade)
    await register_group(trade, OTHER)
    return trade


async def test_a_redriven_message_comes_to_its_group_alone_as_the_message_that_it_was(
    groups: ConfigService, broker: Broker, stores: Stores
) -> None:
    async with subscribed(broker.address, OTHER) as others:
        ids = await buried(broker.address, stores.messages, 3)
        assert len(await others.until(3)) == 3
        async with subscribed(broker.address) as ours:
            begun = await redrive(stores, OPEN, **BY_ADA)
            status = await ended(stores, begun.job_id)
            await ours.until(3)
            await all_settled(broker)

        assert (status.state, status.total, status.done, status.failed) == ("DONE", 3, 3, 0)
        assert sorted(ours.bodies) == ["body 0", "body 1", "body 2"]
        assert len(others.messages) == 3
    by_body = {message.body: message for message in others.messages}
    for message in ours.messages:
        original = by_body[message.body]
        assert (message.message_id, message.key, message.headers) == (
            original.message_id,
            original.key,
            original.headers,
        )
        assert (message.born_at, message.born_host) == (original.born_at, original.born_host)
        assert (message.redrives, message.replayed, message.attempt) == (1, False, 1)
        assert (original.redrives, original.replayed) == (0, False)
    async with stores.messages.connection() as conn:
        for dead_letter_id in ids:
            summary = (await get_dead_letter(conn, dead_letter_id)).summary
            (landing,) = await list_redrives(conn, dead_letter_id)
            (message,) = [each for each in ours.messages if each.message_id.bytes == summary.message_id]
            assert (landing.job_id, landing.queue_id, landing.queue_offset) == (
                begun.job_id,
                message.queue_id,
                message.queue_offset,
            )
        (act,) = await list_acts(conn)
    assert (act.actor, act.action, act.reason) == ("ada", "job.redrive", "the warehouse is open again")
    assert act.namespace == "default"


async def test_what_fails_again_is_another_dead_letter_that_counts_its_redrives(
    groups: ConfigService, broker: Broker, stores: Stores
) -> None:
    (first,) = await buried(broker.address, stores.messages, 1)
    async with subscribed(broker.address, act=reject):
        for redrives in (1, 2):
            await ended(stores, (await redrive(stores, OPEN, **BY_ADA)).job_id)

            async def has_died_again(count: int = redrives + 1) -> bool:
                async with stores.messages.connection() as conn:
                    return len(await all_dead_letters(conn)) == count

            await eventually(has_died_again, what="another dead letter")

    async with stores.messages.connection() as conn:
        letters = (await all_dead_letters(conn))[::-1]
    assert letters[0].dead_letter_id == first
    assert [letter.redrives for letter in letters] == [0, 1, 2]
    assert len({letter.message_id for letter in letters}) == 1
    assert [letter.redriven_at_us is not None for letter in letters] == [True, True, False]


async def test_what_was_redriven_is_redriven_again_only_where_that_is_said(
    groups: ConfigService, broker: Broker, stores: Stores
) -> None:
    (dead_letter_id,) = await buried(broker.address, stores.messages, 1)
    await ended(stores, (await redrive(stores, OPEN, **BY_ADA)).job_id)

    with pytest.raises(NothingSelectedError, match="open dead letter"):
        await redrive(stores, OPEN, **BY_ADA)
    again = await redrive(stores, WantedDeadLetters(namespace="default", ids=(dead_letter_id,)), **BY_ADA)
    assert (await ended(stores, again.job_id)).done == 1


async def test_a_dry_run_counts_what_would_happen_and_changes_nothing(
    groups: ConfigService, broker: Broker, stores: Stores
) -> None:
    await buried(broker.address, stores.messages, 2)
    async with stores.messages.connection() as conn:
        group_id = (await groups.subscriber_groups.get("default", GROUP)).group_id
        await bury(conn, 3, group_id=10**6, group_name="SG_GONE")
        await bury(conn, 1, group_id=group_id, topic="TP_GONE")
        await bury(conn, 5, group_id=group_id, stress=True)

    plan = await plan_redrive(stores, OPEN)

    assert (plan.redriven, plan.impossible) == (7, 4)
    by_problem = {(each.group, each.topic, each.stress): (each.letters, each.problem, each.note) for each in plan.sums}
    assert by_problem["SG_GONE", TOPIC, False][:2] == (3, "the group is not registered any more")
    assert by_problem[GROUP, "TP_GONE", False][:2] == (1, "the topic is not registered any more")
    letters, problem, note = by_problem[GROUP, TOPIC, True]
    assert (letters, problem) == (5, None)
    assert note is not None
    assert "whitelist" in note
    async with stores.messages.connection() as conn:
        assert await list_acts(conn) == []


async def test_what_cannot_be_delivered_is_told_message_by_message_and_the_rest_comes(
    groups: ConfigService, broker: Broker, stores: Stores
) -> None:
    await buried(broker.address, stores.messages, 2)
    async with stores.messages.connection() as conn:
        group_id = (await groups.subscriber_groups.get("default", GROUP)).group_id
        (gone,) = await bury(conn, 1, group_id=10**6, group_name="SG_GONE")
        (topic,) = await bury(conn, 1, group_id=group_id, topic="TP_GONE")
        (often,) = await bury(conn, 1, group_id=group_id, redrives=32_767)

    async with subscribed(broker.address) as ours:
        job_id = (await redrive(stores, OPEN, **BY_ADA)).job_id
        status = await ended(stores, job_id)
        await ours.until(2)

    assert (status.state, status.done, status.failed, status.total) == ("DONE", 2, 3, 5)
    async with stores.messages.connection() as conn:
        failures = dict(await list_failures(conn, job_id))
    assert failures == {
        f"dead letter {gone}": "subscriber group 'SG_GONE' is not registered in namespace 'default'",
        f"dead letter {topic}": "topic 'TP_GONE' is not registered in namespace 'default'",
        f"dead letter {often}": failures[f"dead letter {often}"],
    }
    assert "32767" in failures[f"dead letter {often}"]


async def test_it_comes_though_the_group_asks_for_something_else_by_now(
    groups: ConfigService, broker: Broker, stores: Stores
) -> None:
    await buried(broker.address, stores.messages, 1)
    await groups.subscriptions.create("default", GROUP, TOPIC, REFUNDED)
    version = (await groups.subscriptions.delete("default", GROUP, TOPIC, PAID)).version
    await groups.wait_until_active(version)

    async with subscribed(broker.address) as ours:
        await ended(stores, (await redrive(stores, OPEN, **BY_ADA)).job_id)
        assert await ours.until(1) == ["body 0"]


async def test_an_edited_copy_is_delivered_and_the_dead_letter_is_as_it_was(
    groups: ConfigService, broker: Broker, stores: Stores
) -> None:
    (dead_letter_id,) = await buried(broker.address, stores.messages, 1)
    one = WantedDeadLetters(namespace="default", ids=(dead_letter_id,))
    edit = Edit(base64.b64encode(b"mended\0").decode(), {"mended": "by hand"})

    async with subscribed(broker.address) as ours:
        await ended(stores, (await redrive(stores, one, **BY_ADA, edit=edit)).job_id)
        await ours.until(1)

    (message,) = ours.messages
    assert (message.body, message.headers, message.key) == (b"mended\0", {"mended": "by hand"}, "key-0")
    async with stores.messages.connection() as conn:
        letter = await get_dead_letter(conn, dead_letter_id)
        (act,) = await list_acts(conn)
    assert (letter.body, letter.summary.headers) == (b"body 0", {"number": "0"})
    assert act.detail is not None
    assert act.detail["edited"] == ["body", "headers"]


async def test_what_cannot_be_edited_so_is_refused(groups: ConfigService, broker: Broker, stores: Stores) -> None:
    first, second = await buried(broker.address, stores.messages, 2)
    one = WantedDeadLetters(namespace="default", ids=(first,))
    large = Edit(base64.b64encode(bytes(8_193)).decode())

    with pytest.raises(InvalidSettingError, match="single"):
        await redrive(
            stores, WantedDeadLetters(namespace="default", ids=(first, second)), **BY_ADA, edit=Edit(headers={})
        )
    with pytest.raises(BodyTooLargeError, match="8192"):
        await redrive(stores, one, **BY_ADA, edit=large)
    with pytest.raises(InvalidHeadersError):
        await redrive(stores, one, **BY_ADA, edit=Edit(headers={"": "x"}))
    with pytest.raises(ThingNotFoundError):
        await redrive(stores, WantedDeadLetters(namespace="default", ids=(10**9,)), **BY_ADA, edit=large)
    with pytest.raises(InvalidSettingError, match="namespace"):
        await redrive(stores, WantedDeadLetters(ids=(first,)), **BY_ADA)
    with pytest.raises(InvalidSettingError, match="namespace"):
        await plan_redrive(stores, WantedDeadLetters(is_open=True))


async def test_what_is_purged_meanwhile_is_told(groups: ConfigService, broker: Broker, stores: Stores) -> None:
    first, second = await buried(broker.address, stores.messages, 2)
    begun = await redrive(stores, OPEN, **BY_ADA, rate=1)
    async with stores.messages.connection() as conn:
        await purge_dead_letters(conn, [second])

    status = await ended(stores, begun.job_id)

    assert first < second
    assert (status.state, status.total, status.done, status.failed, status.skipped) == ("DONE", 2, 1, 0, 1)


async def test_an_application_may_redrive_while_others_publish_and_nobody_elses_order_changes(
    groups: ConfigService, broker: Broker, stores: Stores, center: MessageCenter
) -> None:
    await buried(broker.address, stores.messages, 20)
    handled: list[Message] = []

    async def handle(message: Message) -> None:
        handled.append(message)

    async with subscribed(broker.address, act=handle) as ours, subscribed(broker.address, OTHER) as others:
        begun = await redrive(stores, OPEN, **BY_ADA, rate=200)
        for number in range(100):
            await center.publish(TOPIC, PAID, f"new {number}", key="one")
        assert (await ended(stores, begun.job_id)).done == 20
        await ours.until(120)
        await others.until(120)
        await all_settled(broker)

    assert [body for body in ours.bodies if body.startswith("new")] == [f"new {number}" for number in range(100)]
    assert sorted(m.body.decode() for m in handled if m.redrives) == sorted(f"body {number}" for number in range(20))
    assert not any(message.redrives for message in others.messages)
