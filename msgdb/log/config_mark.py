"""The newest version of the configuration that may have been reported active, in one row: the mark.

Whoever reports that a change is active raises it before; a broker that is cut off from confdb reads it, and learns that
it is behind. Versions only go up, as long as the configuration is the same one. Where confdb went back (a backup was
restored), the mark is of what is lost: then a new *era* begins, and versions of different eras are not compared.
"""

from __future__ import annotations

from typing import Final, NamedTuple
from uuid import UUID, uuid4

from msgdb.postgres.connections import Connection


class ConfigMark(NamedTuple):
    """The mark of the configuration: an era, and the newest version that may have been reported active."""

    era: UUID
    version: int


_READ: Final = "SELECT era, version FROM config_mark"

# As durable as what it follows: with a standby, a change that was reported active must not lose its mark in a failover.
_DURABLY: Final = "SELECT set_config('synchronous_commit', 'on', true)"

_RAISE: Final = "UPDATE config_mark SET version = %(version)s WHERE version < %(version)s"
# Unless somebody has moved it meanwhile: then it is not the one that was found to be of what is lost.
_BEGIN_ERA: Final = """
UPDATE config_mark SET era = %(new_era)s, version = %(version)s WHERE era = %(lost_era)s AND version = %(lost_version)s
"""


async def read_mark(conn: Connection) -> ConfigMark:
    """Return the mark of the configuration as it stands."""
    row = await (await conn.execute(_READ)).fetchone()
    assert row is not None, "the first mark came with the table"
    return ConfigMark._make(row)


async def raise_mark(conn: Connection, version: int, lost: ConfigMark | None = None) -> None:
    """Let the mark be *version* at least. In a transaction of the caller's.

    *lost*: the mark, where it was found to be of versions that the configuration has lost: a new era begins.
    """
    await conn.execute(_DURABLY)
    if lost is not None:
        eras = {"new_era": uuid4(), "lost_era": lost.era, "lost_version": lost.version}
        await conn.execute(_BEGIN_ERA, {**eras, "version": version})
    await conn.execute(_RAISE, {"version": version})
