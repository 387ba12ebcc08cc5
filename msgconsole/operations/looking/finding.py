"""Finding messages by what is known of them: by key where there is one, else by looking through the log."""

from __future__ import annotations

from dataclasses import replace

from confdb.routes import Snapshot
from msgconsole.operations.looking.answers import Answer
from msgconsole.operations.looking.by_key import look_by_key
from msgconsole.operations.looking.in_log import LogSearch, look_through
from msgconsole.operations.looking.where import find_searched, load_checked, names_of_groups
from msgconsole.operations.stores import Stores
from msgconsole.operations.times import check_order
from msgdb.postgres.connections import Connection


async def find_messages(stores: Stores, search: LogSearch) -> Answer:
    """Return a page of what is looked for.

    Raises NamespaceNotFoundError, TopicNotFoundError, InvalidSettingError for times between which nothing can lie.
    """
    check_order(search.stored_from, search.stored_before)
    snapshot = await load_checked(stores, search.namespace)
    async with stores.messages.looking() as conn:
        answer = await find_page(conn, snapshot, search)
    return replace(answer, group_names=names_of_groups(snapshot))


async def find_page(conn: Connection, snapshot: Snapshot, search: LogSearch) -> Answer:
    """Return a page of what is looked for, by this configuration."""
    searched = await find_searched(conn, snapshot, search.namespace, search.topic)
    look = look_through if search.wanted.key is None else look_by_key
    return await look(conn, searched, search)
