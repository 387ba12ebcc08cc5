"""From deliveries to handlers: which runner of a group each message goes to. Shared with the in-memory center."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from msgbroker.client.connect.background import OnFailure
from msgbroker.client.handle.ending import Ending
from msgbroker.client.handle.handed import HandedMessage, LaneHandle
from msgbroker.client.handle.handlers import HandlerTable
from msgbroker.client.handle.holding import Hold
from msgbroker.client.handle.runner import HandlerRunner
from msgbroker.client.handle.threads import HandlerThreads
from msgbroker.client.handle.turns import Turns
from msgbroker.client.values.verdicts import RELEASED_AT_ONCE, Verdict, VerdictKind
from msgbroker.v1 import subscriber_pb2

UNHANDLED_RELEASE_SECONDS: Final = 5.0
_UNHANDLED: Final = Verdict(VerdictKind.RELEASE, UNHANDLED_RELEASE_SECONDS, "no handler for this message type here")


class GroupHandlers:
    """The handlers of one group, each with its runner: each message that is delivered goes to the handler it is for."""

    def __init__(self, table: HandlerTable, on_failure: OnFailure) -> None:
        self._table = table
        self._threads = HandlerThreads(sum(handler.concurrency for handler in table if not handler.is_async))
        self._ending = Ending()
        self._runners = {handler: HandlerRunner(handler, self._threads, self._ending, on_failure) for handler in table}

    @property
    def concurrency(self) -> int:
        """How many messages the handlers can work on at once."""
        return self._threads.count_max + sum(handler.concurrency for handler in self._runners if handler.is_async)

    @property
    def message_types(self) -> list[tuple[str, str]]:
        """The topics and event codes that have a handler here."""
        return [(handler.topic, handler.event_code) for handler in self._runners]

    @property
    def is_at_rest(self) -> bool:
        """Whether no message waits for a handler and no handler runs."""
        return all(runner.is_at_rest for runner in self._runners.values())

    @property
    def running_count(self) -> int:
        """How many messages the handlers are at."""
        return sum(runner.running_count for runner in self._runners.values())

    @property
    def credit(self) -> int | None:
        """The credit the user asked for; None: as it turns out best."""
        asked = [handler.credit for handler in self._runners if handler.credit is not None]
        return sum(asked) if asked else None

    def take_in(
        self,
        deliveries: Sequence[subscriber_pb2.Delivery],
        lane: LaneHandle,
        deadline: float,
        *,
        are_suspect: bool = False,
    ) -> None:
        """Hand deliveries of one lane, hence of one topic, to their handlers; give back what nobody here handles."""
        if not deliveries:
            return
        handler = self._table.find_only(deliveries[0].message.topic)
        if handler is not None:
            messages = [HandedMessage(delivery, lane, deadline) for delivery in deliveries]
            self._runners[handler].feed(messages, are_suspect=are_suspect)
            return
        shares: dict[HandlerRunner, list[HandedMessage]] = {}
        for delivery in deliveries:
            said = delivery.message
            message = HandedMessage(delivery, lane, deadline)
            handler = self._table.find(said.topic, said.event_code)
            if handler is None:
                message.settle(_UNHANDLED)
            else:
                shares.setdefault(self._runners[handler], []).append(message)
        for runner, share in shares.items():
            runner.feed(share, are_suspect=are_suspect)

    def give_back(self, deliveries: Iterable[subscriber_pb2.Delivery], lane: LaneHandle) -> None:
        """Release deliveries that came too late to be started."""
        for delivery in deliveries:
            lane.settle(delivery.queue_offset, delivery.attempt or 1, RELEASED_AT_ONCE)

    def is_handling(self, task: asyncio.Task[Any] | None) -> bool:
        """Whether a handler runs in that task."""
        return any(runner.is_handling(task) for runner in self._runners.values())

    def take_turns(self, turns: Turns | None) -> None:
        """Let the workers take these turns from now on, where turns are needed; None: no more."""
        for runner in self._runners.values():
            runner.take_turns(turns)

    def unsaid_since(self) -> float | None:
        """Return since when a handler has been at a message that was not said to be begun; None: none is."""
        times = (runner.works.unsaid_since() for runner in self._runners.values())
        return min((since for since in times if since is not None), default=None)

    @property
    def has_waiting(self) -> bool:
        """Whether messages wait to be begun."""
        return any(runner.has_waiting for runner in self._runners.values())

    def say_begun(self, began_until: float, count_max: int) -> None:
        """Say of messages begun until then, each once, that they are; the rest of more than *count_max* comes later."""
        for runner in self._runners.values():
            count_max -= runner.works.say_begun(began_until, count_max)

    def extend_due(self, hold: Hold) -> None:
        """Extend the time of what handlers are at, where that is needed by now."""
        for runner in self._runners.values():
            runner.works.extend_due(hold)

    @property
    def is_holding(self) -> bool:
        """Whether handlers are at messages that nobody else was given, as far as is known."""
        return any(runner.works.are_held for runner in self._runners.values())

    def extend_all(self, seconds: float) -> None:
        """Extend the time of all that handlers are at: so long from now on."""
        for runner in self._runners.values():
            runner.works.extend_all(seconds)

    def lose_stream(self, again_seconds: float) -> None:
        """Forget what was not started, as its stream has ended; what is being handled has so long to come again."""
        for runner in self._runners.values():
            runner.drop_waiting()
            runner.works.lose_stream(again_seconds)

    def take_back(self, is_meant: Callable[[HandedMessage], bool], why: str) -> None:
        """Take note that messages are somebody else's now: what is at them is stopped."""
        for runner in self._runners.values():
            runner.works.take_back(is_meant, why)

    def release_waiting(self) -> None:
        """Give back what was not started."""
        for runner in self._runners.values():
            runner.release_waiting()

    def drop_waiting(self) -> None:
        """Forget what was not started: its stream has ended."""
        for runner in self._runners.values():
            runner.drop_waiting()

    async def join(self, timeout_seconds: float | None = None) -> bool:
        """Wait until all handlers are at rest; return False if they were not in time."""
        try:
            async with asyncio.timeout(None if timeout_seconds == math.inf else timeout_seconds):
                for runner in self._runners.values():
                    await runner.join()
        except TimeoutError:
            return False
        return True

    def end_with(self, stream: asyncio.Task[None]) -> None:
        """Let the workers end with the task of their stream."""
        self._ending.follow(stream)

    async def cancel(self) -> None:
        """Stop the handlers that are running, for good and within a moment; their messages are given back."""
        self._ending.begin()
        await asyncio.gather(*(runner.cancel() for runner in self._runners.values()))

    async def close(self) -> None:
        """Stop the handlers that are running, and end the threads; those that run on end when they are done."""
        await self.cancel()
        self._threads.close()
