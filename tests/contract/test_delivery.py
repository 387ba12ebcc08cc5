"""Conformance: what a subscriber may rely on."""

from __future__ import annotations

from typing import Any

import pytest

from msgbroker.client import (
    ExpressionTooCostlyError,
    GroupNotFoundError,
    InvalidExpressionError,
    InvalidSettingError,
    Message,
    Reject,
    Release,
    RetryAfter,
)
from msgbroker.contract.errors import BeginningPassedError
from tests.contract.harness import Harness, Letter, Recorder, prepare, record


async def test_a_message_arrives_as_it_was_published(harness: Harness) -> None:
    await prepare(harness, "SG")
    async with harness.center() as center:
        recorder = record(center, "SG")
        await center.start()
        receipt = await center.publish("TP", "EC", "文".encode(), headers={"region": "杭州"}, key="k", ordering_key="o")
        await harness.received(recorder, 1)

    (message,) = recorder.messages
    assert (message.topic, message.event_code, message.body) == ("TP", "EC", "文".encode())
    assert (message.headers, message.key, message.ordering_key) == ({"region": "杭州"}, "k", "o")
    assert (message.message_id, message.queue_id, message.queue_offset, message.stored_at) == (
        receipt.message_id,
        receipt.queue_id,
        receipt.queue_offset,
        receipt.stored_at,
    )
    assert (message.attempt, message.stress) == (1, False)
    assert message.born_host


async def test_every_group_gets_every_message_once_and_in_order(harness: Harness) -> None:
    await prepare(harness, "SG_A", "SG_B")
    async with harness.center() as center:
        recorders = [record(center, "SG_A"), record(center, "SG_B")]
        await center.start()
        for n in range(200):
            await center.ready()
            center.publish_soon("TP", "EC", str(n))
        await center.flush()
        for recorder in recorders:
            await harness.received(recorder, 200)

    assert [recorder.bodies for recorder in recorders] == [[str(n).encode() for n in range(200)]] * 2


async def test_a_group_gets_only_what_it_subscribed_to(harness: Harness) -> None:
    await harness.register_topic("TP", "EC", "EC_OTHER")
    await harness.register_group("SG")
    await harness.subscribe("SG", "TP", "EC")
    async with harness.center() as center:
        recorder = record(center, "SG")
        await center.start()
        await center.publish("TP", "EC_OTHER", b"other")
        await center.publish("TP", "EC", b"wanted")
        await harness.received(recorder, 1)

    assert recorder.bodies == [b"wanted"]


async def test_each_event_code_goes_to_its_own_handler(harness: Harness) -> None:
    await prepare(harness, "SG")
    async with harness.center() as center:
        named = record(center, "SG", "EC")
        rest = record(center, "SG")
        await center.start()
        await center.publish("TP", "EC_OTHER", b"other")
        await center.publish("TP", "EC", b"named")
        await harness.received(named, 1)
        await harness.received(rest, 1)

    assert (named.bodies, rest.bodies) == ([b"named"], [b"other"])


async def test_raising_tries_again_and_counts_the_attempt(harness: Harness) -> None:
    await prepare(harness, "SG", retry_schedule_seconds=(0.01, 0.01))
    recorder = Recorder()
    async with harness.center() as center:

        @center.subscriber(group="SG", topic="TP")
        async def handle(message: Message) -> None:
            recorder.add(message)
            if message.attempt < 3:
                raise ValueError("not yet")

        await center.start()
        await center.publish("TP", "EC", b"1")
        await harness.received(recorder, 3)

    assert [message.attempt for message in recorder.messages] == [1, 2, 3]
    assert recorder.bodies == [b"1"] * 3


async def test_after_the_last_attempt_comes_the_dead_letter(harness: Harness) -> None:
    await prepare(harness, "SG", retry_schedule_seconds=(0.01, 0.01))
    async with harness.center() as center:

        @center.subscriber(group="SG", topic="TP")
        async def handle(message: Message) -> None:
            raise ValueError(f"attempt {message.attempt}")

        await center.start()
        await center.publish("TP", "EC", b"1")
        letters = await harness.dead_letters("SG", 1)

    assert letters == [Letter(b"1", 3, "ATTEMPTS_EXHAUSTED", "ValueError: attempt 3")]


async def test_reject_dead_letters_at_once_with_its_reason(harness: Harness) -> None:
    await prepare(harness, "SG")
    async with harness.center() as center:

        @center.subscriber(group="SG", topic="TP")
        async def handle(message: Message) -> None:
            raise Reject("no such order")

        await center.start()
        await center.publish("TP", "EC", b"1")
        letters = await harness.dead_letters("SG", 1)

    assert letters == [Letter(b"1", 1, "REJECTED", "no such order")]


async def test_a_body_that_cannot_be_read_becomes_a_dead_letter(harness: Harness) -> None:
    await prepare(harness, "SG")
    seen: list[dict[str, Any]] = []
    async with harness.center() as center:

        @center.subscriber(group="SG", topic="TP")
        async def handle(body: dict[str, Any]) -> None:
            seen.append(body)

        await center.start()
        await center.publish("TP", "EC", {"n": 1})
        await center.publish("TP", "EC", b"{")
        letters = await harness.dead_letters("SG", 1)

    assert seen == [{"n": 1}]
    assert [(letter.body, letter.attempts, letter.reason) for letter in letters] == [(b"{", 1, "UNREADABLE_BODY")]
    assert "not JSON" in letters[0].last_error


async def test_retry_after_overrides_the_schedule(harness: Harness) -> None:
    await prepare(harness, "SG", retry_schedule_seconds=(3_600,))
    recorder = Recorder()
    async with harness.center() as center:

        @center.subscriber(group="SG", topic="TP")
        async def handle(message: Message) -> None:
            recorder.add(message)
            if message.attempt == 1:
                raise RetryAfter(0.01)

        await center.start()
        await center.publish("TP", "EC", b"1")
        await harness.received(recorder, 2)

    assert [message.attempt for message in recorder.messages] == [1, 2]


@pytest.mark.parametrize("seconds", [0, 0.01])
async def test_release_gives_back_without_counting_the_attempt(harness: Harness, seconds: float) -> None:
    await prepare(harness, "SG")
    recorder = Recorder()
    async with harness.center() as center:

        @center.subscriber(group="SG", topic="TP")
        async def handle(message: Message) -> None:
            recorder.add(message)
            if len(recorder.messages) < 3:
                raise Release(seconds)

        await center.start()
        await center.publish("TP", "EC", b"1")
        await harness.received(recorder, 3)

    assert [message.attempt for message in recorder.messages] == [1, 1, 1]


async def test_handlers_that_are_not_async_work_the_same(harness: Harness) -> None:
    await prepare(harness, "SG", retry_schedule_seconds=(0.01,))
    attempts: list[int] = []
    async with harness.center() as center:

        @center.subscriber(group="SG", topic="TP")
        def handle(body: str, message: Message) -> None:
            attempts.append(message.attempt)
            raise ValueError(body)

        await center.start()
        await center.publish("TP", "EC", "text")
        letters = await harness.dead_letters("SG", 1)

    assert attempts == [1, 2]
    assert [letter.last_error for letter in letters] == ["ValueError: text"]


async def test_a_header_subscription_gets_what_satisfies_its_expression(harness: Harness) -> None:
    await harness.register_topic("TP", "EC")
    await harness.register_group("SG")
    await harness.subscribe("SG", "TP", expression='headers.region == "hz" && int(headers.amount) > 100')
    async with harness.center() as center:
        recorder = record(center, "SG")
        await center.start()
        await center.publish("TP", "EC", b"too little", headers={"region": "hz", "amount": "100"})
        await center.publish("TP", "EC", b"elsewhere", headers={"region": "bj", "amount": "101"})
        await center.publish("TP", "EC", b"no headers")
        await center.publish("TP", "EC", b"not a number", headers={"region": "hz", "amount": "x"})
        await center.publish("TP", "EC", b"wanted", headers={"region": "hz", "amount": "101"})
        await harness.received(recorder, 1)

    assert recorder.bodies == [b"wanted"]


async def test_overlapping_subscriptions_deliver_once(harness: Harness) -> None:
    await prepare(harness, "SG")
    await harness.subscribe("SG", "TP", "EC")
    async with harness.center() as center:
        recorder = record(center, "SG")
        await center.start()
        await center.publish("TP", "EC", b"1")
        await center.publish("TP", "EC_OTHER", b"2")
        await harness.received(recorder, 2)

    assert recorder.bodies == [b"1", b"2"]


async def test_a_bad_expression_is_refused_with_its_position(harness: Harness) -> None:
    await harness.register_topic("TP", "EC")
    await harness.register_group("SG")
    with pytest.raises(InvalidExpressionError, match="line 1, column"):
        await harness.subscribe("SG", "TP", expression="headers.region ==")


async def test_an_expression_that_costs_too_much_is_refused(harness: Harness) -> None:
    await harness.register_topic("TP", "EC")
    await harness.register_group("SG")
    with pytest.raises(ExpressionTooCostlyError, match="a macro inside of another"):
        await harness.subscribe("SG", "TP", expression="headers.exists(a, headers.exists(b, a == b))")


async def test_stress_messages_reach_only_whitelisted_groups(harness: Harness) -> None:
    await prepare(harness, "SG_SHADOW", "SG_REAL")
    await harness.allow_stress("SG_SHADOW", "TP", "EC")
    async with harness.center() as center:
        shadow, real = record(center, "SG_SHADOW"), record(center, "SG_REAL")
        await center.start()
        await center.publish("TP", "EC", b"stress", headers={"x-stress-test": "true"})
        await center.publish("TP", "EC_OTHER", b"other stress", headers={"x-stress-test": "true"})
        await center.publish("TP", "EC", b"normal")
        await harness.received(shadow, 2)
        await harness.received(real, 1)
        await harness.disallow_stress("SG_SHADOW", "TP", "EC")
        await center.publish("TP", "EC", b"late stress", headers={"x-stress-test": "true"})
        await center.publish("TP", "EC", b"late")
        await harness.received(shadow, 3)
        await harness.received(real, 2)

    assert shadow.bodies == [b"stress", b"normal", b"late"]
    assert real.bodies == [b"normal", b"late"]
    assert [message.stress for message in shadow.messages] == [True, False, False]


async def test_a_new_subscription_delivers_what_comes_after_it(harness: Harness) -> None:
    await harness.register_topic("TP", "EC")
    async with harness.center() as center:
        await center.publish("TP", "EC", b"before")
        await harness.register_group("SG_NEW")
        await harness.subscribe("SG_NEW", "TP")
        await harness.register_group("SG_ALL")
        await harness.subscribe("SG_ALL", "TP", from_beginning=True)
        await center.publish("TP", "EC", b"after")
        new, everything = record(center, "SG_NEW"), record(center, "SG_ALL")
        await center.start()
        await harness.received(new, 1)
        await harness.received(everything, 2)

    assert new.bodies == [b"after"]
    assert everything.bodies == [b"before", b"after"]


async def test_a_group_that_is_not_registered_cannot_be_subscribed(harness: Harness) -> None:
    async with harness.center() as center:
        record(center, "SG_UNKNOWN")
        with pytest.raises(GroupNotFoundError, match="SG_UNKNOWN"):
            await center.start()


async def test_a_group_that_has_read_a_topic_is_refused_its_beginning(harness: Harness) -> None:
    await harness.register_topic("TP", "EC", "EC_OTHER")
    await harness.register_group("SG")
    await harness.subscribe("SG", "TP", "EC")
    async with harness.center() as center:
        got = record(center, "SG")
        await center.start()
        await center.publish("TP", "EC_OTHER", b"before")
        await center.publish("TP", "EC", b"1")
        await harness.received(got, 1)
        with pytest.raises(BeginningPassedError):
            await harness.subscribe("SG", "TP", "EC_OTHER", from_beginning=True)
        await harness.subscribe("SG", "TP", "EC_OTHER")
        await center.publish("TP", "EC_OTHER", b"2")
        await harness.received(got, 2)

    assert got.bodies == [b"1", b"2"]


async def test_settings_out_of_bounds_are_refused(harness: Harness) -> None:
    of_groups: list[dict[str, Any]] = [
        {"ack_timeout_seconds": 0.1},
        {"attempts_max": 0},
        {"attempts_max": 1_000},
        {"retry_schedule_seconds": [-5]},
        {"retry_schedule_seconds": [1] * 1_000},
        {"unsettled_max": 0},
        {"unsettled_max": 1_000_000},
    ]
    for settings in of_groups:
        with pytest.raises(InvalidSettingError, match=next(iter(settings))):
            await harness.register_group("SG", **settings)
    for body_bytes_max in (0, 5_000_000):
        with pytest.raises(InvalidSettingError, match="body_bytes_max"):
            await harness.register_topic("TP", "EC", body_bytes_max=body_bytes_max)
    # Nothing was left behind, and what is just within the bounds is taken.
    await prepare(harness, "SG", ack_timeout_seconds=1, attempts_max=1, retry_schedule_seconds=(), unsettled_max=1)


async def test_a_handler_that_gets_nothing_is_warned_of(harness: Harness, caplog: pytest.LogCaptureFixture) -> None:
    await prepare(harness, "SG")
    async with harness.center() as center:

        @center.subscriber(group="SG", topic="TP_TYPO", event_code="EC")
        @center.subscriber(group="SG", topic="TP", event_code="EC")
        async def handle(message: Message) -> None: ...

        await center.start()

    (warning,) = [record.getMessage() for record in caplog.records if "gets nothing" in record.getMessage()]
    # In whatever form a client of another language logs.
    assert [words for words in ("SG", "TP_TYPO", "EC", "the topic is not registered") if words not in warning] == []
