"""What the in-memory center has beyond a broker: it registers by itself, shows everything, and owns the clock."""

from __future__ import annotations

import asyncio

import pytest

from msgbroker.client import (
    GroupNotFoundError,
    InvalidSettingError,
    Message,
    MessageCenter,
    NotFoundError,
    Reject,
    Release,
    TopicNotFoundError,
)
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


async def test_what_is_not_given_again_stays_as_it_was() -> None:
    async with InMemoryCenter() as center:
        center.register_topic("TP", "EC", queue_count=8, body_bytes_max=10, is_open=True)
        center.register_topic("TP", "EC_OTHER", stress_refused=True)
        topic = center._memory.registry.get_topic("TP")
        assert (topic.queue_count, topic.body_bytes_max, topic.is_open, topic.stress_refused) == (8, 10, True, True)
        assert topic.event_codes == {"EC", "EC_OTHER"}
        center.register_topic("TP", is_open=False, queue_count=1)
        topic = center._memory.registry.get_topic("TP")
        assert (topic.queue_count, topic.body_bytes_max, topic.is_open, topic.stress_refused) == (1, 10, False, True)

        center.register_group("SG", ack_timeout_seconds=5, unsettled_max=3)
        center.register_group("SG", retry_schedule_seconds=(1, 2))
        group = center._memory.registry.get_group("SG")
        assert (group.ack_timeout_seconds, group.unsettled_max, group.attempts_max) == (5, 3, 3)
        center.register_group("SG", attempts_max=9)
        center.register_group("SG", retry_schedule_seconds=(1,))
        group = center._memory.registry.get_group("SG")
        assert (group.ack_timeout_seconds, group.retry_schedule_seconds, group.attempts_max) == (5, (1,), 9)


@pytest.mark.parametrize("is_strict", [True, False])
async def test_a_publisher_group_that_is_not_registered_is_refused(*, is_strict: bool) -> None:
    async with InMemoryCenter(strict=is_strict, publisher_group="PG_TYPO") as center:
        center.register_topic("TP", "EC")
        if not is_strict:
            # Nothing is known of publisher groups: as long as none is registered, any will do.
            await center.publish("TP", "EC")
            center.register_publisher_group("PG")
        with pytest.raises(GroupNotFoundError, match="publisher group 'PG_TYPO' is not registered"):
            await center.publish("TP", "EC")
        center.register_publisher_group("PG_TYPO")
        await center.publish("TP", "EC")

    assert {message.publisher_group for message in center.published} == {"PG_TYPO"}


@pytest.mark.parametrize("queue_count", [0, 300])
async def test_a_topic_has_no_more_queues_than_it_may_have(queue_count: int) -> None:
    async with InMemoryCenter() as center:
        with pytest.raises(InvalidSettingError, match="queue_count"):
            center.register_topic("TP", "EC", queue_count=queue_count)


async def handle_nothing(message: Message) -> None: ...


@pytest.mark.parametrize(
    "arguments, wording",
    [
        ({"topic": "TP_TYPO"}, "topic 'TP_TYPO' is not registered"),
        ({"event_code": "EC_TYPO"}, "event code 'EC_TYPO' is not registered"),
        ({"group": "SG_TYPO"}, "group 'SG_TYPO' is not registered"),
    ],
)
async def test_a_test_that_registers_something_is_told_of_names_it_did_not_register(
    arguments: dict[str, str], wording: str
) -> None:
    names = {"topic": "TP", "event_code": "EC", "group": "SG", **arguments}
    async with InMemoryCenter() as center:
        center.register_topic("TP", "EC")
        center.register_group("SG")

        with pytest.raises(NotFoundError, match=wording) as refused:
            center.subscriber(**names)(handle_nothing)  # type: ignore[arg-type]
        assert "register all that is used, or none" in refused.value.__notes__[0]
        if "group" not in arguments:
            with pytest.raises(NotFoundError, match=wording):
                await center.publish(names["topic"], names["event_code"])
        await center.start()
        assert center.published == []


async def test_subscriptions_are_still_made_for_registered_names() -> None:
    seen: list[str] = []
    async with InMemoryCenter() as center:
        await center.register("TP", "EC")
        await center.register("TP", "EC_OTHER")
        center.register_group("SG")
        for event_code in ("EC", "EC_OTHER"):

            @center.subscriber(group="SG", topic="TP", event_code=event_code)
            async def handle(message: Message) -> None:
                seen.append(message.event_code)

        await center.start()
        await center.publish("TP", "EC")
        await center.publish("TP", "EC_OTHER")
        await center.settle_all()
    assert seen == ["EC", "EC_OTHER"]


async def test_a_subscription_the_test_registered_is_the_one_that_counts() -> None:
    seen: list[bytes] = []
    async with InMemoryCenter() as center:
        center.register_topic("TP", "EC")
        center.register_group("SG")
        center.register_subscription("SG", "TP", "EC", expression="headers.region == 'hz'")

        @center.subscriber(group="SG", topic="TP")
        async def handle(message: Message) -> None:
            seen.append(message.body)

        await center.start()
        await center.publish("TP", "EC", b"no", headers={"region": "sh"})
        await center.publish("TP", "EC", b"yes", headers={"region": "hz"})
        await center.settle_all()
    assert seen == [b"yes"]


async def test_a_handler_that_registers_itself_makes_the_center_no_stricter() -> None:
    async with InMemoryCenter() as center:
        center.subscriber(group="SG", topic="TP", event_code="EC", register=True)(handle_nothing)
        await center.start()
        await center.publish("TP_OTHER", "EC")
        await center.settle_all()
    assert len(center.published) == 1


async def test_a_retry_is_made_when_the_test_says_so() -> None:
    attempts: list[int] = []
    async with InMemoryCenter() as center:
        center.register_topic("TP", "EC")
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


@pytest.mark.slow
async def test_a_handler_that_does_not_answer_in_time_is_called_again() -> None:
    attempts: list[int] = []
    async with InMemoryCenter(drain_timeout_seconds=0) as center:
        center.register_topic("TP", "EC")
        center.register_group("SG", ack_timeout_seconds=30, handle_seconds_max=0, retry_schedule_seconds=(5,))

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


async def test_time_passes_though_messages_are_released_at_once_for_ever() -> None:
    calls = 0
    async with InMemoryCenter() as center:

        @center.subscriber(group="SG", topic="TP")
        async def handle(message: Message) -> None:
            nonlocal calls
            calls += 1
            raise Release

        await center.start()
        for _ in range(3):
            await center.publish("TP", "EC")
        await center.advance(1)
        assert calls > 3 * 100
        with pytest.raises(TimeoutError, match="not settled"):
            await center.settle_all(within_seconds=3_600)


async def test_what_is_released_at_once_comes_again_without_time_to_pass() -> None:
    calls: list[int] = []
    async with InMemoryCenter() as center:

        @center.subscriber(group="SG", topic="TP")
        async def handle(message: Message) -> None:
            calls.append(message.attempt)
            if len(calls) < 50:
                raise Release

        await center.start()
        await center.publish("TP", "EC")
        await center.advance(0)

    assert calls == [1] * 50


@pytest.mark.slow
async def test_what_waited_behind_a_handler_for_too_long_is_no_attempt_and_comes_once() -> None:
    begun: list[tuple[bytes, int]] = []
    gate = asyncio.Event()
    async with InMemoryCenter() as center:
        center.register_topic("TP", "EC")
        center.register_group("SG", ack_timeout_seconds=60, handle_seconds_max=0, retry_schedule_seconds=())

        @center.subscriber(group="SG", topic="TP", concurrency=1)
        async def handle(message: Message) -> None:
            begun.append((message.body, message.attempt))
            if message.body == b"hangs":
                await gate.wait()

        await center.start()
        for body in (b"hangs", b"waits"):
            await center.publish("TP", "EC", body)
        await center.advance(150)
        gate.set()
        await center.settle_all()

    assert [letter.message.body for letter in center.dead_letters] == [b"hangs"]
    assert begun == [(b"hangs", 1), (b"waits", 1)]


@pytest.mark.slow
async def test_no_more_is_handed_out_than_the_group_allows() -> None:
    running: list[int] = []
    gate = asyncio.Event()
    async with InMemoryCenter() as center:
        center.register_topic("TP", "EC")
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
        center.memory.register_topic("TP", "EC")
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
