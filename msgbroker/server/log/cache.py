"""The log as this broker's lanes read it: the newest messages from memory, older ones from msgdb, shared by all groups.

`LogTail` holds what this broker committed last, in a bounded number of bytes. A lane that is behind it, or whose
messages came through another broker, reads blocks from msgdb; a block that several groups want is read once. Memory is
bounded whatever the backlog.

What is known of a queue's end comes from msgdb or from this broker's own commits. However it is found that a queue went
on (by a commit, a read, a claim, a poll), all who read it are told (`on_went_on`): later it would be news to nobody.
What anybody says of an end is a hint: it is worth a read, and believed when that finds something.

What is known is never too high, with one exception: the log lost its end. Where a standby was promoted
without the last commits, the store has another history then, and all of this is forgotten (`forget`). Whatever else
shows it (msgdb says less than was known, a commit begins below the one before, a read finds nothing where there was
something: the store was restored under our feet) takes the end back, forgets the queue's messages, and tells
whoever asked for it (`on_lost_end`).
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import structlog

from msgbroker.server.log.fair_turns import FairTurns
from msgbroker.server.log.message import LogMessage
from msgbroker.server.log.stored_rows import messages_of_rows
from msgbroker.server.log.tail import LogTail
from msgdb.log.reads import MessageRow, first_offsets, next_offsets, read_offsets, read_range
from msgdb.postgres.connections import Connection
from msgdb.postgres.failures import whole_tables
from msgdb.store import MessageStore

log = structlog.get_logger(__name__)

BLOCK_OFFSETS: Final = 512
"""How many offsets a block has at most: it ends at the next multiple of this, so that groups at different places share
blocks."""


@dataclass(frozen=True, slots=True)
class LogCacheConfig:
    """How much of the log is kept in memory, and how much is read at a time."""

    tail_bytes_max: int = 24 * 1024 * 1024
    """How much is kept of this broker's own commits."""
    blocks_bytes_max: int = 24 * 1024 * 1024
    """How much is kept of what was read from msgdb."""
    block_bytes_max: int = 2 * 1024 * 1024
    """How large the bodies of one read are, unless the first one is larger."""
    reads_max: int = 2
    """How many reads of msgdb go on at a time: catching up takes turns, and leaves PostgreSQL to the publishers."""


@dataclass(frozen=True, slots=True)
class Block:
    """Consecutive messages read from msgdb: offsets from `first` to below `end`."""

    first: int
    """The first offset of the block: later than asked for, where days were dropped."""
    end: int
    messages: Sequence[LogMessage]
    size_bytes: int


class ReadAgain(NamedTuple):
    """Messages that were read again one by one, by their offsets."""

    messages: list[LogMessage]
    over_bytes: Sequence[int]
    """Offsets of those that are there, and were too many bytes to be read with these."""


@dataclass(slots=True)
class _End:
    """What is known of a queue's end, and what is said of it."""

    known: int = 0
    """The end that is certain: every offset below it is committed."""
    hinted: int = 0
    """The end that somebody has told of, and that nobody has looked for yet."""


class MissingMessagesError(Exception):
    """Messages are neither in the log nor were they dropped with their day: somebody has taken them away."""

    def __init__(self, queue_id: int, first: int, end: int) -> None:
        super().__init__(f"messages {first} to {end - 1} of queue {queue_id} are not there, and were not dropped")


class LogCache:
    """What is known of the queues' ends, the messages that are in memory, and the reads of those that are not."""

    def __init__(self, store: MessageStore, config: LogCacheConfig | None = None) -> None:
        self._store = store
        self._config = config or LogCacheConfig()
        self._ends: dict[int, _End] = {}
        self._tail = LogTail(self._config.tail_bytes_max)
        self._blocks: OrderedDict[tuple[int, int], Block] = OrderedDict()
        self._blocks_bytes = 0
        self._reading: dict[tuple[int, int], asyncio.Task[Block]] = {}
        self._turns = FairTurns(self._config.reads_max)
        self._times_forgotten = 0
        self._went_on_listeners: list[Callable[[int], None]] = []
        self._lost_end_listeners: list[Callable[[int], None]] = []

    def on_went_on(self, listener: Callable[[int], None]) -> None:
        """Call *listener* with each queue that is found to have gone on: there is more to be read."""
        self._went_on_listeners.append(listener)

    def on_lost_end(self, listener: Callable[[int], None]) -> None:
        """Call *listener* with each queue whose log lost its end: whoever has read it begins anew."""
        self._lost_end_listeners.append(listener)

    def forget(self) -> None:
        """Know nothing any more: what is under way was asked of another history of the store, and is not kept."""
        self._times_forgotten += 1
        self._ends.clear()
        self._tail.forget()
        self._blocks.clear()
        self._blocks_bytes = 0
        self._reading.clear()

    # --- where queues end -------------------------------------------------------------------------------------------

    def end_of(self, queue_id: int) -> int:
        """Return the offset below which everything is known to be committed."""
        known = self._ends.get(queue_id)
        return known.known if known is not None else 0

    def may_reach(self, queue_id: int) -> int:
        """Return the offset below which a read may find something: where the queue ends, or is said to."""
        known = self._ends.get(queue_id)
        return max(known.known, known.hinted) if known is not None else 0

    def learn_end(self, queue_id: int, end: int) -> None:
        """Take note that the queue reaches up to *end*, for certain; if that is news, all who read it hear of it."""
        known = self._end(queue_id)
        if end <= known.known:
            return
        known.known = end
        for listener in self._went_on_listeners:
            listener(queue_id)

    def hint_end(self, queue_id: int, end: int) -> bool:
        """Take note that somebody says the queue reaches up to *end*; return whether that is worth a read."""
        known = self._end(queue_id)
        if end <= max(known.known, known.hinted):
            return False
        known.hinted = end
        return True

    async def refresh_ends(self, queue_ids: Sequence[int]) -> None:
        """Ask msgdb where these queues end, which is the truth even if it is less."""
        known = {queue_id: self.end_of(queue_id) for queue_id in queue_ids}
        times_forgotten = self._times_forgotten
        with whole_tables():
            async with self._store.connection() as connection:
                ends = await next_offsets(connection, queue_ids)
        if times_forgotten != self._times_forgotten:
            return
        for queue_id, end in ends.items():
            self._take_end(queue_id, end, known[queue_id])

    def _take_end(self, queue_id: int, end: int, known: int) -> None:
        """Take note of an end that was asked for when *known* was known."""
        if end < known <= self.end_of(queue_id):
            # All below `known` was committed before the question, and is not there any more.
            self._lose_end(queue_id, end)
        self.learn_end(queue_id, end)

    def _lose_end(self, queue_id: int, end: int) -> None:
        known = self._end(queue_id)
        log.error("log_cache.end_lost", queue_id=queue_id, known_end=known.known, end=end)
        self._tail.forget_queue(queue_id)
        known.known = end
        for name in [name for name, block in self._blocks.items() if name[0] == queue_id and block.end > end]:
            self._blocks_bytes -= self._blocks.pop(name).size_bytes
        for listener in self._lost_end_listeners:
            listener(queue_id)

    # --- the tail ---------------------------------------------------------------------------------------------------

    def add(self, by_queue: Mapping[int, list[LogMessage]]) -> None:
        """Add what was just committed here: for each queue, messages in the order of their offsets."""
        for queue_id, messages in by_queue.items():
            first = messages[0].queue_offset
            if first < self._tail.end_of(queue_id):
                # Below what this broker committed before: that is not in the log any more.
                self._lose_end(queue_id, first)
            self._tail.add(queue_id, messages)
            self.learn_end(queue_id, first + len(messages))

    def find(self, queue_id: int, offset: int, limit: int) -> Sequence[LogMessage] | None:
        """Return messages from *offset* on that are in memory (*limit* at most), or None: they must be read."""
        messages = self._tail.find(queue_id, offset, limit)
        if messages is not None:
            return messages
        block = self._blocks.get((queue_id, offset // BLOCK_OFFSETS))
        if block is not None and block.first <= offset < block.end:
            self._blocks.move_to_end((queue_id, offset // BLOCK_OFFSETS))
            return block.messages[offset - block.first : offset - block.first + limit]
        return None

    # --- reads ------------------------------------------------------------------------------------------------------

    async def read(self, queue_id: int, offset: int, reader: Hashable) -> Block:
        """Read a block from *offset* on; whoever asks for the same meanwhile gets the same read.

        *reader* names for whom it is: they take turns. Raises StoreUnavailableError.
        """
        name = (queue_id, offset)
        reading = self._reading.get(name)
        if reading is None:
            reading = self._reading[name] = asyncio.ensure_future(self._read(queue_id, offset, reader))
            reading.add_done_callback(lambda done: self._read_ended(name, done))
        return await asyncio.shield(reading)

    def _read_ended(self, name: tuple[int, int], reading: asyncio.Task[Block]) -> None:
        if self._reading.get(name) is reading:
            del self._reading[name]

    async def read_again(
        self, queue_id: int, wanted: Sequence[tuple[int, int]], bytes_max: int, reader: Hashable
    ) -> ReadAgain:
        """Return single messages by (offset, stored_at), *bytes_max* in all or one; what is gone is left out."""
        async with self._turns.turn(reader), self._store.connection() as connection:
            rows, over_bytes = await read_offsets(connection, queue_id, wanted, bytes_max)
        return ReadAgain(messages_of_rows(rows), over_bytes)

    async def _read(self, queue_id: int, offset: int, reader: Hashable) -> Block:
        limit = BLOCK_OFFSETS - offset % BLOCK_OFFSETS
        times_forgotten = self._times_forgotten
        async with self._turns.turn(reader), self._store.connection() as connection:
            # Committed by now, so this read would see it; what is committed from here on it may not see.
            known, said = self.end_of(queue_id), self.may_reach(queue_id)
            rows = await read_range(connection, queue_id, offset, limit, self._config.block_bytes_max)
            if not rows:
                if offset >= known and said == self.may_reach(queue_id):
                    # A hint that nothing came of, and no newer one.
                    self._end(queue_id).hinted = 0
                return await self._nothing_from(connection, queue_id, offset, known)
            if rows[0].queue_offset > offset:
                await self._check_dropped(connection, queue_id, offset, rows[0].queue_offset)
            messages = messages_of_rows(_without_gap(rows))
        block = Block(
            messages[0].queue_offset,
            messages[-1].queue_offset + 1,
            messages,
            sum(message.held_bytes for message in messages),
        )
        if times_forgotten != self._times_forgotten:
            # Whoever asked is not there any more either.
            return Block(offset, offset, (), 0)
        self._keep((queue_id, block.first // BLOCK_OFFSETS), block)
        self.learn_end(queue_id, block.end)
        return block

    async def _check_dropped(self, connection: Connection, queue_id: int, offset: int, first: int) -> None:
        """Raise MissingMessagesError unless msgdb says that the days before *first* were dropped."""
        start = (await first_offsets(connection, [queue_id])).get(queue_id, 0)
        if start < first:
            raise MissingMessagesError(queue_id, max(start, offset), first)

    async def _nothing_from(self, connection: Connection, queue_id: int, offset: int, known: int) -> Block:
        """Say why nothing was read from *offset* on, though the queue was known, or said, to reach further.

        Only the start that msgdb keeps of the queue says that days were dropped, and up to where. Otherwise what was
        there is lost, and other messages will be stored at the same offsets: nothing is passed.
        """
        start = (await first_offsets(connection, [queue_id])).get(queue_id, 0)
        if start > offset:
            return Block(start, start, (), 0)
        times_forgotten = self._times_forgotten
        end = (await next_offsets(connection, [queue_id])).get(queue_id, 0)
        if times_forgotten == self._times_forgotten:
            self._take_end(queue_id, end, known)
        return Block(offset, offset, (), 0)

    def _keep(self, name: tuple[int, int], block: Block) -> None:
        replaced = self._blocks.pop(name, None)
        if replaced is not None:
            self._blocks_bytes -= replaced.size_bytes
        self._blocks[name] = block
        self._blocks_bytes += block.size_bytes
        while self._blocks_bytes > self._config.blocks_bytes_max and len(self._blocks) > 1:
            _, oldest = self._blocks.popitem(last=False)
            self._blocks_bytes -= oldest.size_bytes

    # --- bookkeeping ------------------------------------------------------------------------------------------------

    def _end(self, queue_id: int) -> _End:
        known = self._ends.get(queue_id)
        if known is None:
            known = self._ends[queue_id] = _End()
        return known


def _without_gap(rows: list[MessageRow]) -> list[MessageRow]:
    """Return *rows* up to the first offset that is missing: whoever wants that one finds out why."""
    first = rows[0].queue_offset
    if rows[-1].queue_offset - first == len(rows) - 1:
        return rows
    return [row for place, row in enumerate(rows) if row.queue_offset == first + place]
