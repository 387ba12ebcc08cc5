"""Messages are stored in the order of the calls, whoever waits for room, in whatever way, and whoever gives up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from msgbroker.client import (
    ClientBufferFullError,
    OutgoingMessage,
    PublishTimeoutError,
)
from tests.support.paused_center import PausedCenter


class History:
    """Publishes in all ways at once; a message's body is the number of its call."""

    def __init__(self, center: PausedCenter) -> None:
        self.center = center
        self.called = 0
        self.tasks: list[asyncio.Future[Any]] = []
        self.futures: list[asyncio.Future[Any]] = []
        self.refused = 0
        """How many calls have raised that there is no room."""

    def number(self) -> str:
        """Number a call that is made now."""
        self.called += 1
        return str(self.called)

    def publish(self) -> None:
        """Publish in a task of its own."""

        async def publish() -> None:
            await self.center.publish("TP", "EC", self.number())

        self._begin(publish())

    def publish_many(self) -> None:
        """Publish three in a task of its own."""

        def messages() -> Iterator[OutgoingMessage]:
            for _ in range(3):
                yield OutgoingMessage("TP", "EC", self.number())

        self._begin(self.center.publish_many(messages()))

    def publish_when_ready(self) -> None:
        """Wait for room in a task of its own, then publish."""

        async def publish() -> None:
            await self.center.ready()
            # Whoever is ready gets in: this never raises.
            self.futures.append(self.center.publish_soon("TP", "EC", self.number()))

        self._begin(publish())

    def only_be_ready(self) -> None:
        """Wait for room in a task of its own, and do not use it."""
        self._begin(self.center.ready())

    def flush(self) -> None:
        """Wait, in a task of its own, until all that was published so far is answered."""
        self._begin(self.center.flush())

    def publish_soon(self) -> None:
        """Publish at once, if there is room."""
        try:
            self.futures.append(self.center.publish_soon("TP", "EC", self.number()))
        except ClientBufferFullError:
            self.refused += 1

    def publish_one_way(self) -> None:
        """Publish at once, if there is room."""
        self.center.publish_one_way("TP", "EC", self.number())

    def store(self) -> None:
        """Have a frame stored."""
        self.center.publisher.store()

    def expire(self) -> None:
        """Let the publish timeout pass."""
        self.center.publisher.buffer.expire(asyncio.get_running_loop().time() + 31)

    def cancel(self, which: int) -> None:
        """Cancel one of those that wait."""
        waiting = [each for each in [*self.tasks, *self.futures] if not each.done()]
        if waiting:
            waiting[which % len(waiting)].cancel()

    def _begin(self, doing: Any) -> None:
        self.tasks.append(asyncio.ensure_future(doing))


WAYS: list[Callable[[History], None]] = [
    History.publish,
    History.publish_many,
    History.publish_when_ready,
    History.only_be_ready,
    History.flush,
    History.publish_soon,
    History.publish_one_way,
    History.store,
    History.expire,
]


@settings(max_examples=300, deadline=None)
@given(
    steps=st.lists(st.one_of(st.sampled_from(WAYS), st.integers(0, 50), st.none()), max_size=120),
    room=st.integers(1, 4),
)
def test_whatever_waits_and_whoever_gives_up_the_order_is_that_of_the_calls(
    steps: list[Callable[[History], None] | int | None], room: int
) -> None:
    async def run() -> None:
        center = PausedCenter(unanswered_messages_max=room)
        history = History(center)
        await center.ready()
        for step in steps:
            if step is None:
                await asyncio.sleep(0)
            elif isinstance(step, int):
                history.cancel(step)
            else:
                step(history)
        await drain(history)

        stored = center.publisher.stored
        assert stored == sorted(stored)
        for task in history.tasks:
            assert task.cancelled() or isinstance(task.exception(), PublishTimeoutError | None)
        await asyncio.gather(*history.futures, return_exceptions=True)
        await center.close()

    asyncio.run(run())


async def drain(history: History) -> None:
    """Store all there is; nobody may wait for ever."""
    for _ in range(10 * len(history.tasks) + 10):
        history.center.publisher.store()
        await asyncio.sleep(0)
    assert all(each.done() for each in [*history.tasks, *history.futures])
    assert history.center.publisher.buffer.outbox.count == 0
