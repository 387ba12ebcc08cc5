"""Which history the database goes on with: a marker that cannot repeat.

A promotion (or a restore to an earlier moment) begins a new history: what was written last may be missing from it, and
other messages get the same offsets. The log's length does not tell: it may have grown again before anyone looks.
PostgreSQL's timeline tells of a new one, but two standbys may be promoted to timelines of the same number. So a row is
written by whoever first meets a timeline that the newest row does not name, and its random id is the marker.

What was learnt in one history says nothing in another: whoever remembers offsets forgets them. What leases said is
uncertain, too, until the longest of them has passed: their last renewals may be missing. And numbers that were given
out may be missing (epochs of lanes, ids of queues): a new history skips further than anything can have been lost.
"""

from __future__ import annotations

import secrets
from typing import Any, Final, NamedTuple
from uuid import UUID, uuid4

from psycopg.rows import TupleRow

from msgbroker.contract.errors import StoreUnavailableError
from msgdb.locks import HISTORY_LOCK_CLASS
from msgdb.postgres.connections import BlockingConnection, Connection, SessionLimits

_EPOCHS_SKIPPED: Final = 1 << 32
_QUEUE_IDS_SKIPPED: Final = 100_000


class History(NamedTuple):
    """One life of the message store, as the marker says that it goes by."""

    history_id: UUID
    epoch_floor: int
    """The number that epochs of lanes are above: none that an earlier history gave out is given out again."""
    age_seconds: float
    """For how long the history has been known, by the database's clock at the moment of reading."""


TIMELINE: Final = """
(SELECT system_identifier || '/' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8) FROM pg_control_system())
"""
"""What names the cluster and its timeline, of a primary, as SQL."""

# The newest marker, by the primary key. A standby has no timeline of its own yet. The first one was there for ever:
# before PostgreSQL 17 nothing could be subtracted from that. One from before the clock was set back is taken for new.
# In binary: as text, a number has as many digits as somebody's settings say.
_READ: Final = f"""
SELECT pg_is_in_recovery(), h.history_id, h.epoch_floor,
       greatest(extract(epoch FROM clock_timestamp() - greatest(h.begun_at, 'epoch')), 0)::float8,
       CASE WHEN pg_is_in_recovery() THEN true ELSE h.timeline = {TIMELINE} END
FROM log_history h ORDER BY h.ordinal DESC LIMIT 1
"""
_ORIGIN: Final = "SELECT history_id FROM log_history ORDER BY ordinal LIMIT 1"
# Those who meet a new timeline together write one row.
_LOCK: Final = f"SELECT pg_advisory_xact_lock({HISTORY_LOCK_CLASS}, 0)"
_BEGIN: Final = f"""
INSERT INTO log_history (history_id, timeline, epoch_floor)
VALUES (%(history_id)s, {TIMELINE}, %(epoch_floor)s)
"""
# A sequence does not log each of its numbers: it, too, may have lost its end.
_SKIP_QUEUE_IDS: Final = f"""
SELECT setval(s.name, nextval(s.name) + {_QUEUE_IDS_SKIPPED})
FROM pg_get_serial_sequence('queue', 'queue_id') AS s (name)
"""


async def find_origin(conn: Connection) -> UUID | None:
    """Return the marker of the store's first history: by it a store is told from others, wherever it lies by now.

    None: no broker has ever met the store.
    """
    row = await (await conn.execute(_ORIGIN)).fetchone()
    return None if row is None else row[0]


async def find_history(conn: Connection) -> History | None:
    """Return the database's history; None where it has a new one that nobody has noted yet.

    Raises StoreUnavailableError on a standby.
    """
    cursor = await conn.execute(_READ, binary=True)
    return _history_of(await cursor.fetchone())[0]


async def get_history(conn: Connection) -> History:
    """Return the database's history. Raises StoreUnavailableError where it has a new one that nobody has noted yet."""
    history = await find_history(conn)
    if history is None:
        raise StoreUnavailableError("no broker has met it since it was promoted: start one first")
    return history


def find_history_blocking(conn: BlockingConnection) -> History | None:
    """Return the database's history as `find_history` does."""
    return _history_of(conn.execute(_READ, binary=True).fetchone())[0]


async def note_history(conn: Connection, limits: SessionLimits | None = None) -> History:
    """Return the database's history; note it where it is new.

    In a transaction of its own, and within *limits* (by default, those of a broker): everybody waits for who is at it.
    """
    async with conn.transaction():
        await conn.execute((limits or SessionLimits()).settings(local=True).encode())
        await conn.execute(_LOCK)
        history, epoch_floor = _history_of(await (await conn.execute(_READ, binary=True)).fetchone())
        if history is not None:
            return history
        # Random as well: a standby that knew nothing of another's promotion counts on from the same floor.
        epoch_floor += _EPOCHS_SKIPPED + secrets.randbits(31)
        history = History(uuid4(), epoch_floor, 0.0)
        marker: dict[str, Any] = {"history_id": history.history_id, "epoch_floor": epoch_floor}
        await conn.execute(_BEGIN, marker)
        await conn.execute(_SKIP_QUEUE_IDS)
        return history


def _history_of(row: TupleRow | None) -> tuple[History | None, int]:
    """Return what _READ found, if it is of this timeline, and its floor of epochs in any case."""
    assert row is not None, "the first marker came with the table"
    is_standby, history_id, epoch_floor, age_seconds, is_current = row
    if is_standby:
        raise StoreUnavailableError("this server is a standby")
    return (History(history_id, epoch_floor, age_seconds) if is_current else None), epoch_floor
