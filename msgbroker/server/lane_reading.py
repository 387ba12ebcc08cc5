"""What lanes read: new messages from the log cache, bodies that are needed again, and how much of that is held ready.

A message that is ready is held in memory until an instance takes it, whatever the log cache forgets meanwhile. So what
is ready has a bound in bytes for each lane, and one for all lanes of the broker together; beyond the second a lane gets
no more than is taken from it in the same moment.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Final

import structlog

from msgbroker.contract.errors import StoreUnavailableError
from msgbroker.server.lane_slot import LaneSlot
from msgbroker.server.log_cache import BLOCK_OFFSETS, LogCache
from msgbroker.server.log_message import LogMessage

log = structlog.get_logger(__name__)

BATCH_BYTES_MAX: Final = 224 * 1024
"""A lane gives so much to one instance before the next one's turn; a single larger message is a batch of its own."""
LANE_READY_BYTES_MAX: Final = 1024 * 1024
FETCH_AGAIN_MAX: Final = 200


@dataclass(slots=True)
class ReadyBytes:
    """What all lanes of this broker hold ready, in bytes."""

    bytes_max: int = 64 * 1024 * 1024
    bytes_held: int = 0


@dataclass(slots=True, eq=False)
class LaneReader:
    """See the module."""

    cache: LogCache
    ready: ReadyBytes
    start_task: Callable[[Coroutine[None, None, None]], None]
    touched: Callable[[LaneSlot], None]
    """This lane may have something to persist."""
    activate: Callable[[LaneSlot], None]
    """This lane may have something to hand out."""
    reads_under_way: int = 0
    """Of blocks that are not in memory."""

    def count(self, slot: LaneSlot) -> None:
        """Count what the lane holds ready: after everything that changes it."""
        ready_bytes = slot.lane.ready_bytes + slot.fetching_bytes
        self.ready.bytes_held += ready_bytes - slot.ready_bytes
        slot.ready_bytes = ready_bytes

    def _room_bytes(self, slot: LaneSlot, needed_bytes: int) -> int:
        """Return how many bytes more the lane may have ready: always what is needed of it now."""
        room_bytes = min(LANE_READY_BYTES_MAX - slot.ready_bytes, self.ready.bytes_max - self.ready.bytes_held)
        return room_bytes if slot.lane.ready_count else max(room_bytes, needed_bytes)

    def feed(self, slot: LaneSlot, count_max: int, bytes_max: int) -> int:
        """Feed the lane from memory, or start a read; return how many messages were looked at.

        So many messages and bytes are taken from it next: it gets more only where there is room for what is left.
        """
        lane = slot.lane
        queue_id, offset = lane.key.queue_id, lane.next_offset
        if slot.is_reading or offset >= self.cache.end_of(queue_id):
            return 0
        wanted = min(lane.wants(), BLOCK_OFFSETS)
        room_bytes = self._room_bytes(slot, bytes_max)
        if wanted <= 0 or room_bytes <= 0:
            return 0
        messages = self.cache.find(queue_id, offset, wanted)
        if messages is None:
            slot.is_reading = True
            self.reads_under_way += 1
            self.start_task(self._read(slot, offset))
            return 0
        messages = _within(messages, room_bytes)
        end = offset + len(messages)
        matched = slot.matcher.select(messages, queue_id)
        if len(matched) > count_max and self.ready.bytes_held >= self.ready.bytes_max:
            matched = matched[:count_max]
            end = matched[-1].queue_offset + 1
        lane.feed(offset, end, matched)
        self.touched(slot)
        return end - offset

    async def _read(self, slot: LaneSlot, offset: int) -> None:
        """Read the block that the lane needs into the cache, and feed it."""
        lane = slot.lane
        queue_id = lane.key.queue_id
        try:
            block = await self.cache.read(queue_id, offset)
        except StoreUnavailableError:
            log.warning("delivery.read_failed", queue_id=queue_id)
            slot.is_read_failed = True
            return
        finally:
            slot.is_reading = False
            self.reads_under_way -= 1
        if block.first > lane.next_offset:
            # Days were dropped between the cursor and the block.
            lane.feed(block.first, block.first, (), days_dropped=True)
        self.touched(slot)
        self.activate(slot)

    def fetch_due(self, slot: LaneSlot, now: float) -> None:
        """Start fetching what comes again and whose bodies are needed."""
        # One at least, or it would never come again.
        room_bytes = self._room_bytes(slot, 1)
        if slot.is_fetching or room_bytes <= 0:
            return
        wanted = slot.lane.due(now, min(FETCH_AGAIN_MAX, max(1, room_bytes // slot.topic.body_bytes_max)))
        if not wanted:
            return
        found: list[LogMessage] = []
        missing: list[tuple[int, int]] = []
        for offset, stored_at_us in wanted:
            messages = self.cache.find(slot.lane.key.queue_id, offset, 1)
            if messages:
                found.extend(messages)
            else:
                missing.append((offset, stored_at_us))
        if found:
            slot.lane.feed_again(found, ())
        if missing:
            slot.fetching_bytes = len(missing) * slot.topic.body_bytes_max
        self.count(slot)
        if missing:
            self.start_task(self._fetch_again(slot, missing))

    async def _fetch_again(self, slot: LaneSlot, wanted: list[tuple[int, int]]) -> None:
        try:
            messages = await self.cache.read_again(slot.lane.key.queue_id, wanted)
        except StoreUnavailableError:
            slot.lane.fetch_failed([offset for offset, _ in wanted])
            slot.is_read_failed = True
            return
        finally:
            slot.fetching_bytes = 0
            self.count(slot)
        found = {message.queue_offset for message in messages}
        slot.lane.feed_again(messages, [offset for offset, _ in wanted if offset not in found])
        self.count(slot)
        self.touched(slot)
        self.activate(slot)


def _within(messages: Sequence[LogMessage], bytes_max: int) -> Sequence[LogMessage]:
    """Return as many of *messages* as have *bytes_max*: at least one."""
    sizes = [message.size_bytes for message in messages]
    if sum(sizes) <= bytes_max:
        return messages
    count = sum(1 for total_bytes in itertools.accumulate(sizes) if total_bytes <= bytes_max)
    return messages[: max(count, 1)]
