"""Storing around locks that another broker holds: which frames wait, and how a holder that does not move is ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import structlog

from msgdb import append_sql
from msgdb.append_plan import AppendFrame, Held
from msgdb.connections import BlockingConnection
from msgdb.locks import PUBLISHER_LOCK_CLASS, QUEUE_LOCK_CLASS, publisher_lock_key, queue_lock_key

log = structlog.get_logger(__name__)

_OID_MASK: Final = 0xFFFFFFFF

Lock = tuple[int, int]
"""Class and key."""


@dataclass(slots=True)
class SetAside:
    """A batch, divided."""

    free: list[int] = field(default_factory=list)
    """Places of the frames whose locks are all there."""
    held: dict[int, Held] = field(default_factory=dict)
    """What the frames at the other places are answered."""


def try_locks(
    connection: BlockingConnection, settings: str, publisher_ids: set[bytes], queue_ids: set[int]
) -> set[Lock]:
    """Begin a transaction, take the locks that are free, and return the others."""
    statement = append_sql.begin_trying(settings, list(publisher_ids), list(queue_ids))
    cursor = connection.execute(statement.encode())
    while cursor.nextset():
        # Only the last statement has rows.
        continue
    return {(lock_class, key) for lock_class, key in cursor.fetchall()}


def set_aside(frames: Sequence[AppendFrame], held: set[Lock]) -> SetAside:
    """Divide *frames*: those that need a held lock wait, and with them what their publisher sent behind them."""
    divided = SetAside()
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


def end_stuck_holders(connection: BlockingConnection, held: set[Lock], held_seconds: float) -> None:
    """End the sessions that hold these locks in transactions older than *held_seconds*."""
    ended = connection.execute(
        append_sql.TERMINATE_HOLDERS,
        {
            "classes": sorted({lock_class & _OID_MASK for lock_class, _ in held}),
            "keys": sorted({key & _OID_MASK for _, key in held}),
            "held_seconds": held_seconds,
        },
    )
    if ended.rowcount:
        log.warning("append.holder_ended", count=ended.rowcount)
