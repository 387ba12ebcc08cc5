"""Delivery inside an in-memory center: the broker's lanes on one side, the client's handlers on the other."""

from __future__ import annotations

import asyncio
import functools
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from confdb.routes import GroupRoute, TopicRoute
from msgbroker.client.connect.background import cancel_and_wait
from msgbroker.client.handle.group_handlers import GroupHandlers
from msgbroker.client.handle.handed import HandedMessage
from msgbroker.client.subscribe.in_loop import InLoop
from msgbroker.client.testing.log import MemoryLog, StoredMessage
from msgbroker.client.testing.registry import Registry, queue_ids_of
from msgbroker.client.values.message import Message
from msgbroker.client.values.verdicts import Verdict, VerdictKind
from msgbroker.contract.errors import MessageCenterError
from msgbroker.engine import verdicts as engine_verdicts
from msgbroker.engine.lane.begun import Begun
from msgbroker.engine.lane.config import LaneConfig
from msgbroker.engine.lane.lane import Lane
from msgbroker.engine.matching import Matcher
from msgbroker.engine.retry import RetryPolicy
from msgbroker.engine.stress import StressGate
from msgdb.lanes.records import ClaimedLane, DeadLetterMove, LaneKey

_INSTANCE: Final = "in-memory"
_NO_LIMIT: Final = 1 << 60
_RELEASES_AT_ONCE_MAX: Final = 100
_RELEASED_AGAIN_SECONDS: Final = 60.0
"""How much later a message comes again that is released at once again and again: or the center's time would never move
on."""

_VERDICTS: Final = {
    VerdictKind.ACK: engine_verdicts.Verdict.ACK,
    VerdictKind.RETRY: engine_verdicts.Verdict.RETRY,
    VerdictKind.RELEASE: engine_verdicts.Verdict.RELEASE,
    VerdictKind.REJECT: engine_verdicts.Verdict.REJECT,
}


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message whose attempts are over for a group."""

    group: str
    message: Message
    attempts: int
    reason: str
    """Why there is no other attempt: REJECTED, UNREADABLE_BODY or ATTEMPTS_EXHAUSTED."""
    last_error: str


class MemoryLane:
    """A lane of the engine, and how often each of its messages was released at once."""

    def __init__(self, lane: Lane[StoredMessage], clock: Callable[[], float], note_change: Callable[[], None]) -> None:
        self.lane = lane
        self.queue_id = lane.key.queue_id
        self.clock = clock
        self.is_over = False
        """Whether its group is no more: verdicts go nowhere then."""
        self._note_change = note_change
        self._releases: Counter[int] = Counter()

    def begin(self, queue_offset: int, attempt: int) -> None:
        """Note that a message is begun."""
        self.lane.begin(_INSTANCE, self._held(queue_offset, attempt))

    def extend(self, queue_offset: int, attempt: int, seconds: float) -> None:
        """Keep a message for so long from now on, by the center's clock."""
        held = self._held(queue_offset, attempt)
        self.lane.extend(_INSTANCE, held, seconds, self.clock())

    def settle(self, queue_offset: int, attempt: int, verdict: Verdict) -> None:
        """Give the engine's lane any verdict on a message."""
        if self.is_over:
            return
        delay_seconds = verdict.delay_seconds
        if verdict.kind is not VerdictKind.RELEASE:
            self._releases.pop(queue_offset, None)
        elif not delay_seconds:
            self._releases[queue_offset] += 1
            if self._releases[queue_offset] > _RELEASES_AT_ONCE_MAX:
                delay_seconds = _RELEASED_AGAIN_SECONDS
        said = engine_verdicts.Verdict.UNREADABLE if verdict.is_unreadable else _VERDICTS[verdict.kind]
        settlement = engine_verdicts.Settlement(self._held(queue_offset, attempt), said, delay_seconds, verdict.error)
        self.lane.settle(_INSTANCE, settlement, self.clock())
        self._note_change()

    def _held(self, queue_offset: int, attempt: int) -> engine_verdicts.Held:
        return engine_verdicts.Held(self.queue_id, self.lane.epoch, attempt, [(queue_offset, queue_offset + 1)])


class MemoryHandle:
    """Where verdicts on what was handed out at once go; what was not begun when its time has passed is dropped."""

    def __init__(self, lane: MemoryLane, deadline: float, in_loop: InLoop) -> None:
        self.queue_id = lane.queue_id
        self.lane = lane
        self._in_loop = in_loop
        self._deadline = deadline

    @property
    def live(self) -> bool:
        """Whether there is time left to answer, by the center's clock."""
        return not self.lane.is_over and self.lane.clock() < self._deadline

    def ack(self, queue_offset: int, attempt: int) -> None:
        """Say that a message is done."""
        self.lane.settle(queue_offset, attempt or 1, Verdict(VerdictKind.ACK))

    def settle(self, queue_offset: int, attempt: int, verdict: Verdict) -> None:
        """Give any verdict on a message."""
        self.lane.settle(queue_offset, attempt, verdict)

    def begin(self, queue_offset: int, attempt: int) -> None:
        """Note that a message is begun."""
        self.lane.begin(queue_offset, attempt)

    def extend(self, queue_offset: int, attempt: int, seconds: float) -> bool:
        """Keep a message for longer, from whatever thread. Of one that was taken away nobody asks here."""
        self._in_loop(functools.partial(self.lane.extend, queue_offset, attempt, seconds))
        return True


class MemoryStream:
    """What gets one group of an in-memory center its messages: its lanes and its handlers."""

    def __init__(
        self,
        group: GroupRoute,
        handlers: GroupHandlers,
        registry: Registry,
        log: MemoryLog,
        *,
        clock: Callable[[], float],
        note_change: Callable[[], None],
    ) -> None:
        self.attached = asyncio.Event()
        self.attached.set()
        self.was_attached = True
        self.ended_by: MessageCenterError | None = None
        self.dead_letters: list[DeadLetter] = []
        self.handlers = handlers
        self._group_name = group.name
        self._registry = registry
        self._log = log
        self._clock = clock
        self._note_change = note_change
        self._in_loop = InLoop()
        self._lanes: dict[int, MemoryLane] = {}
        self._closing = asyncio.Event()
        self.task = asyncio.create_task(self._wait_for_close(), name=f"in-memory {group.name}")
        handlers.end_with(self.task)

    async def close(self, until: float) -> None:
        """Finish what is running, if it is done by then; give back the rest."""
        self._closing.set()
        self.handlers.release_waiting()
        await self.handlers.join(max(0.0, until - asyncio.get_running_loop().time()))
        await self.handlers.close()
        await cancel_and_wait(self.task)

    def end(self, reason: MessageCenterError) -> None:
        """End as a stream does that its broker refuses for good; may be called in another thread than the loop's."""
        self.ended_by = reason
        for lane in list(self._lanes.values()):
            lane.is_over = True
        self.task.get_loop().call_soon_threadsafe(self._closing.set)

    async def _wait_for_close(self) -> None:
        await self._closing.wait()
        if self.ended_by is not None:
            self.attached.clear()
            self.handlers.drop_waiting()
            raise self.ended_by

    def has_read(self, topic: TopicRoute) -> bool:
        """Whether the group has a place in one of the topic's queues."""
        return self.ended_by is None and any(queue_id in self._lanes for queue_id in queue_ids_of(topic))

    def next_wakeup(self) -> float | None:
        """Return when `expire` is to be called next; None: never."""
        if self.ended_by is not None:
            return None
        wakeups = (lane.lane.next_wakeup() for lane in self._lanes.values())
        return min((at for at in wakeups if at is not None), default=None)

    def expire(self) -> None:
        """Take back what was not answered in time; only what was begun has failed.

        What handlers are at is extended first: by as long as it ever can be, in one go.
        """
        group = self._registry.find_group(self._group_name)
        if group is None or self.ended_by is not None:
            return
        self.handlers.say_begun(math.inf, _NO_LIMIT)
        if group.handle_seconds_max:
            self.handlers.extend_all(group.handle_seconds_max)
        for lane in self._lanes.values():
            late = {(each.queue_offset, each.attempt) for each in lane.lane.late_and_begun(self._clock())}
            if late:
                self.handlers.take_back(functools.partial(_is_of, lane, late), "its time is over")
            lane.lane.expire(self._clock())

    def pump(self) -> None:
        """Move messages from the log through the lanes to the handlers."""
        group = self._registry.find_group(self._group_name)
        if group is None or self.ended_by is not None:
            return
        for topic in self._registry.snapshot.topics.values():
            if any(subscription.topic_id == topic.topic_id for subscription in group.subscriptions):
                matcher = Matcher(group, topic)
                for queue_id in queue_ids_of(topic):
                    lane = self._lanes.get(queue_id) or self._open_lane(group, queue_id)
                    self._pump_lane(lane, group, topic, matcher)

    def _pump_lane(self, lane: MemoryLane, group: GroupRoute, topic: TopicRoute, matcher: Matcher) -> None:
        now = self._clock()
        machine = lane.lane
        queue = self._log.queue(lane.queue_id)
        first = machine.next_offset
        end = min(len(queue), first + machine.wants())
        if end > first:
            machine.feed(first, end, matcher.select(queue[first:end], lane.queue_id))
        machine.feed_again([queue[offset] for offset, _ in machine.due(now, _NO_LIMIT)], [])
        gate = StressGate(self._registry.snapshot)
        room = group.unsettled_max - sum(other.lane.in_flight_count for other in self._lanes.values())
        if room > 0 and not self._closing.is_set():
            handout = machine.take(
                _INSTANCE,
                room,
                _NO_LIMIT,
                now,
                lambda message: gate.allows(group.group_id, topic.topic_id, message.event_code),
                begun=Begun.NO,
            )
            deliveries = [again.message.delivery(again.attempt) for again in handout.again]
            deliveries += [message.delivery(1) for message in handout.fresh]
            self.handlers.take_in(deliveries, MemoryHandle(lane, handout.deadline, self._in_loop), math.inf)
        self._persist(lane)

    def _persist(self, lane: MemoryLane) -> None:
        checkpoint = lane.lane.checkpoint(self._clock())
        if checkpoint is not None:
            lane.lane.confirm(checkpoint)
            self.dead_letters.extend(self._dead_letter(lane, move) for move in checkpoint.dead_letters)

    def _dead_letter(self, lane: MemoryLane, move: DeadLetterMove) -> DeadLetter:
        stored = self._log.queue(lane.queue_id)[move.queue_offset]
        message = Message(stored.delivery(move.attempts), lane.queue_id)
        return DeadLetter(self._group_name, message, move.attempts, move.reason, move.last_error or "")

    def _open_lane(self, group: GroupRoute, queue_id: int) -> MemoryLane:
        config = LaneConfig(
            group.ack_timeout_seconds,
            RetryPolicy(group.retry_schedule_seconds, group.attempts_max),
            handle_seconds_max=group.handle_seconds_max,
        )
        claimed = ClaimedLane(LaneKey(group.group_id, "", queue_id), 1, 0, [])
        machine: Lane[StoredMessage] = Lane(claimed, [], config, self._clock())
        lane = self._lanes[queue_id] = MemoryLane(machine, self._clock, self._note_change)
        return lane


def _is_of(lane: MemoryLane, late: set[tuple[int, int]], message: HandedMessage) -> bool:
    return message.queue_id == lane.queue_id and (message.queue_offset, message.attempt) in late
