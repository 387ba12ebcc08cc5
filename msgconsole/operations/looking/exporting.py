"""Taking messages out of the store, with their bodies: page by page, the oldest first."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from msgconsole.operations.looking.answers import PAGE_MAX, PageToken
from msgconsole.operations.looking.finding import find_page
from msgconsole.operations.looking.in_log import LogSearch
from msgconsole.operations.looking.where import load_checked
from msgconsole.operations.stores import Stores
from msgconsole.operations.times import check_order
from msgdb.log.found import FoundMessage
from msgdb.looking.bodies import read_bodies, read_together
from msgdb.postgres.connections import Connection

# What comes while it is exported is not part of it, or it might never end.
_NOW: Final = "SELECT clock_timestamp()"


@dataclass(frozen=True, slots=True)
class Exported:
    """Some messages, with their bodies."""

    messages: list[tuple[FoundMessage, bytes]]
    lost: int
    """How many went with their day before their body was read."""
    gone: tuple[str, ...]
    """What is not in the store any more, of what was asked for."""
    after: PageToken | None
    """Where it goes on behind these; None: that was all."""


async def export_messages(stores: Stores, search: LogSearch, limit: int | None = None) -> AsyncIterator[Exported]:
    """Give the messages that are looked for, the oldest first, *limit* at most; with bounded memory, however many.

    Raises NamespaceNotFoundError, TopicNotFoundError, InvalidSettingError for times between which nothing can lie.
    """
    check_order(search.stored_from, search.stored_before)
    snapshot = await load_checked(stores, search.namespace)
    left = limit
    while left is None or left > 0:
        async with stores.messages.looking() as conn:
            if search.stored_before is None:
                search = replace(search, stored_before=await _now(conn))
            count = PAGE_MAX if left is None else min(PAGE_MAX, left)
            search = replace(search, newest_first=False, limit=count)
            answer = await find_page(conn, snapshot, search)
        # Nothing is held while whoever takes them is slow: a transaction would keep days from being dropped.
        for together in read_together(answer.found):
            async with stores.messages.looking() as conn:
                bodies = await read_bodies(conn, [message.position for message in together])
            found = [(each, bodies[each.position]) for each in together if each.position in bodies]
            lost = len(together) - len(found)
            yield Exported(found, lost, answer.gone, PageToken(together[-1].position))
        yield Exported([], 0, answer.gone, answer.after)
        if answer.after is None:
            return
        left = None if left is None else left - len(answer.found)
        search = replace(search, after=answer.after)


async def _now(conn: Connection) -> datetime:
    row = await (await conn.execute(_NOW)).fetchone()
    assert row is not None, "it is one row"
    now: datetime = row[0]
    return now
