"""Finding messages by their key: of a topic, or of all topics of a namespace."""

from __future__ import annotations

from msgconsole.operations.looking.answers import Answer, PageToken
from msgconsole.operations.looking.in_log import MORE, LogSearch, look_through
from msgconsole.operations.looking.where import Searched, say_what_is_gone
from msgdb.looking.by_key import list_by_key
from msgdb.postgres.connections import Connection


async def look_by_key(conn: Connection, searched: Searched, search: LogSearch) -> Answer:
    """Return a page of the messages with a key; one that very many messages have is looked for in the log."""
    page = await list_by_key(
        conn,
        searched.namespace,
        searched.topics,
        search.wanted,
        from_us=search.from_us,
        before_us=search.before_us,
        after=None if search.after is None else search.after.position,
        newest_first=search.newest_first,
        # One more tells whether there are more.
        limit=search.limit + 1,
    )
    if page.is_too_many:
        return await look_through(conn, searched, search)
    gone = await say_what_is_gone(conn, searched, search.stored_from, search.stored_before)
    found = page.found[: search.limit]
    if len(page.found) == len(found):
        return Answer(found, gone)
    return Answer(found, gone, MORE, PageToken(found[-1].position))
