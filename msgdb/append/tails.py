"""Where queues and publishers end: read under their locks, looking no further back than needed.

A bound is what this broker itself committed there, and says two things: the tail is not older, and *there is one*. It
lets PostgreSQL leave out the partitions of earlier days. Should no row be found behind a bound (a promotion lost the
log's end), the bounds are wrong, and all is read again without them: an offset must never start at 0 again.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

import structlog

from msgdb.append import sql
from msgdb.append.plan import PublisherTail, QueueTail
from msgdb.postgres.connections import BlockingConnection
from msgdb.postgres.libpq import execute

log = structlog.get_logger(__name__)

_LONG_AGO: Final = datetime(2000, 1, 1, tzinfo=UTC)
_PUBLISHERS_MAX: Final = 20_000


@dataclass(slots=True)
class Tails:
    """Where the queues and publishers of a batch end, and the database's clock."""

    queues: dict[int, QueueTail] = field(default_factory=dict)
    """The tails by queue, without queues that do not exist."""
    publishers: dict[bytes, PublisherTail] = field(default_factory=dict)
    clock_us: int = 0
    has_gaps: bool = False
    """Whether there was a bound, and no row behind it."""


class TailBounds:
    """The latest stored_at of what this broker committed, by queue and publisher. Good for one connection."""

    def __init__(self) -> None:
        self._queues: dict[int, int] = {}
        self._publishers: dict[bytes, int] = {}

    def committed(self, queue_ids: Iterable[int], publisher_ids: Iterable[bytes], stored_at_us: int) -> None:
        """Remember that a row of each of these was committed at *stored_at_us*."""
        for queue_id in queue_ids:
            self._queues[queue_id] = stored_at_us
        for publisher_id in publisher_ids:
            # Taken out and put back: the dict's order is the order of use, and the first is the one to forget.
            self._publishers.pop(publisher_id, None)
            self._publishers[publisher_id] = stored_at_us
        while len(self._publishers) > _PUBLISHERS_MAX:
            del self._publishers[next(iter(self._publishers))]

    def forget(self) -> None:
        """Forget all bounds: the next look reads everything."""
        self._queues.clear()
        self._publishers.clear()

    def queues_since(self, queue_ids: Iterable[int]) -> datetime:
        """Return a time that none of these queues' tails is before."""
        return _earliest(self._queues.get(queue_id) for queue_id in queue_ids)

    def publishers_since(self, publisher_ids: Iterable[bytes]) -> datetime:
        """Return a time that none of these publishers' last frames is before."""
        return _earliest(self._publishers.get(publisher_id) for publisher_id in publisher_ids)


def read_tails(
    connection: BlockingConnection,
    bounds: TailBounds,
    publisher_ids: set[bytes],
    queue_ids: set[int],
    *,
    begin: str = "",
    prepared: bool,
) -> Tails:
    """Return where these end, in a statement after the one that took their locks.

    That was the caller, or it is *begin*. *prepared*: the session has PREPARE_TAILS.
    """
    wanted = _Wanted(publisher_ids, queue_ids, bounds.publishers_since(publisher_ids), bounds.queues_since(queue_ids))
    tails = _read(connection, wanted, begin, prepared=prepared)
    if tails.has_gaps:
        log.warning("append.tail_lost")
        bounds.forget()
        wanted = _Wanted(publisher_ids, queue_ids, _LONG_AGO, _LONG_AGO)
        tails = _read(connection, wanted, "", prepared=prepared)
    return tails


@dataclass(frozen=True, slots=True)
class _Wanted:
    publisher_ids: set[bytes]
    queue_ids: set[int]
    publishers_since: datetime
    queues_since: datetime


def _read(connection: BlockingConnection, wanted: _Wanted, begin: str, *, prepared: bool) -> Tails:
    select = sql.tails(
        wanted.queue_ids, wanted.queues_since, wanted.publisher_ids, wanted.publishers_since, prepared=prepared
    )
    result = execute(connection, f"{begin}; {select}" if begin else select)
    tails = Tails()
    for row in range(result.ntuples):
        queue_id, publisher_id, position, sealed, stored_at_us, now_us = (
            result.get_value(row, column) for column in range(result.nfields)
        )
        tails.clock_us = max(tails.clock_us, int(now_us or 0))
        if publisher_id is None:
            tails.queues[int(queue_id or 0)] = QueueTail(int(position or 0), int(stored_at_us or 0), sealed == b"t")
            tails.has_gaps |= stored_at_us is None and wanted.queues_since > _LONG_AGO
        else:
            publisher = uuid.UUID(publisher_id.decode()).bytes
            tails.publishers[publisher] = PublisherTail(int(position or 0), int(stored_at_us or 0))
            tails.has_gaps |= stored_at_us is None and wanted.publishers_since > _LONG_AGO
    return tails


def _earliest(known: Iterable[int | None]) -> datetime:
    earliest: int | None = None
    for time_us in known:
        if time_us is None:
            return _LONG_AGO
        if earliest is None or time_us < earliest:
            earliest = time_us
    return _LONG_AGO if earliest is None else datetime.fromtimestamp(earliest / 1_000_000 - 1, UTC)
