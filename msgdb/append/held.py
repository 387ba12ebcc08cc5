"""Storing around locks that another broker holds: which frames wait, and how a holder that does not move is ended.

Only a holder that waits for its own client is ended, and only if it has not moved for a while: it is idle in its
transaction, or the server waits for data of its COPY that does not come. Such a broker is frozen. One whose transaction
takes long for any other reason is at work, and its neighbours wait in line for it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Final

import structlog

from msgdb.append import sql
from msgdb.append.plan import AppendFrame, Held
from msgdb.locks import PUBLISHER_LOCK_CLASS, QUEUE_LOCK_CLASS, publisher_lock_key, queue_lock_key
from msgdb.postgres.connections import BlockingConnection

log = structlog.get_logger(__name__)

_OID_MASK: Final = 0xFFFFFFFF
_COPY_LOOKS_SECONDS: Final = 0.5
"""How far two looks at a COPY are apart that has got no byte in between: it gets none."""

Lock = tuple[int, int]
"""An advisory lock: its class and its key."""


@dataclass(slots=True)
class DividedBatch:
    """A batch, divided into the frames that can be stored and those that wait for a lock."""

    free: list[int] = field(default_factory=list)
    """The places of the frames whose locks were all to be had."""
    held: dict[int, Held] = field(default_factory=dict)
    """What the frames at the other places are answered, by place."""


def try_locks(
    connection: BlockingConnection, settings: str, publisher_ids: set[bytes], queue_ids: set[int]
) -> set[Lock]:
    """Begin a transaction, take the locks that are free, and return the others."""
    statement = sql.begin_trying(settings, list(publisher_ids), list(queue_ids))
    cursor = connection.execute(statement.encode())
    while cursor.nextset():
        # Only the last statement has rows.
        continue
    return {(lock_class, key) for lock_class, key in cursor.fetchall()}


def divide(frames: Sequence[AppendFrame], held: set[Lock]) -> DividedBatch:
    """Divide *frames*: those that need a held lock wait, and with them what their publisher sent behind them."""
    divided = DividedBatch()
    waiting: set[bytes] = set()
    for place, frame in enumerate(frames):
        queue_id = next(
            (m.queue_id for m in frame.messages if (QUEUE_LOCK_CLASS, queue_lock_key(m.queue_id)) in held), 0
        )
        publisher_is_held = (PUBLISHER_LOCK_CLASS, publisher_lock_key(frame.publisher_id)) in held
        if queue_id or publisher_is_held or frame.publisher_id in waiting:
            divided.held[place] = Held(queue_id)
            if not frame.is_anonymous:
                waiting.add(frame.publisher_id)
        else:
            divided.free.append(place)
    return divided


@dataclass(frozen=True, slots=True)
class _Holder:
    """A session that holds what is waited for, and waits for its client."""

    pid: int
    xact_start: Decimal
    """When its transaction began, in seconds since 1970, exactly."""
    copied_bytes: int
    is_idle: bool
    waits_seconds: float
    """For how long it cannot have moved, at least, if it is idle; a COPY may have got data since."""


class StuckHolders:
    """Ends the sessions that hold others up and do not move. Looks are as frequent as its calls."""

    def __init__(self, held_seconds_max: float, now: Callable[[], float] = time.monotonic) -> None:
        self._held_seconds_max = held_seconds_max
        self._now = now
        self._copying: dict[tuple[int, Decimal], tuple[int, float]] = {}
        """Holders in the middle of a COPY: what they had got, and since when no more."""

    def end(self, connection: BlockingConnection, held: set[Lock]) -> None:
        """End those that hold these locks and are stuck."""
        for holder in self._stuck(_find(connection, held)):
            ended = connection.execute(sql.END_HOLDER, {"pid": holder.pid, "xact_start": holder.xact_start})
            if ended.rowcount:
                log.warning("append.holder_ended", pid=holder.pid, waits_seconds=round(holder.waits_seconds, 1))

    def _stuck(self, holders: Sequence[_Holder]) -> list[_Holder]:
        now = self._now()
        copying: dict[tuple[int, Decimal], tuple[int, float]] = {}
        stuck: list[_Holder] = []
        for holder in holders:
            if holder.waits_seconds <= self._held_seconds_max:
                is_still = False
            elif holder.is_idle:
                is_still = True
            else:
                name = (holder.pid, holder.xact_start)
                copied_bytes, since = self._copying.get(name, (-1, now))
                copying[name] = (holder.copied_bytes, since if copied_bytes == holder.copied_bytes else now)
                is_still = now - copying[name][1] >= _COPY_LOOKS_SECONDS
            if is_still:
                stuck.append(holder)
        # Who is not seen waiting any more has moved.
        self._copying = copying
        return stuck


def _find(connection: BlockingConnection, held: set[Lock]) -> list[_Holder]:
    rows = connection.execute(
        sql.FIND_WAITING_HOLDERS,
        {
            "classes": sorted({lock_class & _OID_MASK for lock_class, _ in held}),
            "keys": sorted({key & _OID_MASK for _, key in held}),
        },
    ).fetchall()
    return [_Holder(*row) for row in rows]
