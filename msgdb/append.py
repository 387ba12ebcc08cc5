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
from msgdb.anonymous import AnonymousNumbers
from msgdb.append_held import end_stuck_holders, set_aside, try_locks
from msgdb.append_plan import AppendFrame, AppendPlan, FrameResult, Stored, StoredBefore, plan_append
from msgdb.append_tails import TailBounds, read_tails
from msgdb.copy_rows import SIGNATURE, TRAILER
from msgdb.failures import store_failures, translate
from msgdb.poison import REFUSED_ERRORS, find_refused

log = structlog.get_logger(__name__)


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
        self._anonymous = AnonymousNumbers()
        self._bounds = TailBounds()

    async def append(self, frames: Sequence[AppendFrame], *, around_held: bool = False) -> list[FrameResult]:
        """Store *frames* in one transaction and return what became of each, in their order.

        *around_held*: do not wait for locks, because some of these were `Held` a moment ago.

        Raises StoreUnavailableError (nothing is known to be stored: the same frames may be given again) and
        LayoutChangedError (nothing is stored).
        """
        self._anonymous.adopt(frames)
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
            return await self._append_mending(connection, frames, around_held=around_held)
        except psycopg.Error as error:
            unavailable = translate(error)
            if unavailable is None:
                raise
            await self._give_up_connection()
            raise unavailable from error

    async def _append_mending(
        self, connection: psycopg.AsyncConnection[TupleRow], frames: Sequence[AppendFrame], *, around_held: bool
    ) -> list[FrameResult]:
        """Append; mend what can be mended, each thing once."""
        mended: set[str] = set()
        while True:
            try:
                if around_held:
                    return await self._append_around_held(connection, frames)
                return await self._append_waiting(connection, frames)
            except (pg_errors.LockNotAvailable, *REFUSED_ERRORS) as error:
                problem = _problem_of(error)
                if problem in mended or (problem == "held" and around_held):
                    raise
                mended.add(problem)
                await connection.execute("ROLLBACK")
            if problem == "held":
                around_held = True
            elif problem == "partition":
                log.warning("append.partition_missing")
                await self._ensure_partitions(datetime.now(UTC))
            else:
                await self._refuse_poison(connection, frames)

    async def _append_waiting(
        self, connection: psycopg.AsyncConnection[TupleRow], frames: Sequence[AppendFrame]
    ) -> list[FrameResult]:
        """Store *frames*; wait for their locks as long as the session may."""
        publisher_ids, queue_ids = self._anonymous.publisher_ids(frames), _queues_of(frames)
        begin = append_sql.begin(self._transaction_settings, publisher_ids, queue_ids)
        return await self._store_locked(connection, frames, publisher_ids, queue_ids, begin=begin)

    async def _append_around_held(
        self, connection: psycopg.AsyncConnection[TupleRow], frames: Sequence[AppendFrame]
    ) -> list[FrameResult]:
        """Store the frames whose locks are free; answer the others `Held`, and end a holder that does not move."""
        publisher_ids, queue_ids = self._anonymous.publisher_ids(frames), _queues_of(frames)
        held = await try_locks(connection, self._transaction_settings, publisher_ids, queue_ids)
        divided = set_aside(frames, held)
        results: dict[int, FrameResult] = {**divided.held}
        if divided.free:
            free = [frames[place] for place in divided.free]
            free_publishers = self._anonymous.publisher_ids(free)
            stored = await self._store_locked(connection, free, free_publishers, _queues_of(free))
            results.update(zip(divided.free, stored, strict=True))
        else:
            await connection.execute("ROLLBACK")
        if held:
            await end_stuck_holders(connection, held, self._config.held_seconds_max)
        return [results[place] for place in range(len(frames))]

    async def _store_locked(
        self,
        connection: psycopg.AsyncConnection[TupleRow],
        frames: Sequence[AppendFrame],
        publisher_ids: set[bytes],
        queue_ids: set[int],
        *,
        begin: str = "",
    ) -> list[FrameResult]:
        """Store *frames* in the transaction that is open and holds their locks, or that *begin* begins."""
        prepared = not self._config.pooled
        tails = await read_tails(connection, self._bounds, publisher_ids, queue_ids, begin=begin, prepared=prepared)
        gone = [q for q in queue_ids if q not in tails.queues or tails.queues[q].sealed]
        if gone:
            await connection.execute("ROLLBACK")
            raise LayoutChangedError(gone)
        self._anonymous.number(frames, tails.publishers)
        plan = plan_append(frames, tails.queues, tails.publishers, tails.clock_us)
        await self._write(connection, plan)
        # Only what has a row now: whatever was answered otherwise says nothing of its queue's tail.
        appended = {q for outcomes in plan.outcomes.values() for o in outcomes for q in o.queue_ids if q}
        self._bounds.committed(appended, plan.outcomes, plan.stored_at_us)
        return [
            await self._look_up(connection, frame, result) if isinstance(result, StoredBefore) else result
            for frame, result in zip(frames, plan.results, strict=True)
        ]

    async def _write(self, connection: psycopg.AsyncConnection[TupleRow], plan: AppendPlan) -> None:
        if plan.rows:
            async with connection.cursor() as cursor, cursor.copy(append_sql.COPY_MESSAGES) as copy:
                await copy.write(b"".join((SIGNATURE, *plan.rows, TRAILER)))
        await connection.execute(append_sql.commit(plan.outcomes, plan.stored_at_us).encode())

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

    async def _refuse_poison(
        self, connection: psycopg.AsyncConnection[TupleRow], frames: Sequence[AppendFrame]
    ) -> None:
        """Find the messages PostgreSQL will not take, and refuse them."""
        for frame in frames:
            refused = await find_refused(connection, frame, self._transaction_settings)
            if refused:
                log.warning("append.messages_refused", count=len(refused))
                frame.refuse(refused)

    # --- the connection ---------------------------------------------------------------------------------------------

    async def _live_connection(self) -> psycopg.AsyncConnection[TupleRow]:
        if self._connection is not None and not self._connection.closed:
            return self._connection
        with store_failures():
            connection = await self._connect()
            if not self._config.pooled:
                await connection.execute(f"{self._session_settings}; {append_sql.PREPARE_TAILS}".encode())
        self._connection = connection
        return connection

    async def _give_up_connection(self) -> None:
        """Never use this connection again, nor what was known by it: whether its last transaction committed is unknown.

        The next connection may lead to a server that was promoted, and has lost the end of the log.
        """
        self._bounds.forget()
        self._anonymous.connection_lost()
        await self.close()


def _queues_of(frames: Sequence[AppendFrame]) -> set[int]:
    return {message.queue_id for frame in frames for message in frame.messages}


def _problem_of(error: psycopg.Error) -> str:
    """Return what to mend: `held`, `partition` or `poison`."""
    if isinstance(error, pg_errors.LockNotAvailable):
        return "held"
    # A row without a partition violates what PostgreSQL reports as a check, but one without a name.
    if isinstance(error, pg_errors.CheckViolation) and error.diag.constraint_name is None:
        return "partition"
    return "poison"
