"""Which days of the log are there, and what is known of one that is not: it is in the archive, or gone."""

from __future__ import annotations

from datetime import date
from enum import StrEnum
from typing import Final, NamedTuple

from msgdb import names
from msgdb.archive.listing import find_day, list_days
from msgdb.archive.records import DayState, DayStatus
from msgdb.log.partitions import list_partitions, today
from msgdb.postgres.connections import Connection

_DAYS_LISTED: Final = 400
_NAMED_MAX: Final = 100


class DayFate(StrEnum):
    """What became of a day of the log."""

    THERE = "THERE"
    """The log has it."""
    ARCHIVED = "ARCHIVED"
    """The log does not have it any more, the archive has."""
    GONE = "GONE"
    """Neither has it."""
    NOT_YET = "NOT_YET"
    """It is to come."""


class KnownDay(NamedTuple):
    """A day of the log, and where it is."""

    day: date
    fate: DayFate
    manifest: str | None
    """Of the run that archived it."""


class Horizon(NamedTuple):
    """How far back the log goes."""

    first_day: date
    """The first day that can be read."""
    archived: list[date]
    """The days before it that the archive has, the newest first: the newest hundred."""


async def find_known_day(conn: Connection, day: date) -> KnownDay:
    """Return where a day of the log is."""
    if day in await _days_there(conn):
        return KnownDay(day, DayFate.THERE, None)
    if day > await today(conn):
        return KnownDay(day, DayFate.NOT_YET, None)
    noted = await find_day(conn, names.MESSAGE, day)
    manifest = None if noted is None else _manifest(noted)
    return KnownDay(day, DayFate.GONE if manifest is None else DayFate.ARCHIVED, manifest)


async def find_horizon(conn: Connection) -> Horizon:
    """Return how far back the log goes, and what the archive has of what was before."""
    there = await _days_there(conn)
    first_day = min(there, default=await today(conn))
    noted = await list_days(conn, names.MESSAGE, before=first_day, limit=_DAYS_LISTED)
    return Horizon(first_day, [day.day for day in noted if _manifest(day) is not None][:_NAMED_MAX])


async def _days_there(conn: Connection) -> set[date]:
    partitions = await list_partitions(conn, names.MESSAGE)
    return {each.day for each in partitions if each.is_attached and not each.is_detach_pending}


def _manifest(noted: DayStatus) -> str | None:
    """Return where a day was archived; a day that is pending has something that its last run does not have."""
    if noted.archived_by is None or noted.state is DayState.WAIVED:
        return None
    return noted.archived_by.manifest
