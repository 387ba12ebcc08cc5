"""Append: the one way a message gets into the store.

One transaction for many frames: advisory locks on the publishers and queues, *then* a look at where each ends, one
binary COPY, one row per publisher, COMMIT. The locks are held until the commit, so offsets are gapless and in commit
order over all brokers, without an UPDATE that would leave a dead row behind per commit.

What can go wrong, and what then:
- the connection is lost, perhaps with the answer to COMMIT: append again once; what was committed is found under its
  publisher's number and answered as stored;
- another broker holds a lock for too long: its frames are answered `Held`, the others are stored, and a holder that
  does not move is ended;
- the day's partition is missing: it is made, and the transaction repeated;
- PostgreSQL refuses a value: the offending messages are found and refused, their neighbours stored.
"""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import psycopg
import structlog
from psycopg import errors as pg_errors
from psycopg.rows import TupleRow

from msgbroker.contract.errors import StoreUnavailableError
from msgdb import append_sql, outcome
from msgdb.append_plan import AppendFrame, FrameResult, Held, QueueTail, Stored, StoredBefore, plan_append
from msgdb.append_tails import TailBounds
from msgdb.copy_rows import SIGNATURE, TRAILER
from msgdb.failures import store_failures, translate
from msgdb.locks import PUBLISHER_LOCK_CLASS, QUEUE_LOCK_CLASS, publisher_lock_key, queue_lock_key
from msgdb.poison import REFUSED_ERRORS, find_refused

log = structlog.get_logger(__name__)

_OID_MASK = 0xFFFFFFFF


class LayoutChangedError(Exception):
    """A queue was sealed since its messages chose it: choose again by the new layout, and append again."""

    def __init__(self, queue_ids: Sequence[int]) -> None:
        super().__init__(f"queues {list(queue_ids)} are sealed or gone")
        self.queue_ids = tuple(queue_ids)


@dataclass(frozen=True, slots=True)
class AppendConfig:
    """How patient an append transaction is."""

    timeout_seconds: float = 2.0
    """Of each statement, and of the session between statements: a frozen broker is cut off after it."""
    lock_timeout_seconds: float = 1.0
    """After it, a queue held by another broker is set aside."""
    held_seconds_max: float = 2.0
    """A holder older than this is ended by whoever waits for it."""
    pooled: bool = False
    """Behind a transaction-pooling PgBouncer: settings per transaction, not per session."""


class Appender:
    """Stores frames, one transaction at a time, on a connection of its own."""

    def __init__(
        self,
        connect: Callable[[], Awaitable[psycopg.AsyncConnection[TupleRow]]],
        ensure_partitions: Callable[[datetime], Awaitable[None]],
        config: AppendConfig | None = None,
    ) -> None:
        self._connect = connect
        self._ensure_partitions = ensure_partitions
        self._config = config or AppendConfig()
        self._connection: psycopg.AsyncConnection[TupleRow] | None = None
        settings = append_sql.session_settings(
            timeout_seconds=self._config.timeout_seconds,
            lock_timeout_seconds=self._config.lock_timeout_seconds,
            local=self._config.pooled,
        )
        self._session_settings = "" if self._config.pooled else settings
        self._transaction_settings = settings if self._config.pooled else ""
        self._own_id = secrets.token_bytes(16)
        self._bounds = TailBounds()

    async def append(self, frames: Sequence[AppendFrame], *, around_held: bool = False) -> list[FrameResult]:
        """Store *frames* in one transaction and return what became of each, in their order.

        *around_held*: do not wait for locks, because some of these were `Held` a moment ago.

        Raises StoreUnavailableError (nothing is known to be stored: the same frames may be given again) and
        LayoutChangedError (nothing is stored).
        """
        try:
            return await self._append_on_connection(frames, around_held=around_held)
        except StoreUnavailableError:
            log.warning("append.connection_lost", exc_info=True)
        # Once more, on a new connection. It also settles what became of a COMMIT whose answer was lost: the locks wait
        # for the old transaction's end, and its frames are then found as stored before.
        return await self._append_on_connection(frames, around_held=around_held)

    async def close(self) -> None:
        """Close the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    # --- one attempt ------------------------------------------------------------------------------------------------

    async def _append_on_connection(self, frames: Sequence[AppendFrame], *, around_held: bool) -> list[FrameResult]:
        connection = await self._live_connection()
        try:
            if around_held:
                return await self._append_around_held(connection, frames)
            return await self._append_or_mend(connection, frames)
        except psycopg.Error as error:
            unavailable = translate(error)
            if unavailable is None:
                raise
            # Whether it was committed is unknown: nobody may use this connection again.
            await self.close()
            raise unavailable from error

    async def _append_or_mend(
        self, connection: psycopg.AsyncConnection[TupleRow], frames: Sequence[AppendFrame]
    ) -> list[FrameResult]:
        try:
            return await self._transaction(connection, frames)
        except pg_errors.LockNotAvailable:
            await connection.execute("ROLLBACK")
            return await self._append_around_held(connection, frames)
        except pg_errors.CheckViolation as error:
            await connection.execute("ROLLBACK")
            if "no partition" not in str(error):
                return await self._append_without_refused(connection, frames)
            log.warning("append.partition_missing")
            await self._ensure_partitions(datetime.now(UTC))
            return await self._transaction(connection, frames)
        except REFUSED_ERRORS:
            await connection.execute("ROLLBACK")
            return await self._append_without_refused(connection, frames)

    async def _transaction(
        self, connection: psycopg.AsyncConnection[TupleRow], frames: Sequence[AppendFrame]
    ) -> list[FrameResult]:
        publisher_ids = {frame.publisher_id or self._own_id for frame in frames}
        queue_ids = {message.queue_id for frame in frames for message in frame.messages}
        await connection.execute(append_sql.begin(self._transaction_settings, publisher_ids, queue_ids).encode())
        return await self._store_locked(connection, frames, publisher_ids, queue_ids)

    async def _store_locked(
        self,
        connection: psycopg.AsyncConnection[TupleRow],
        frames: Sequence[AppendFrame],
        publisher_ids: set[bytes],
        queue_ids: set[int],
    ) -> list[FrameResult]:
        """Store *frames* in the transaction that is open and holds their locks."""
        queue_tails, publisher_tails, clock_us = await self._read_tails(connection, publisher_ids, queue_ids)
        sealed = [q for q in queue_ids if q not in queue_tails or queue_tails[q].sealed]
        if sealed:
            await connection.execute("ROLLBACK")
            raise LayoutChangedError(sealed)
        plan = plan_append(self._number_anonymous(frames, publisher_tails), queue_tails, publisher_tails, clock_us)
        if plan.rows:
            async with connection.cursor() as cursor, cursor.copy(append_sql.COPY_MESSAGES) as copy:
                await copy.write(b"".join((SIGNATURE, *plan.rows, TRAILER)))
        await connection.execute(append_sql.commit(plan.outcomes, plan.stored_at_us).encode())
        if plan.rows:
            self._bounds.saw_queues(queue_ids, plan.stored_at_us)
        self._bounds.saw_publishers(plan.outcomes, plan.stored_at_us)
        return [
            await self._look_up(connection, frame, result) if isinstance(result, StoredBefore) else result
            for frame, result in zip(frames, plan.results, strict=True)
        ]

    async def _read_tails(
        self,
        connection: psycopg.AsyncConnection[TupleRow],
        publisher_ids: set[bytes],
        queue_ids: set[int],
    ) -> tuple[dict[int, QueueTail], dict[bytes, int], int]:
        rows = await connection.execute(
            append_sql.TAILS,
            {
                "queue_ids": list(queue_ids),
                "queues_since": self._bounds.queues_since(queue_ids),
                "publisher_ids": [publisher_id.hex() for publisher_id in publisher_ids],
                "publishers_since": self._bounds.publishers_since(publisher_ids),
            },
            prepare=not self._config.pooled,
        )
        queue_tails: dict[int, QueueTail] = {}
        publisher_tails: dict[bytes, int] = {}
        clock_us = 0
        async for queue_id, publisher_id, position, sealed, stored_at_us, now_us in rows:
            clock_us = max(clock_us, now_us)
            if publisher_id is None:
                queue_tails[queue_id] = QueueTail(position, stored_at_us or 0, sealed)
            else:
                publisher_tails[publisher_id.bytes] = position or 0
        return queue_tails, publisher_tails, clock_us

    def _number_anonymous(
        self, frames: Sequence[AppendFrame], publisher_tails: dict[bytes, int]
    ) -> Sequence[AppendFrame]:
        """Give frames without a publisher the next numbers of this appender's own.

        A frame that has its number already comes from an attempt whose commit may have been lost: at or below the tail
        it *is* stored and keeps the number; above it, it is not, and is numbered anew.
        """
        last = publisher_tails.get(self._own_id, 0)
        committed_last = last
        for frame in frames:
            if not frame.publisher_id:
                frame.publisher_id = self._own_id
                frame.sequence = 0
            if frame.publisher_id == self._own_id and (frame.sequence == 0 or frame.sequence > committed_last):
                last += 1
                frame.sequence = last
        return frames

    async def _look_up(
        self, connection: psycopg.AsyncConnection[TupleRow], frame: AppendFrame, result: StoredBefore
    ) -> FrameResult:
        """Return what became of a frame that was stored before."""
        found = await connection.execute(
            append_sql.OUTCOME, {"publisher_id": uuid.UUID(bytes=frame.publisher_id), "sequence": frame.sequence}
        )
        row = await found.fetchone()
        for stored in outcome.decode(row[0]) if row is not None else ():
            if stored.sequence == frame.sequence:
                return Stored(stored, duplicate=True)
        return result

    # --- around trouble ---------------------------------------------------------------------------------------------

    async def _append_around_held(
        self, connection: psycopg.AsyncConnection[TupleRow], frames: Sequence[AppendFrame]
    ) -> list[FrameResult]:
        """Store the frames whose locks are free; answer the others `Held`, and end a holder that does not move."""
        publisher_ids = {frame.publisher_id or self._own_id for frame in frames}
        queue_ids = {message.queue_id for frame in frames for message in frame.messages}
        cursor = await connection.execute(
            append_sql.begin_trying(self._transaction_settings, list(publisher_ids), list(queue_ids)).encode()
        )
        while cursor.nextset():
            # Only the last statement has rows.
            continue
        held = {(lock_class, key) for lock_class, key in await cursor.fetchall()}
        held_queues = {q for q in queue_ids if (QUEUE_LOCK_CLASS, queue_lock_key(q)) in held}
        held_publishers = {p for p in publisher_ids if (PUBLISHER_LOCK_CLASS, publisher_lock_key(p)) in held}
        results: dict[int, FrameResult] = {}
        free: list[int] = []
        for index, frame in enumerate(frames):
            publisher_id = frame.publisher_id or self._own_id
            queue_id = next((m.queue_id for m in frame.messages if m.queue_id in held_queues), 0)
            if queue_id or publisher_id in held_publishers:
                results[index] = Held(queue_id)
                if frame.publisher_id and frame.publisher_id != self._own_id:
                    # What the publisher sent behind it must wait with it.
                    held_publishers.add(publisher_id)
            else:
                free.append(index)
        if free:
            free_frames = [frames[index] for index in free]
            stored = await self._store_locked(
                connection,
                free_frames,
                {frame.publisher_id or self._own_id for frame in free_frames},
                {message.queue_id for frame in free_frames for message in frame.messages},
            )
            results.update(zip(free, stored, strict=True))
        else:
            await connection.execute("ROLLBACK")
        if held:
            await self._end_stuck_holders(connection, held)
        return [results[index] for index in range(len(frames))]

    async def _end_stuck_holders(
        self, connection: psycopg.AsyncConnection[TupleRow], held: set[tuple[int, int]]
    ) -> None:
        ended = await connection.execute(
            append_sql.TERMINATE_HOLDERS,
            {
                "classes": sorted({lock_class & _OID_MASK for lock_class, _ in held}),
                "keys": sorted({key & _OID_MASK for _, key in held}),
                "held_seconds": self._config.held_seconds_max,
            },
        )
        if ended.rowcount:
            log.warning("append.holder_ended", count=ended.rowcount)

    async def _append_without_refused(
        self, connection: psycopg.AsyncConnection[TupleRow], frames: Sequence[AppendFrame]
    ) -> list[FrameResult]:
        """Find the messages PostgreSQL will not take, refuse those, and store the rest."""
        for frame in frames:
            refused = await find_refused(connection, frame, self._transaction_settings)
            if refused:
                log.warning("append.messages_refused", count=len(refused))
                frame.refuse(refused)
        return await self._transaction(connection, frames)

    async def _live_connection(self) -> psycopg.AsyncConnection[TupleRow]:
        if self._connection is not None and not self._connection.closed:
            return self._connection
        with store_failures():
            connection = await self._connect()
            if self._session_settings:
                await connection.execute(self._session_settings.encode())
        self._connection = connection
        return connection

