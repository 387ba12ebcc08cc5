"""What the in-memory center has beyond a broker: it registers by itself, shows everything, and owns the clock."""

from __future__ import annotations

import asyncio

import pytest

from msgbroker.client import Message, MessageCenter, Reject, Release, TopicNotFoundError
from msgbroker.client.testing import InMemoryCenter, SyncInMemoryCenter


async def test_what_is_used_registers_itself() -> None:
    seen: list[dict[str, int]] = []
    async with InMemoryCenter() as center:

        @center.subscriber(group="SG", topic="TP", event_code="EC")
        async def handle(body: dict[str, int]) -> None:
            seen.append(body)

        await center.start()
        await center.publish("TP", "EC", {"n": 1})
        await center.publish("TP", "EC_OTHER", {"n": 2})
        await center.settle_all()

    assert seen == [{"n": 1}]
    assert [message.event_code for message in center.published] == ["EC", "EC_OTHER"]
    assert isinstance(center, MessageCenter)


async def test_a_strict_one_refuses_what_is_not_registered() -> None:
    async with InMemoryCenter(strict=True) as center:
        with pytest.raises(TopicNotFoundError):
            await center.publish("TP", "EC")
        assert await center.register("TP", "EC", group="SG") == [
            "topic TP",
            "event code EC",
            "group SG",
            "subscription SG TP/EC",
        ]
        assert await center.register("TP", "EC", group="SG") == []
        await center.publish("TP", "EC")


async def test_a_retry_is_made_when_the_test_says_so() -> None:
    attempts: list[int] = []
    async with InMemoryCenter() as center:
        center.register_group("SG", retry_schedule_seconds=(10, 60))

        @center.subscriber(group="SG", topic="TP")
        async def handle(message: Message) -> None:
            attempts.append(message.attempt)
            raise ValueError("no luck")

        await center.start()
        await center.publish("TP", "EC")
        await center.advance(9)
        assert attempts == [1]
        await center.advance(1)
        assert attempts == [1, 2]
        await center.advance(60)

    assert attempts == [1, 2, 3]
    (letter,) = center.dead_letters
    assert (letter.group, letter.attempts, letter.reason) == ("SG", 3, "ATTEMPTS_EXHAUSTED")


async def test_a_handler_that_publishes_is_followed_to_the_end() -> None:
    reached: list[str] = []
    async with InMemoryCenter() as center:

        @center.subscriber(group="SG", topic="TP_FIRST")
        async def first(body: str) -> None:
            await center.publish("TP_SECOND", "EC", body)

        @center.subscriber(group="SG", topic="TP_SECOND")
        def second(body: str) -> None:
            reached.append(body)

        await center.start()
        await center.publish("TP_FIRST", "EC", "on its way")
        await center.settle_all()

    assert reached == ["on its way"]


async def test_a_handler_that_does_not_answer_in_time_is_called_again() -> None:
    attempts: list[int] = []
    async with InMemoryCenter(drain_timeout_seconds=0) as center:
        center.register_group("SG", ack_timeout_seconds=30, retry_schedule_seconds=(5,))

        @center.subscriber(group="SG", topic="TP")
        async def handle(message: Message) -> None:
            attempts.append(message.attempt)
            if message.attempt == 1:
                await asyncio.Event().wait()

        await center.start()
        await center.publish("TP", "EC")
        await center.advance(36)

    assert attempts == [1, 2]


async def test_settling_gives_up_on_what_is_released_for_ever() -> None:
    async with InMemoryCenter() as center:

        @center.subscriber(group="SG", topic="TP")
        async def handle(message: Message) -> None:
            raise Release(60)

        await center.start()
        await center.publish("TP", "EC")
        with pytest.raises(TimeoutError, match="not settled"):
            await center.settle_all(within_seconds=3_600)


async def test_no_more_is_handed_out_than_the_group_allows() -> None:
    running: list[int] = []
    gate = asyncio.Event()
    async with InMemoryCenter() as center:
        center.register_group("SG", unsettled_max=2)

        @center.subscriber(group="SG", topic="TP")
        async def handle(message: Message) -> None:
            running.append(message.queue_offset)
            await gate.wait()

        await center.start()
        for _ in range(5):
            await center.publish("TP", "EC")
        await center.advance(0)
        assert running == [0, 1]
        gate.set()
        await center.settle_all()

    assert running == [0, 1, 2, 3, 4]


def test_blocking_code_has_one_too() -> None:
    seen: list[str] = []
    with SyncInMemoryCenter() as center:
        center.memory.register_group("SG", retry_schedule_seconds=(10,))

        @center.subscriber(group="SG", topic="TP")
        def handle(body: str, message: Message) -> None:
            if message.attempt == 1:
                raise ValueError(body)
            seen.append(body)
            raise Reject("seen enough")

        center.start()
        center.publish("TP", "EC", "text")
        center.advance(10)

    assert seen == ["text"]
    assert [message.body for message in center.published] == [b"text"]
    assert [letter.last_error for letter in center.dead_letters] == ["seen enough"]
