"""The append transaction: the one way a message gets into the store.

Many frames at once: advisory locks on the publishers and queues, *then* a look at where each ends, one binary COPY, one
row per publisher, COMMIT. The locks are held until the commit, so offsets are gapless and in commit order over all
brokers, without an UPDATE that would leave a dead row behind per commit.

It blocks, on a blocking connection: `msgdb.append.appender` gives it a thread. Each call is one try, and raises what
went wrong; `msgdb.append.mending` knows what to do then. Around locks that another broker holds it stores what it can:
the other frames are answered `Held`, and a holder that does not move is ended.

Where the connection is lost, perhaps with the answer to COMMIT, nobody knows what is stored. Given again on a new one,
what was committed is found under its publisher's number and answered as stored, once that answer is as durable as a
commit of one's own: the transaction that finds it writes something, and so waits for the standbys that the first one
may not have waited for. A server that commits and warns that it has not waited for its standby (somebody cancelled
that) is taken for a lost answer.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import psycopg
import structlog
from psycopg import errors as pg_errors
from psycopg.pq import TransactionStatus

from msgdb.append import outcome, sql
from msgdb.append.anonymous import AnonymousNumbers
from msgdb.append.copy_rows import SIGNATURE, TRAILER
from msgdb.append.held import Lock, StuckHolders, divide, try_locks
from msgdb.append.plan import AppendFrame, AppendPlan, Buffer, FrameResult, Stored, StoredBefore, plan_append
from msgdb.append.refused_rows import REFUSED_ERRORS, find_refused, is_missing_partition
from msgdb.append.session import AppendConfig, AppendSession
from msgdb.append.tails import TailBounds, Tails, read_tails
from msgdb.postgres.connections import BlockingConnection
from msgdb.postgres.failures import translate
from msgdb.postgres.libpq import execute, execute_copying

log = structlog.get_logger(__name__)

_COPIED_PIECES: Final = 384
"""How many pieces of rows are given to libpq at once: what stays in the processor's cache while it is copied on."""


class LayoutChangedError(Exception):
    """A queue was sealed since its messages chose it: choose again by the new layout, and append again."""

    def __init__(self, queue_ids: Sequence[int]) -> None:
        super().__init__(f"queues {list(queue_ids)} are sealed or gone")
        self.queue_ids = tuple(queue_ids)


class PartitionMissingError(Exception):
    """There is no partition for one of these times: make it, and append again."""

    def __init__(self, times_us: Collection[int]) -> None:
        super().__init__(f"a partition is missing for one of {sorted(times_us)}")
        self.times_us = frozenset(times_us)


class LocksHeldError(Exception):
    """The locks were not to be had in time: append around those that are held."""


_NOTHING_STORED: Final = (LayoutChangedError, PartitionMissingError, LocksHeldError, *REFUSED_ERRORS)
"""After these the transaction is rolled back, and the connection is as good as before."""


class AppendTransaction:
    """The transaction that stores frames, one after the other on a connection of its own."""

    def __init__(self, connect: Callable[[], BlockingConnection], config: AppendConfig) -> None:
        self._session = AppendSession(connect, config)
        self._anonymous = AnonymousNumbers()
        self._bounds = TailBounds()
        self._stuck = StuckHolders(config.held_seconds_max)

    def store(self, frames: Sequence[AppendFrame], *, around_held: bool) -> list[FrameResult]:
        """Try once to store *frames*, and return what became of each, in their order.

        *around_held*: those whose locks another broker holds are answered `Held`, and not waited for.

        Raises StoreUnavailableError (nothing is known to be stored), or, where nothing is stored, LayoutChangedError,
        PartitionMissingError, LocksHeldError or one of REFUSED_ERRORS: PostgreSQL will not take one of the messages.
        """
        self._anonymous.adopt(frames)
        with self._connected() as connection:
            if around_held:
                return self._store_around_held(connection, frames)
            return self._store_waiting(connection, frames)

    def refuse(self, frames: Sequence[AppendFrame]) -> None:
        """Find the messages of *frames* that PostgreSQL will not take, and refuse them.

        Raises StoreUnavailableError.
        """
        with self._connected() as connection:
            for frame in frames:
                refused = find_refused(connection, frame, self._session.settings_for([frame]))
                if refused:
                    log.warning("append.messages_refused", count=len(refused))
                    frame.refuse(refused)

    def find_broken(self, frame: AppendFrame) -> dict[int, str]:
        """Return the places of the messages that cannot be stored, whatever the reason, as far as a try can tell.

        Raises StoreUnavailableError.
        """
        with self._connected() as connection:
            return find_refused(connection, frame, self._session.settings_for([frame]), (psycopg.Error,))

    def close(self) -> None:
        """Close the connection, if there is one."""
        self._session.close()

    # --- one transaction --------------------------------------------------------------------------------------------

    def _store_waiting(self, connection: BlockingConnection, frames: Sequence[AppendFrame]) -> list[FrameResult]:
        """Store *frames*; wait for their locks as long as the session may."""
        publisher_ids, queue_ids = self._anonymous.publisher_ids(frames), _queues_of(frames)
        begin = sql.begin(self._session.settings_for(frames), publisher_ids, queue_ids)
        try:
            tails = self._read_tails(connection, publisher_ids, queue_ids, begin)
        except (pg_errors.LockNotAvailable, pg_errors.QueryCanceled) as error:
            # One lock took too long, or all of them together: the statement that takes them is their one budget.
            raise LocksHeldError from error
        return self._store_locked(connection, frames, queue_ids, tails)

    def _read_tails(
        self, connection: BlockingConnection, publisher_ids: set[bytes], queue_ids: set[int], begin: str = ""
    ) -> Tails:
        prepared = self._session.has_prepared
        return read_tails(connection, self._bounds, publisher_ids, queue_ids, begin=begin, prepared=prepared)

    def _store_around_held(self, connection: BlockingConnection, frames: Sequence[AppendFrame]) -> list[FrameResult]:
        """Store the frames whose locks are free; answer the others `Held`, and end a holder that does not move."""
        publisher_ids, queue_ids = self._anonymous.publisher_ids(frames), _queues_of(frames)
        held = try_locks(connection, self._session.settings_for(frames), publisher_ids, queue_ids)
        divided = divide(frames, held)
        results: dict[int, FrameResult] = {**divided.held}
        if divided.free:
            free = [frames[place] for place in divided.free]
            free_queues = _queues_of(free)
            tails = self._read_tails(connection, self._anonymous.publisher_ids(free), free_queues)
            stored = self._store_locked(connection, free, free_queues, tails)
            results.update(zip(divided.free, stored, strict=True))
        else:
            self._roll_back(connection)
        if held:
            self._end_stuck(connection, held)
        return [results[place] for place in range(len(frames))]

    def _end_stuck(self, connection: BlockingConnection, held: set[Lock]) -> None:
        """End holders that do not move. Whatever comes of that, what was stored is stored and is not tried again."""
        try:
            self._stuck.end(connection, held)
        except Exception:
            log.warning("append.holders_not_ended", exc_info=True)
            if connection.info.transaction_status is not TransactionStatus.IDLE:
                self._give_up_connection()

    def _store_locked(
        self, connection: BlockingConnection, frames: Sequence[AppendFrame], queue_ids: set[int], tails: Tails
    ) -> list[FrameResult]:
        """Store *frames* in the transaction that is open, holds their locks, and has read their tails."""
        gone = [q for q in queue_ids if q not in tails.queues or tails.queues[q].sealed]
        if gone:
            raise LayoutChangedError(gone)
        self._anonymous.number(frames, tails.publishers)
        plan = plan_append(frames, tails.queues, tails.publishers, tails.clock_us)
        self._write(connection, plan)
        # Only what has a row now: whatever was answered otherwise says nothing of its queue's tail.
        appended = {q for outcomes in plan.outcomes.values() for o in outcomes for q in o.queue_ids if q}
        self._bounds.committed(appended, plan.outcomes, plan.clock_us)
        results = [
            self._look_up(connection, frame, result) if isinstance(result, StoredBefore) else result
            for frame, result in zip(frames, plan.results, strict=True)
        ]
        self._anonymous.transaction_ended()
        return results

    def _write(self, connection: BlockingConnection, plan: AppendPlan) -> None:
        commit = sql.commit(plan.outcomes, plan.publishers_us, repeats=plan.repeats)
        self._session.warning = ""
        try:
            if plan.rows:
                execute_copying(connection, f"{sql.COPY_MESSAGES}; {commit}", _copy_data(plan.rows))
            else:
                execute(connection, commit)
        except pg_errors.CheckViolation as error:
            if not is_missing_partition(error):
                raise
            raise PartitionMissingError(plan.times_us) from error
        if self._session.warning:
            # It is committed here, and perhaps on no standby: not to be answered as stored by what is known now.
            raise psycopg.OperationalError(f"the server warned: {self._session.warning}")

    def _look_up(self, connection: BlockingConnection, frame: AppendFrame, result: StoredBefore) -> FrameResult:
        """Return what became of a frame that was stored before."""
        found = connection.execute(
            sql.OUTCOME, {"publisher_id": uuid.UUID(bytes=frame.publisher_id), "sequence": frame.sequence}
        )
        row = found.fetchone()
        for stored in outcome.decode(row[0]) if row is not None else ():
            if stored.sequence == frame.sequence:
                return Stored(stored, duplicate=True)
        return result

    # --- the connection ---------------------------------------------------------------------------------------------

    @contextmanager
    def _connected(self) -> Iterator[BlockingConnection]:
        """Lend the connection, and leave it outside of a transaction or give it up. Raises StoreUnavailableError."""
        connection = self._session.connection()
        try:
            yield connection
        except BaseException as error:
            if isinstance(error, _NOTHING_STORED) and self._is_rolled_back(connection):
                raise
            # In the middle of a transaction, or so it must be taken: what state it is in nobody knows.
            self._give_up_connection()
            unavailable = translate(error)
            if unavailable is None:
                raise
            raise unavailable from error

    def _is_rolled_back(self, connection: BlockingConnection) -> bool:
        """Roll back, and return whether the server has heard of it."""
        try:
            self._roll_back(connection)
        except psycopg.Error:
            log.warning("append.not_rolled_back", exc_info=True)
            return False
        return True

    def _roll_back(self, connection: BlockingConnection) -> None:
        execute(connection, "ROLLBACK")
        self._anonymous.transaction_ended()

    def _give_up_connection(self) -> None:
        """Never use this connection again, nor what was known by it: whether its last transaction committed is unknown.

        The next connection may lead to a server that was promoted, and has lost the end of the log.
        """
        self._bounds.forget()
        self._anonymous.connection_lost()
        self._session.close()


def _queues_of(frames: Sequence[AppendFrame]) -> set[int]:
    return {message.queue_id for frame in frames for message in frame.messages}


def _copy_data(rows: Sequence[Buffer]) -> Iterator[bytes]:
    yield SIGNATURE + b"".join(rows[:_COPIED_PIECES])
    for first in range(_COPIED_PIECES, len(rows), _COPIED_PIECES):
        yield b"".join(rows[first : first + _COPIED_PIECES])
    yield TRAILER
