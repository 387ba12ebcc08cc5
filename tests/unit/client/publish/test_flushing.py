"""`flush` and `ready` return when they say they do, whatever becomes of the messages, whoever goes on publishing."""

from __future__ import annotations

import asyncio

import pytest

from msgbroker.client import PublishTimeoutError
from tests.support.paused_center import PausedCenter, begun, several_turns

LATER_SECONDS = 31.0


def let_time_pass(center: PausedCenter) -> None:
    """Have the publish timeout over."""
    center.publisher.buffer.expire(asyncio.get_running_loop().time() + LATER_SECONDS)


async def test_what_expires_unsent_with_nobody_waiting_is_flushed_and_makes_room() -> None:
    async with PausedCenter(unanswered_messages_max=2) as center, asyncio.timeout(5):
        assert center.publish_one_way("TP", "EC", b"1")
        cancelled = await begun(center.publish("TP", "EC", b"2"))
        cancelled.cancel()
        flushing = await begun(center.flush())
        getting_ready = await begun(center.ready())
        publishing = await begun(center.publish("TP", "EC", b"3", timeout_seconds=2 * LATER_SECONDS))
        assert not any(each.done() for each in (flushing, getting_ready, publishing))

        let_time_pass(center)
        await flushing
        await getting_ready
        await several_turns()
        center.publisher.store()
        await publishing

    assert center.publisher.stored == [3]


async def test_flush_returns_after_a_publish_with_a_time_of_its_own_has_timed_out() -> None:
    async with PausedCenter() as center, asyncio.timeout(5):
        with pytest.raises(PublishTimeoutError):
            await center.publish("TP", "EC", b"1", timeout_seconds=1e-9)
        flushing = await begun(center.flush())

        let_time_pass(center)
        await flushing


async def test_flush_waits_for_what_was_published_before_it_and_for_nothing_else() -> None:
    async with PausedCenter() as center, asyncio.timeout(5):
        before = [center.publish_soon("TP", "EC", str(n)) for n in range(2)]
        center.publisher.send()
        flushing = await begun(center.flush())
        after = center.publish_soon("TP", "EC", b"2")
        assert not flushing.done()
        center.publisher.answer()
        await asyncio.gather(*before)
        await flushing
        assert not after.done()

        center.publisher.store()
        await after


async def test_flush_waits_for_what_waits_for_room_and_not_for_those_behind_it() -> None:
    async with PausedCenter(unanswered_messages_max=1) as center, asyncio.timeout(5):
        center.publish_one_way("TP", "EC", b"1")
        waiting = await begun(center.publish("TP", "EC", b"2"))
        flushing = await begun(center.flush())
        behind = await begun(center.publish("TP", "EC", b"3"))

        center.publisher.store()
        await several_turns()
        assert not flushing.done()
        center.publisher.store()
        await waiting
        await flushing
        await several_turns()
        assert not behind.done()

        center.publisher.store()
        await behind
    assert center.publisher.stored == [1, 2, 3]


async def test_a_flush_that_was_cancelled_leaves_no_mark() -> None:
    async with PausedCenter() as center:
        center.publish_one_way("TP", "EC", b"1")
        flushing = await begun(center.flush())
        flushing.cancel()
        await asyncio.wait([flushing])

        assert not center.publisher.buffer._flushes
        assert not center.publisher.buffer.outbox._marks
        center.publisher.store()
