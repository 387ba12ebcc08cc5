"""The mark of the newest configuration that may have been reported active: it only goes up, within an era."""

from __future__ import annotations

from msgdb.log.config_mark import ConfigMark, raise_mark, read_mark
from msgdb.postgres.connections import Connection


async def marked(conn: Connection, version: int, lost: ConfigMark | None = None) -> ConfigMark:
    async with conn.transaction():
        await raise_mark(conn, version, lost)
    return await read_mark(conn)


async def test_it_goes_up_and_never_down(conn: Connection) -> None:
    first = await read_mark(conn)

    assert await marked(conn, 7) == (first.era, 7)
    assert await marked(conn, 5) == (first.era, 7)


async def test_where_it_is_of_what_is_lost_a_new_era_begins(conn: Connection) -> None:
    lost = await marked(conn, 7)

    found = await marked(conn, 3, lost)

    assert found.era != lost.era
    assert found.version == 3


async def test_of_two_who_find_it_lost_one_begins_the_new_era(conn: Connection) -> None:
    lost = await marked(conn, 7)
    begun = await marked(conn, 3, lost)

    assert await marked(conn, 4, lost) == (begun.era, 4)
