"""Alarms: what is set aside or at its limit, since when, and by which broker. Brokers write them, everybody reads them.

A broker writes all that stands at once, and so clears what stands no longer: nothing is lost between two writes that
failed. What a broker that is gone has left behind is cleared by the maintenance loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from typing import Final, NamedTuple
from uuid import UUID

from msgbroker.contract.errors import ThingNotFoundError
from msgdb.postgres.array_rows import array_rows
from msgdb.postgres.connections import Connection

PAGE_MAX: Final = 1_000
SILENT_SECONDS: Final = 60.0
"""An alarm that its broker has not repeated for so long may not stand any more: the broker is gone, or cut off."""
FORGOTTEN_SECONDS: Final = 300.0
KEPT_DAYS: Final = 30
"""How many days cleared alarms are kept."""

STORE_ITSELF: Final = UUID(int=0)
"""The broker's id of an alarm that is about the store, whichever broker looks after it."""


class AlarmKind(StrEnum):
    """What is wrong. Stored and shown: never renamed."""

    REDELIVERIES_FULL = "REDELIVERIES_FULL"
    """A lane has as many messages waiting for another attempt as it may: it reads no further until some are settled."""
    LANE_SET_ASIDE = "LANE_SET_ASIDE"
    """Work on a lane failed for a reason nobody foresaw: it waits, and is tried again."""
    TOPIC_SET_ASIDE = "TOPIC_SET_ASIDE"
    """A topic's messages cannot be stored for a reason nobody foresaw; the other topics' are."""
    PART_SET_ASIDE = "PART_SET_ASIDE"
    """A part of the broker failed that storing and delivering can do without for a while: it is started again."""
    PARTITION_SET_ASIDE = "PARTITION_SET_ASIDE"
    """A day cannot be made, emptied or dropped; the other days are."""
    DAY_NOT_ARCHIVED = "DAY_NOT_ARCHIVED"
    """A day is due to be dropped, and kept because its archive is required and not there."""
    NOT_UNDERSTOOD = "NOT_UNDERSTOOD"
    """Something of the configuration is from a newer version: the broker does not serve it."""
    CONFIG_OUTDATED = "CONFIG_OUTDATED"
    """A broker is cut off from confdb, and a change that it has not read may be active: it serves nobody."""
    EXPRESSION_SLOW = "EXPRESSION_SLOW"
    """An expression takes so long on this topic's messages that its group gets them slower."""
    STREAMS_FULL = "STREAMS_FULL"
    """A broker has as many streams of a kind, or calls, as it takes: further ones are sent to other brokers."""
    OUTGOING_FULL = "OUTGOING_FULL"
    """So much waits for clients that those who do not read are ended to make room."""
    COMMIT_WAITS = "COMMIT_WAITS"
    """A transaction of the committer takes far too long: a synchronous standby is away, or the disk is slow."""


class Alarm(NamedTuple):
    """Something that is wrong, as a broker says it."""

    kind: AlarmKind
    thing: str
    """What it is about, for people; with the kind it names the alarm."""
    detail: str
    group_id: int | None = None
    """The group that it concerns, as far as it concerns no other; so with topic_id and queue_id."""
    topic_id: int | None = None
    queue_id: int | None = None


class AlarmRow(NamedTuple):
    """An alarm, as msgdb holds it."""

    alarm_id: int
    broker_id: UUID
    broker: str
    """The address of the broker that says it; empty where the alarm is about the store itself."""
    kind: str
    thing: str
    detail: str
    group_id: int | None
    topic_id: int | None
    queue_id: int | None
    raised_at: datetime
    seen_at: datetime
    """When its broker last said that it stands."""
    cleared_at: datetime | None
    is_silent: bool
    """Whether it was neither cleared nor repeated: its broker is gone, or cut off."""


_STANDING: Final = {
    "kind": "text",
    "thing": "text",
    "detail": "text",
    "group_id": "bigint",
    "topic_id": "bigint",
    "queue_id": "bigint",
}

# By the unique index on what stands. Written twice a minute by each broker that has an alarm, and by no other.
_WRITE: Final = f"""
WITH standing AS (
    SELECT * FROM {array_rows("standing", **_STANDING)}
), written AS (
    INSERT INTO alarm AS a (broker_id, broker, kind, thing, detail, group_id, topic_id, queue_id)
    SELECT %(broker_id)s, %(broker)s, s.kind, s.thing, s.detail, s.group_id, s.topic_id, s.queue_id FROM standing s
    ORDER BY s.kind, s.thing
    ON CONFLICT (broker_id, kind, thing) WHERE cleared_at IS NULL
    DO UPDATE SET seen_at = clock_timestamp(), detail = excluded.detail
)
UPDATE alarm a SET cleared_at = clock_timestamp()
WHERE a.broker_id = %(broker_id)s AND a.cleared_at IS NULL
  AND NOT EXISTS (SELECT 1 FROM standing s WHERE s.kind = a.kind AND s.thing = a.thing)
"""

_COLUMNS: Final = """
alarm_id, broker_id, broker, kind, thing, detail, group_id, topic_id, queue_id, raised_at, seen_at, cleared_at,
cleared_at IS NULL AND seen_at < clock_timestamp() - %(silent_seconds)s * interval '1 second'
"""
# From the small index of what stands.
_LIST_STANDING: Final = f"SELECT {_COLUMNS} FROM alarm WHERE cleared_at IS NULL ORDER BY alarm_id DESC LIMIT %(limit)s"
# By the primary key, backwards.
_LIST: Final = f"SELECT {_COLUMNS} FROM alarm ORDER BY alarm_id DESC LIMIT %(limit)s"
_GET: Final = f"SELECT {_COLUMNS} FROM alarm WHERE alarm_id = %(alarm_id)s"

# Nobody repeats them: when they were cleared is not known, only when they stood for certain.
_CLEAR_FORGOTTEN: Final = """
UPDATE alarm SET cleared_at = seen_at
WHERE cleared_at IS NULL AND seen_at < clock_timestamp() - %(forgotten_seconds)s * interval '1 second'
"""
_DELETE_OLD: Final = "DELETE FROM alarm WHERE cleared_at < clock_timestamp() - %(kept_days)s * interval '1 day'"


async def write_alarms(conn: Connection, broker_id: UUID, broker: str, standing: Sequence[Alarm]) -> None:
    """Write what stands at a broker: raise what is new, repeat what was there, clear the rest."""
    columns = {name: [getattr(alarm, name) for alarm in standing] for name in _STANDING}
    await conn.execute(_WRITE, {**columns, "broker_id": broker_id, "broker": broker})


async def list_alarms(conn: Connection, *, include_cleared: bool = False, limit: int = PAGE_MAX) -> list[AlarmRow]:
    """Return the alarms that stand, the newest first; with *include_cleared* those of the last weeks, too."""
    statement = _LIST if include_cleared else _LIST_STANDING
    parameters = {"limit": min(limit, PAGE_MAX), "silent_seconds": SILENT_SECONDS}
    cursor = await conn.execute(statement, parameters)
    return [AlarmRow._make(row) for row in await cursor.fetchall()]


async def get_alarm(conn: Connection, alarm_id: int) -> AlarmRow:
    """Return an alarm. Raises ThingNotFoundError."""
    cursor = await conn.execute(_GET, {"alarm_id": alarm_id, "silent_seconds": SILENT_SECONDS})
    row = await cursor.fetchone()
    if row is None:
        raise ThingNotFoundError("alarm", str(alarm_id))
    return AlarmRow._make(row)


async def forget_alarms(conn: Connection) -> None:
    """Clear what brokers that are gone have left behind, and delete what was cleared weeks ago."""
    await conn.execute(_CLEAR_FORGOTTEN, {"forgotten_seconds": FORGOTTEN_SECONDS})
    await conn.execute(_DELETE_OLD, {"kept_days": KEPT_DAYS})
