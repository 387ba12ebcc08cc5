"""Which of PostgreSQL's error codes (SQLSTATEs) are an outage: it is out of reach for now, and may answer later.

Every other code is about what was asked, or about the data it was asked of (an unreadable block, a file that is gone, a
limit of the server): that does not pass by waiting, and whoever asked for many things finds out which of them it is.

confdb and msgdb do not see each other. Both decide by this list.
"""

from __future__ import annotations

from typing import Final

_CLASSES: Final = (
    "08",  # the connection is lost, or was refused
    "40",  # rolled back: a deadlock, say
    "53",  # out of disk, memory or connections
    "57",  # shutting down, starting up, cancelled
)
_CODES: Final = frozenset(
    {
        "25006",  # read only: the old primary after a promotion, or a way that still leads to a standby
        "25P03",  # idle in a transaction for too long: this process was frozen, and the server has ended it
        "25P04",  # in a transaction for too long: the same
        "55P03",  # somebody else holds a lock
    }
)


def is_outage(sqlstate: str | None, *, is_operational: bool) -> bool:
    """Return whether an error passes by itself: by its code, or by its kind where it is not from the server.

    *is_operational*: the driver raised it as one; without a code there was no connection then, or it is lost.
    """
    if sqlstate is None:
        return is_operational
    return sqlstate in _CODES or sqlstate.startswith(_CLASSES)
