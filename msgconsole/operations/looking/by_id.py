"""Finding a message by its id, and all there is to be seen of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

from msgconsole.operations.looking.answers import Answer
from msgconsole.operations.looking.where import load_checked, names_of_groups
from msgconsole.operations.stores import Stores
from msgdb import ids
from msgdb.log.copies import COPIES_MAX, find_copies
from msgdb.log.found import FoundMessage
from msgdb.looking.bodies import read_bodies
from msgdb.looking.days_known import DayFate, KnownDay, find_known_day
from msgdb.looking.deaths import Death, list_deaths
from msgdb.postgres.binary_rows import datetime_of
from msgdb.postgres.connections import Connection

_LAST_TIME_US = 253_402_300_799_000_000


@dataclass(frozen=True, slots=True)
class ShownMessage:
    """All that the store knows of a message."""

    message: FoundMessage
    again: list[FoundMessage]
    """As often as it was stored once more: redriven, or replayed."""
    again_is_cut: bool
    """Whether it was more often than that."""
    group_names: Mapping[int, str]
    """Of the groups that it was stored for once more, as far as they are registered."""
    deaths: list[Death]
    """The dead letters of it."""


async def find_by_id(stores: Stores, namespace: str, message_id: UUID) -> Answer:
    """Return a message, as often as it is stored: what its publisher stored first. Raises NamespaceNotFoundError."""
    snapshot = await load_checked(stores, namespace)
    async with stores.messages.looking() as conn:
        found, is_cut = await find_copies(conn, message_id, namespace)
        more = f"it was stored more than {COPIES_MAX} times" if is_cut else None
        gone = () if found else await _why_not(conn, message_id)
        return Answer(found, gone, more, group_names=names_of_groups(snapshot))


async def find_shown(stores: Stores, namespace: str, message_id: UUID) -> tuple[ShownMessage | None, tuple[str, ...]]:
    """Return all that is known of a message, or why it may not be there. Raises NamespaceNotFoundError."""
    snapshot = await load_checked(stores, namespace)
    async with stores.messages.looking() as conn:
        stored, is_cut = await find_copies(conn, message_id, namespace)
        if not stored:
            return None, await _why_not(conn, message_id)
        deaths = await list_deaths(conn, [each.position for each in stored])
    return ShownMessage(stored[0], stored[1:], is_cut, names_of_groups(snapshot), deaths), ()


async def find_body(stores: Stores, namespace: str, message_id: UUID) -> tuple[bytes | None, tuple[str, ...]]:
    """Return a message's body, or why it may not be there. Raises NamespaceNotFoundError."""
    await load_checked(stores, namespace)
    async with stores.messages.looking() as conn:
        # The one that `find_shown` tells of.
        found, _ = await find_copies(conn, message_id, namespace)
        if found:
            bodies = await read_bodies(conn, [found[0].position])
            if found[0].position in bodies:
                return bodies[found[0].position], ()
        return None, await _why_not(conn, message_id)


async def _why_not(conn: Connection, message_id: UUID) -> tuple[str, ...]:
    minted_us = min(ids.time_us_of(message_id.bytes), _LAST_TIME_US)
    return known_said(await find_known_day(conn, datetime_of(minted_us).date()))


def known_said(known: KnownDay) -> tuple[str, ...]:
    """Return why a message may not be there whose id is of that day; nothing: it is in no day that is there."""
    if known.fate is DayFate.ARCHIVED:
        return (
            f"by its id it is of {known.day}, which is not in the log any more; the archive has it: {known.manifest}",
        )
    if known.fate is DayFate.GONE:
        return (f"by its id it is of {known.day}, which is not in the log any more, and in no archive that is known",)
    return ()
