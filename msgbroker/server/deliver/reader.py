"""What lanes read: new messages from the log cache, bodies that are needed again, and how much of that is held ready.

A message that is ready is held in memory until an instance takes it, whatever the log cache forgets meanwhile. So what
is ready has a bound in bytes for each lane, and one for all lanes of the broker together; beyond the second a lane gets
no more than is taken from it in the same moment. They are bytes of memory: a message with many small headers costs ten
times what it has.

What is read from msgdb waits in the log cache for its lane's turn. So a group reads for a few lanes at a time, and for
the next one when one of these had its turn: blocks that nobody has room for would push each other out, and be read
again for every message that a slow instance handles.
"""

from __future__ import annotations

import itertools
from collections import Counter, OrderedDict
from collections.abc import Collection, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

import structlog

from msgbroker.contract import limits
from msgbroker.contract.errors import StoreUnavailableError
from msgbroker.server.alarms.set_aside import SetAside
from msgbroker.server.deliver.expressions.evaluations import Evaluations
from msgbroker.server.deliver.expressions.turns import TimeSlice
from msgbroker.server.deliver.lanes.lane_group import LaneGroup
from msgbroker.server.deliver.lanes.owned_lane import OwnedLane
from msgbroker.server.deliver.lanes.work import LaneWork, Work
from msgbroker.server.deliver.watched_tasks import TaskStarter
from msgbroker.server.log.cache import BLOCK_OFFSETS, LogCache
from msgbroker.server.log.message import LogMessage

log = structlog.get_logger(__name__)

ReadT = TypeVar("ReadT")

BATCH_BYTES_MAX: Final = 224 * 1024
"""A lane gives so much to one instance before the next one's turn; a single larger message is a batch of its own."""
LANE_READY_BYTES_MAX: Final = 1024 * 1024
"""A lane holds so much ready for its instances."""
FETCH_AGAIN_MAX: Final = 200
"""So many messages that come again are fetched in one read."""
SHELVED_AT_ONCE_MAX: Final = 32
"""So many messages are asked at once whether paused subscriptions want them: each may take an expression."""
_PAUSED_COST_MAX: Final = limits.EXPRESSION_COST_MAX
READS_AHEAD_MAX: Final = 8
"""How many blocks of a group are being read, or wait for their lanes' turns."""


@dataclass(slots=True)
class ReadyBytes:
    """What all lanes of this broker hold ready, in bytes of memory."""

    bytes_max: int = 64 * 1024 * 1024
    bytes_held: int = 0


@dataclass(slots=True, eq=False, kw_only=True)
class LaneReader:
    """Feeds the lanes of one group, from memory where it can, and reads for a few of them at a time where it cannot."""

    group: LaneGroup
    """Told what came of each read."""
    cache: LogCache
    ready: ReadyBytes
    """What the lanes of all groups here hold ready."""
    tasks: TaskStarter
    """Runs the reads."""
    aside: SetAside[LaneWork]
    """Work on lanes that failed for unknown reasons."""
    evaluations: Evaluations
    """What is known of the expressions of all groups here."""
    reads_under_way: Counter[int] = field(default_factory=Counter)
    """How many blocks are being read, by topic: for lanes that are not held up by expressions of their own."""
    _ahead: set[OwnedLane] = field(default_factory=set)
    """Lanes whose blocks are being read, or were read and wait for their turns."""
    _unread: OrderedDict[OwnedLane, None] = field(default_factory=OrderedDict)
    """Lanes whose blocks are to be read when there is a place among those."""

    def count(self, owned: OwnedLane) -> None:
        """Count what the lane holds ready: after everything that changes it."""
        ready_bytes = owned.lane.ready_bytes + owned.fetching_bytes
        self.ready.bytes_held += ready_bytes - owned.ready_bytes
        owned.ready_bytes = ready_bytes

    def _room_bytes(self, owned: OwnedLane, needed_bytes: int) -> int:
        """Return how many bytes more the lane may have ready: always what is needed of it now."""
        room_bytes = min(LANE_READY_BYTES_MAX - owned.ready_bytes, self.ready.bytes_max - self.ready.bytes_held)
        return room_bytes if owned.lane.ready_count else max(room_bytes, needed_bytes)

    def feed(self, owned: OwnedLane, count_max: int, bytes_max: int, time_slice: TimeSlice) -> int:
        """Feed the lane from memory, or have its block read; return how many messages were decided.

        So many messages and bytes are taken from it next: it gets more only where there is room for what is left. Those
        that take expressions are decided as far as *time_slice* goes.
        """
        self._unread.pop(owned, None)
        if not owned.is_reading:
            self._ahead.discard(owned)
        decided = self._feed(owned, count_max, bytes_max, time_slice)
        self._read_for_next()
        return decided

    def _feed(self, owned: OwnedLane, count_max: int, bytes_max: int, time_slice: TimeSlice) -> int:
        lane = owned.lane
        queue_id, offset = lane.key.queue_id, lane.next_offset
        if owned.is_reading or offset >= self.cache.may_reach(queue_id) or self._is_waiting(owned, Work.READING):
            return 0
        wanted = min(lane.wants(), BLOCK_OFFSETS)
        if owned.matcher.paused_ids:
            # Dear expressions are evaluated elsewhere, and nobody there knows of shelves: the lane waits.
            wanted = min(wanted, SHELVED_AT_ONCE_MAX) if owned.matcher.paused_cost <= _PAUSED_COST_MAX else 0
        if owned.matcher.expressions:
            wanted = min(wanted, self.evaluations.reach(owned, time_slice))
        room_bytes = self._room_bytes(owned, bytes_max)
        if wanted <= 0 or room_bytes <= 0:
            return 0
        messages = self.cache.find(queue_id, offset, wanted)
        if messages is None:
            self._have_read(owned, offset)
            return 0
        if self.aside.units:
            # What could not be read is in memory now.
            self.aside.worked(LaneWork(lane.key, Work.READING))
        messages = _within(messages, room_bytes)
        is_full = self.ready.bytes_held >= self.ready.bytes_max
        if not owned.matcher.expressions:
            matched, decided = owned.matcher.select(messages, queue_id), len(messages)
            if is_full and len(matched) > count_max:
                matched = matched[:count_max]
                decided = matched[-1].queue_offset + 1 - offset
        else:
            # What is left over would be evaluated again.
            asked = messages[:count_max] if is_full else messages
            matched, decided = self.evaluations.decide(owned, asked, time_slice, self.group)
        if decided:
            shelved = self._shelved(owned, messages[:decided], matched) if owned.matcher.paused_ids else ()
            lane.feed(offset, offset + decided, matched, shelved=shelved)
            self.group.touched(owned)
        return decided

    def _shelved(
        self, owned: OwnedLane, messages: Sequence[LogMessage], matched: Sequence[LogMessage]
    ) -> list[tuple[LogMessage, str]]:
        """Return those of *messages* that only paused subscriptions want, with the names of these."""
        taken = {message.queue_offset for message in matched}
        found = (
            (message, owned.matcher.paused_wanting(message, owned.lane.key.queue_id))
            for message in messages
            if message.queue_offset not in taken
        )
        return [(message, by) for message, by in found if by]

    def _not_shelved(self, owned: OwnedLane, messages: Sequence[LogMessage]) -> Sequence[LogMessage]:
        """Return what of *messages* is to come again now, and shelve what only paused subscriptions want."""
        if not owned.matcher.paused_ids:
            return messages
        queue_id = owned.lane.key.queue_id
        shelved = {message.queue_offset: owned.matcher.shelved_by(message, queue_id) for message in messages}
        owned.lane.shelve({offset: by for offset, by in shelved.items() if by})
        self.group.touched(owned)
        return [message for message in messages if not shelved[message.queue_offset]]

    def reads_for(self, topic_ids: Collection[int]) -> bool:
        """Return whether blocks of these topics are being read, or are to be."""
        return not self.reads_under_way.keys().isdisjoint(topic_ids) or any(
            owned.topic.topic_id in topic_ids and not owned.is_dear for owned in self._unread
        )

    def forget(self, owned: OwnedLane) -> None:
        """Read nothing more for a lane that is not served any more."""
        self._unread.pop(owned, None)
        self._ahead.discard(owned)
        if self._unread:
            # Not read for at once: it may be the next to go. Its turn begins the read.
            self.group.activate(next(iter(self._unread)))

    def _have_read(self, owned: OwnedLane, offset: int) -> None:
        """Start to read the block that the lane needs, or let it wait for a place."""
        if len(self._ahead) >= READS_AHEAD_MAX:
            self._unread[owned] = None
            return
        self._ahead.add(owned)
        owned.is_reading = True
        is_waited_for = not owned.is_dear
        if is_waited_for:
            self.reads_under_way[owned.topic.topic_id] += 1
        self.tasks.start(self._read(owned, offset, is_waited_for=is_waited_for))

    def _read_for_next(self) -> None:
        """Start to read for lanes that wait for a place, as far as there are places now."""
        while self._unread and len(self._ahead) < READS_AHEAD_MAX:
            owned, _ = self._unread.popitem(last=False)
            lane = owned.lane
            if lane.wants() and self.cache.find(lane.key.queue_id, lane.next_offset, 1) is None:
                self._have_read(owned, lane.next_offset)
            else:
                self.group.activate(owned)

    async def _read(self, owned: OwnedLane, offset: int, *, is_waited_for: bool) -> None:
        """Read the block that the lane needs into the cache, and feed it."""
        lane, topic_id = owned.lane, owned.topic.topic_id
        try:
            block = await self._try(owned, Work.READING, self.cache.read(lane.key.queue_id, offset, owned.reader))
        finally:
            owned.is_reading = False
            if is_waited_for:
                self.reads_under_way -= Counter((topic_id,))
        if block is None:
            self.forget(owned)
            return
        if block.first > lane.next_offset:
            # Days were dropped between the cursor and the block.
            lane.feed(block.first, block.first, (), days_dropped=True)
        self.group.touched(owned)
        self.group.activate_first(owned)

    async def _try(self, owned: OwnedLane, work: Work, read: Coroutine[None, None, ReadT]) -> ReadT | None:
        """Return what is read, or None where it failed: a later tick tries again."""
        unit = LaneWork(owned.lane.key, work)
        try:
            with self.aside.contained(unit):
                found = await read
                self.aside.worked(unit)
                return found
        except StoreUnavailableError:
            log.warning("delivery.read_failed", lane=owned.lane.key)
        owned.is_read_failed = True
        return None

    def fetch_due(self, owned: OwnedLane, now: float) -> None:
        """Start fetching what comes again and whose bodies are needed.

        How large they are is not known before: they were stored under any limit that the topic ever had. What turns out
        to be too much, of what is in memory or of what is read, is due again.
        """
        # One at least, or it would never come again.
        room_bytes = self._room_bytes(owned, 1)
        if owned.is_fetching or room_bytes <= 0 or self._is_waiting(owned, Work.FETCHING):
            return
        count_max = SHELVED_AT_ONCE_MAX if owned.matcher.paused_ids else FETCH_AGAIN_MAX
        wanted = owned.lane.due(now, min(count_max, max(1, room_bytes // owned.topic.body_bytes_max)))
        if not wanted:
            self._fetched(owned)
            return
        found: list[LogMessage] = []
        missing: list[tuple[int, int]] = []
        for offset, stored_at_us in wanted:
            messages = self.cache.find(owned.lane.key.queue_id, offset, 1)
            if messages:
                found.extend(messages)
            else:
                missing.append((offset, stored_at_us))
        if found:
            fitting = _within(found, room_bytes)
            owned.lane.feed_again(self._not_shelved(owned, fitting), ())
            owned.lane.fetch_failed([message.queue_offset for message in found[len(fitting) :]])
        if missing:
            owned.fetching_bytes = len(missing) * owned.topic.body_bytes_max
        self.count(owned)
        if missing:
            self.tasks.start(self._fetch_again(owned, missing))
        else:
            self._fetched(owned)

    def _fetched(self, owned: OwnedLane) -> None:
        """Note that there is nothing to fetch: what could not be fetched was found in memory."""
        if self.aside.units:
            self.aside.worked(LaneWork(owned.lane.key, Work.FETCHING))

    async def _fetch_again(self, owned: OwnedLane, wanted: list[tuple[int, int]]) -> None:
        lane = owned.lane
        try:
            read = self.cache.read_again(lane.key.queue_id, wanted, owned.fetching_bytes, owned.reader)
            again = await self._try(owned, Work.FETCHING, read)
        finally:
            owned.fetching_bytes = 0
            self.count(owned)
        if again is None:
            lane.fetch_failed([offset for offset, _ in wanted])
            return
        there = {message.queue_offset for message in again.messages}.union(again.over_bytes)
        missing = [offset for offset, _ in wanted if offset not in there]
        lane.feed_again(self._not_shelved(owned, again.messages), missing)
        lane.fetch_failed(again.over_bytes)
        self.count(owned)
        self.group.touched(owned)
        self.group.activate(owned)

    def _is_waiting(self, owned: OwnedLane, work: Work) -> bool:
        """Return whether it failed lately, and is not to be tried yet."""
        return bool(self.aside.units) and self.aside.is_waiting(LaneWork(owned.lane.key, work))


def _within(messages: Sequence[LogMessage], bytes_max: int) -> Sequence[LogMessage]:
    """Return as many of *messages* as cost *bytes_max*: at least one."""
    sizes = [message.held_bytes for message in messages]
    if sum(sizes) <= bytes_max:
        return messages
    count = sum(1 for total_bytes in itertools.accumulate(sizes) if total_bytes <= bytes_max)
    return messages[: max(count, 1)]
