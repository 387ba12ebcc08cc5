"""Writes what this broker has counted, every ten seconds, and how far it has counted, also where that was nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final
from uuid import UUID

import structlog

from msgbroker.contract.errors import StoreUnavailableError
from msgbroker.server import clock
from msgbroker.server.figures.usage import UsageCounts, UsageKey
from msgbroker.server.loops import pause
from msgdb.figures.completeness import WRITE_SECONDS
from msgdb.figures.usage import UsageBroker, read_clock_us, write_usage
from msgdb.store import Connection, MessageStore

log = structlog.get_logger(__name__)

ROWS_MAX: Final = 500
"""So many rows are written by one statement: to put them together takes a few milliseconds of everybody's time."""
MARGIN_US: Final = 1_000_000
"""By so much two views of the store's clock may differ. What was counted is told to be that much less."""
_SECOND_OF_TEN: Final = 2.0
"""When in ten seconds it writes: so that of a minute that is over everything is there soon."""


@dataclass(frozen=True, slots=True)
class Storing:
    """What is to be known of the committer: what is on its way into the log is not counted yet."""

    in_flight_seconds: Callable[[], float]
    """How long the transaction that is under way has taken so far."""
    unknown: Callable[[], int]
    """Of how many transactions nobody knows whether they were committed."""


class UsageWriter:
    """Writes this broker's counts."""

    def __init__(
        self,
        usage: UsageCounts,
        store: MessageStore,
        *,
        broker_id: UUID,
        broker: str,
        storing: Storing,
        now: Callable[[], float] = clock.now,
    ) -> None:
        self._usage = usage
        self._store = store
        self._broker_id = broker_id
        self._broker = broker
        self._storing = storing
        self._now = now
        self._counted_until_us = 0
        self._unknown = 0

    async def begin(self) -> None:
        """Learn the time, and say that this broker counts from now on: before anything is stored or delivered.

        Raises StoreUnavailableError.
        """
        async with self._store.connection() as connection:
            await self._ask_for_time(connection)
        self._counted_until_us = self._usage.now_us()
        await self._write_all(has_ended=False)

    async def run(self, stop: asyncio.Event) -> None:
        """Write every ten seconds until *stop* is set."""
        while not stop.is_set():
            await pause(stop, self._seconds_to_next())
            if not stop.is_set():
                await self.write_once()

    def _seconds_to_next(self) -> float:
        second = self._usage.now_us() / 1_000_000 - _SECOND_OF_TEN
        return WRITE_SECONDS - second % WRITE_SECONDS

    async def write_once(self) -> bool:
        """Write what was counted; return whether the store took it. What it did not comes with the next time."""
        try:
            await self._write_all(has_ended=False)
        except StoreUnavailableError:
            log.warning("usage.store_unavailable")
            return False
        return True

    async def leave(self) -> None:
        """Write the rest, and that this was all: this broker stops."""
        try:
            await self._write_all(has_ended=True)
        except StoreUnavailableError:
            log.warning("usage.store_unavailable")

    async def _write_all(self, *, has_ended: bool) -> None:
        unknown = self._storing.unknown()
        if unknown != self._unknown:
            self._unknown = unknown
            self._usage.doubt_lately()
        until_us = self._until_us(has_ended=has_ended)
        changed = self._usage.changed()
        for first in range(0, max(len(changed), 1), ROWS_MAX):
            names = changed[first : first + ROWS_MAX]
            is_last = first + ROWS_MAX >= len(changed)
            await self._write(names, until_us if is_last else self._counted_until_us, has_ended=has_ended and is_last)
        self._counted_until_us = until_us
        self._usage.give_up(until_us)

    def _until_us(self, *, has_ended: bool) -> int:
        """Return until when everything that happened here is counted by now."""
        now_us = self._usage.now_us()
        if has_ended:
            return max(now_us, self._counted_until_us)
        in_flight_us = round(self._storing.in_flight_seconds() * 1_000_000)
        return max(now_us - in_flight_us - MARGIN_US, self._counted_until_us)

    async def _write(self, names: list[tuple[int, UsageKey]], until_us: int, *, has_ended: bool) -> None:
        rows = self._usage.take(names)
        counted_until = datetime.fromtimestamp(until_us / 1_000_000, UTC)
        broker = UsageBroker(self._broker_id, self._broker, counted_until, has_ended)
        is_written = False
        try:
            async with self._store.connection() as connection:
                await write_usage(connection, rows, broker)
                is_written = True
                await self._ask_for_time(connection)
        finally:
            # Whether it was or not: they are totals, and written again they are the same.
            if not is_written:
                self._usage.give_back(names)

    async def _ask_for_time(self, connection: Connection) -> None:
        asked_at = self._now()
        self._usage.clock.learn(await read_clock_us(connection), asked_at)
