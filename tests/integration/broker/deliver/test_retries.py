"""Attempts that fail, and what becomes of the message: again later, to somebody else, or a dead letter."""

from __future__ import annotations

import asyncio
import itertools
import time

import pytest

from confdb.services import ConfigService
from msgbroker.client import Message, MessageCenter, Reject, Release, RetryAfter
from msgbroker.server.app import Broker
from msgdb.store import MessageStore
from tests.support.broker_fixtures import StartBroker
from tests.support.collecting import (
    GROUP,
    PAID,
    TOPIC,
    all_settled,
    dead_letters,
    register_group,
    subscribed,
)
from tests.support.eventually import eventually
from tests.support.raw_streams import raw_subscriber


async def test_a_message_that_failed_comes_again_by_the_schedule_of_its_group(
    trade: ConfigService, broker: Broker, center: MessageCenter
) -> None:
    await register_group(trade, retry_schedule_seconds=(0.2, 0.6))
    times: list[float] = []

    async def fail_twice(message: Message) -> None:
        times.append(time.monotonic())
        if message.attempt < 3:
            raise ValueError("not yet")

    async with subscribed(broker.address, act=fail_twice) as got:
        await center.publish(TOPIC, PAID, "a")
        await got.until(3)
        await all_settled(broker)

    assert [message.attempt for message in got.messages] == [1, 2, 3]
    first, second = (later - earlier for earlier, later in itertools.pairwise(times))
    assert 0.2 <= first < 0.6 <= second < 2


async def test_others_are_delivered_while_one_waits_for_its_next_attempt(
    trade: ConfigService, broker: Broker, center: MessageCenter
) -> None:
    await register_group(trade)

    async def fail_the_first(message: Message) -> None:
        if message.body == b"0":
            raise RetryAfter(60)

    async with subscribed(broker.address, act=fail_the_first, concurrency=1) as got:
        for number in range(10):
            await center.publish(TOPIC, PAID, str(number), key="k")
        await got.until(10)
        await all_settled(broker)

    assert got.bodies == [str(number) for number in range(10)]


async def test_a_released_message_comes_again_after_its_delay_and_no_attempt_is_counted(
    trade: ConfigService, broker: Broker, center: MessageCenter
) -> None:
    await register_group(trade)
    times: list[float] = []

    async def release_twice(_: Message) -> None:
        times.append(time.monotonic())
        if len(times) < 3:
            raise Release(0.3)

    async with subscribed(broker.address, act=release_twice) as got:
        await center.publish(TOPIC, PAID, "a")
        await got.until(3)

    assert [message.attempt for message in got.messages] == [1, 1, 1]
    assert all(later - earlier >= 0.3 for earlier, later in itertools.pairwise(times))


async def test_a_rejected_message_is_a_dead_letter_with_a_full_copy(
    trade: ConfigService, broker: Broker, center: MessageCenter, message_store: MessageStore
) -> None:
    await register_group(trade)

    async def reject(_: Message) -> None:
        raise Reject("no such order")

    async with subscribed(broker.address, act=reject) as got:
        receipt = await center.publish(TOPIC, PAID, b"\x00\xff", headers={"region": "hz"}, key="k", ordering_key="o")
        (letter,) = await eventually(lambda: dead_letters(trade, message_store))

    (message,) = got.messages
    summary = letter.summary
    assert (summary.group_name, summary.attempts, summary.reason) == (GROUP, 1, "REJECTED")
    assert summary.last_error == "no such order"
    assert (letter.body, summary.headers, summary.key, summary.ordering_key) == (
        b"\x00\xff",
        {"region": "hz"},
        "k",
        "o",
    )
    assert (summary.topic, summary.event_code, summary.namespace, summary.stress) == (TOPIC, PAID, "default", False)
    assert summary.message_id == receipt.message_id.bytes
    assert (summary.queue_id, summary.queue_offset) == (receipt.queue_id, receipt.queue_offset)
    assert summary.born_host == message.born_host


async def test_after_the_last_attempt_comes_the_dead_letter(
    trade: ConfigService, broker: Broker, center: MessageCenter, message_store: MessageStore
) -> None:
    await register_group(trade, retry_schedule_seconds=(0.05, 0.05))

    async def fail(message: Message) -> None:
        raise ValueError(f"attempt {message.attempt}")

    async with subscribed(broker.address, act=fail) as got:
        await center.publish(TOPIC, PAID, "a")
        (letter,) = await eventually(lambda: dead_letters(trade, message_store))
        await all_settled(broker)

    assert [message.attempt for message in got.messages] == [1, 2, 3]
    assert (letter.summary.attempts, letter.summary.reason) == (3, "ATTEMPTS_EXHAUSTED")
    assert letter.summary.last_error == "ValueError: attempt 3"
    async with message_store.connection() as conn:
        assert await (await conn.execute("SELECT * FROM redelivery")).fetchall() == []


async def test_an_error_text_that_no_database_takes_whole_is_kept_as_far_as_it_can_be(
    trade: ConfigService, broker: Broker, center: MessageCenter, message_store: MessageStore
) -> None:
    await register_group(trade, retry_schedule_seconds=(0.05,))

    async def fail(_: Message) -> None:
        raise ValueError("byte \0 in record " + "x" * 2_000)

    async with subscribed(broker.address, act=fail):
        await center.publish(TOPIC, PAID, "a")
        (letter,) = await eventually(lambda: dead_letters(trade, message_store))
        await all_settled(broker)

    error = letter.summary.last_error
    assert error is not None
    assert error.startswith("ValueError: byte \N{REPLACEMENT CHARACTER} in record xxx")
    assert len(error) == 1_000


async def test_what_is_not_answered_in_time_goes_to_another_instance(
    trade: ConfigService, broker: Broker, center: MessageCenter
) -> None:
    await register_group(trade, ack_timeout_seconds=1.0, handle_seconds_max=0, retry_schedule_seconds=(0.1, 0.1, 0.1))
    stuck = asyncio.Event()

    async def hang(_: Message) -> None:
        await stuck.wait()

    async with subscribed(broker.address, act=hang, credit=1, concurrency=1) as stalled:
        await center.publish(TOPIC, PAID, "a")
        await stalled.until(1)
        started_at = time.monotonic()
        async with subscribed(broker.address) as other:
            await eventually(lambda: other.messages or len(stalled.messages) > 1)
            assert time.monotonic() - started_at < 4
            await other.until(1)
            await all_settled(broker)
            assert other.messages[0].attempt >= 2
        stuck.set()


async def test_what_an_instance_held_when_it_went_away_goes_to_another_at_once(
    trade: ConfigService, broker: Broker, center: MessageCenter
) -> None:
    await register_group(trade, ack_timeout_seconds=600)
    async with raw_subscriber(broker.address) as vanishing:
        for number in range(10):
            await center.publish(TOPIC, PAID, str(number))
        await vanishing.until(10)
        async with subscribed(broker.address) as other:
            started_at = time.monotonic()
            await vanishing.vanish()
            await other.until(10)
            assert time.monotonic() - started_at < 2

    assert sorted(other.bodies) == [str(number) for number in range(10)]
    # One attempt counts: a message that kills its process must not do so for ever, and nobody said which it was.
    assert sorted(message.attempt for message in other.messages) == [1] * 9 + [2]


@pytest.mark.parametrize("seconds", [0.0, 0.3])
async def test_a_retry_waits_as_long_as_the_handler_says(
    trade: ConfigService, broker: Broker, center: MessageCenter, seconds: float
) -> None:
    await register_group(trade)
    times: list[float] = []

    async def again(_: Message) -> None:
        times.append(time.monotonic())
        if len(times) == 1:
            raise RetryAfter(seconds)

    async with subscribed(broker.address, act=again) as got:
        await center.publish(TOPIC, PAID, "a")
        await got.until(2)

    assert [message.attempt for message in got.messages] == [1, 2]
    assert seconds <= times[1] - times[0] < seconds + 2


async def test_retries_are_still_due_after_the_broker_was_restarted(
    trade: ConfigService, start_broker: StartBroker, message_store: MessageStore
) -> None:
    await register_group(trade)

    async def fail_once(message: Message) -> None:
        if message.attempt == 1:
            raise RetryAfter(1)

    first = await start_broker()
    async with MessageCenter(first.address) as center, subscribed(first.address, act=fail_once) as got:
        await center.publish(TOPIC, PAID, "a")
        await got.until(1)
    await first.shut_down()
    second = await start_broker()
    async with subscribed(second.address, act=fail_once) as got:
        await got.until(1)

    assert [(message.body, message.attempt) for message in got.messages] == [(b"a", 2)]
