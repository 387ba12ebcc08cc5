"""Writes what was noted, once a second. What the store does not take is left out, and counted: nothing waits for it.

Times are the database's: what this broker's clock says is told by how far the two are apart, which is asked at each
flush. An event is never told before it happened, and later by the time of an answer at most.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Final

import psycopg
import structlog

from msgbroker.contract.errors import StoreUnavailableError
from msgbroker.server.loops import pause
from msgbroker.server.trace.buffer import NOT_WRITTEN, LeftOut, Noted, TraceBuffer
from msgdb.log.partitions import ensure_for
from msgdb.postgres.connections import Connection
from msgdb.store import MessageStore
from msgdb.trace.records import DETAIL_CHARS_MAX, TraceEvent, TraceKind
from msgdb.trace.writing import now_us, write_events

log = structlog.get_logger(__name__)

FLUSH_SECONDS: Final = 1.0
CHUNK_EVENTS: Final = 500
"""So many events are put together at a time: a millisecond or two, and others have their turn."""
_SAME_OFFSET_US: Final = 20_000
"""Two clocks that drift by less seem to be apart as before: then what was said of a time is said again."""


class TraceWriter:
    """Writes the events of a buffer, now and then."""

    def __init__(
        self, buffer: TraceBuffer, store: MessageStore, broker: str, interval_seconds: float = FLUSH_SECONDS
    ) -> None:
        self._buffer = buffer
        self._store = store
        self._broker = broker
        self._interval_seconds = interval_seconds
        self._one_at_a_time = asyncio.Lock()
        """Who has written all knows that all is written, also what another one was at."""
        self._offset_us: int | None = None
        """What is to be added to this broker's time, in microseconds, to have the database's."""

    async def run(self, stop: asyncio.Event) -> None:
        """Write what was noted until *stop* is set."""
        while not stop.is_set():
            await pause(stop, self._interval_seconds)
            await self.write_once()

    async def write_once(self) -> bool:
        """Write all that waits; return whether the store took it."""
        async with self._one_at_a_time:
            if not len(self._buffer):
                return True
            try:
                async with self._store.connection() as connection:
                    await self._follow_clock(connection)
                    await self._write(connection)
            except StoreUnavailableError:
                log.warning("trace.store_unavailable")
                return False
            return True

    async def leave(self) -> None:
        """Write the rest, if the store takes it: this broker stops."""
        try:
            await self.write_once()
        except psycopg.Error:
            log.warning("trace.not_written", exc_info=True)

    async def _follow_clock(self, connection: Connection) -> None:
        asked_at = self._buffer.now()
        offset_us = await now_us(connection) - round(asked_at * 1e6)
        known = self._offset_us
        # Whatever is more than they are apart, was the answer's way: the least that was heard is the nearest.
        if known is None or offset_us < known or offset_us > known + _SAME_OFFSET_US:
            self._offset_us = offset_us

    async def _write(self, connection: Connection) -> None:
        noted, left_out = self._buffer.take()
        written = 0
        try:
            for chunk in _chunks(noted):
                await self._write_chunk(connection, [self._event_of(each) for each in chunk])
                written += len(chunk)
            if left_out is not None:
                await self._write_chunk(connection, [self._event_of_left_out(left_out)])
                log.warning("trace.events_left_out", events=left_out.counts.total())
                left_out = None
        finally:
            # However it ended: where the answer to a commit was lost, to say that it may be missing is no mistake.
            if left_out is not None:
                self._buffer.leave_out_again(left_out)
            if written < len(noted):
                self._buffer.leave_out(sum(each.count for each in noted[written:]), NOT_WRITTEN)

    async def _write_chunk(self, connection: Connection, events: Sequence[TraceEvent]) -> None:
        try:
            await _write_in_transaction(connection, events)
        except psycopg.errors.CheckViolation:
            # No partition: brokers of an earlier version, which make none, may have looked after the days.
            for day in {datetime.fromtimestamp(event.at_us / 1e6, UTC).date() for event in events}:
                await ensure_for(connection, day)
            await _write_in_transaction(connection, events)

    def _event_of(self, noted: Noted) -> TraceEvent:
        return TraceEvent(
            noted.stored_at_us or self._time_us(noted.at),
            noted.kind.value,
            self._broker,
            noted.queue_id,
            noted.first,
            noted.last,
            group_id=noted.group_id,
            instance=_text(noted.instance),
            attempt=noted.attempt,
            # What is not a number was never handed out.
            handed_at_us=self._time_us(noted.handed_at) if noted.handed_at and noted.handed_at > 0 else None,
            detail=_text(noted.detail),
        )

    def _event_of_left_out(self, left_out: LeftOut) -> TraceEvent:
        return TraceEvent(
            self._time_us(self._buffer.now()),
            TraceKind.LEFT_OUT.value,
            self._broker,
            0,
            0,
            0,
            handed_at_us=self._time_us(left_out.since),
            detail="; ".join(f"{why}: {count}" for why, count in sorted(left_out.counts.items())),
            left_out=left_out.counts.total(),
        )

    def _time_us(self, at: float) -> int:
        assert self._offset_us is not None, "the clock is asked before anything is written"
        return round(at * 1e6) + self._offset_us


async def _write_in_transaction(connection: Connection, events: Sequence[TraceEvent]) -> None:
    async with connection.transaction():
        await write_events(connection, events)


def _chunks(noted: Sequence[Noted]) -> Iterator[Sequence[Noted]]:
    for start in range(0, len(noted), CHUNK_EVENTS):
        yield noted[start : start + CHUNK_EVENTS]


def _text(text: str | None) -> str | None:
    """Return *text* as PostgreSQL takes it, short enough; None where it is empty."""
    return text[:DETAIL_CHARS_MAX].replace("\0", "\N{REPLACEMENT CHARACTER}") if text else None
