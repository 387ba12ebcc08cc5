"""Acts: who did what to messages, and why. Written in the transaction of the act itself, and kept for a year."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple

from psycopg.types.json import Jsonb

from msgbroker.contract import limits
from msgbroker.contract.errors import InvalidSettingError, ThingNotFoundError
from msgdb.postgres.connections import Connection

PAGE_MAX: Final = 1_000
KEPT_DAYS: Final = 366
_FORGOTTEN_AT_ONCE: Final = 1_000

_WRITE: Final = """
INSERT INTO act (actor, action, thing, reason, detail)
VALUES (%(actor)s, %(action)s, %(thing)s, %(reason)s, %(detail)s)
RETURNING act_id
"""

# By the primary key, backwards. Acts are typed by people: a year of them is read in no time, whatever is left out.
_LIST: Final = """
SELECT act_id, at, actor, action, thing, reason, detail FROM act
WHERE act_id < %(before_id)s AND starts_with(action, %(action)s)
  AND (%(actor)s::text IS NULL OR position(%(actor)s IN actor) > 0)
  AND (%(since)s::timestamptz IS NULL OR at >= %(since)s) AND (%(until)s::timestamptz IS NULL OR at < %(until)s)
ORDER BY act_id DESC LIMIT %(limit)s
"""
_GET: Final = "SELECT act_id, at, actor, action, thing, reason, detail FROM act WHERE act_id = %s"
_NEWEST: Final = 2**63 - 1

# By the index on the time, so many at once: whoever calls has other things to do as well.
_FORGET: Final = """
DELETE FROM act WHERE act_id = ANY(ARRAY(
    SELECT act_id FROM act WHERE at < clock_timestamp() - %(kept_days)s * interval '24 hours'
    ORDER BY at LIMIT %(limit)s
))
"""


class Act(NamedTuple):
    """Something that somebody did to messages."""

    act_id: int
    at: datetime
    actor: str
    """Who did it, as far as is known: a user, a host."""
    action: str
    """What, as in `archive.waive`."""
    thing: str
    """To what, for people."""
    reason: str
    detail: dict[str, Any] | None


async def write_act(
    conn: Connection,
    *,
    actor: str,
    action: str,
    thing: str,
    reason: str,
    detail: Mapping[str, Any] | None = None,
) -> int:
    """Write down an act, in the transaction that carries it out, and return its id.

    Raises InvalidSettingError where it is not said who does it, or why.
    """
    parameters = {
        "actor": said("actor", actor),
        "action": action,
        "thing": thing,
        "reason": said("reason", reason),
        "detail": None if detail is None else Jsonb(dict(detail)),
    }
    row = await (await conn.execute(_WRITE, parameters)).fetchone()
    assert row is not None, "one row is returned"
    act_id: int = row[0]
    return act_id


async def list_acts(
    conn: Connection,
    *,
    action: str = "",
    actor: str = "",
    since: datetime | None = None,
    until: datetime | None = None,
    before_id: int | None = None,
    limit: int = 100,
) -> list[Act]:
    """Return a page of acts, the newest first; the last one's id begins the next page.

    *action*: only those whose action begins like that, `archive.` for example. *actor*: of whose actor that is part.
    """
    parameters = {
        "before_id": _NEWEST if before_id is None else before_id,
        "action": action,
        "actor": actor or None,
        "since": since,
        "until": until,
        "limit": min(limit, PAGE_MAX),
    }
    return [Act._make(row) for row in await (await conn.execute(_LIST, parameters)).fetchall()]


async def get_act(conn: Connection, act_id: int) -> Act:
    """Return an act with all that is known of it. Raises ThingNotFoundError."""
    row = await (await conn.execute(_GET, (act_id,))).fetchone()
    if row is None:
        raise ThingNotFoundError("act", str(act_id))
    return Act._make(row)


async def forget_acts(conn: Connection) -> int:
    """Delete the oldest of the acts that are more than a year old, and return how many: a thousand at most."""
    cursor = await conn.execute(_FORGET, {"kept_days": KEPT_DAYS, "limit": _FORGOTTEN_AT_ONCE})
    return cursor.rowcount


def said(name: str, text: str) -> str:
    """Return who acts, or why, as it is stored. Raises InvalidSettingError where it is not said, or too long."""
    if not text.strip():
        raise InvalidSettingError(name, "must be said")
    if len(text) > limits.REASON_CHARS_MAX:
        raise InvalidSettingError(name, f"must have {limits.REASON_CHARS_MAX} characters at most")
    if "\0" in text:
        raise InvalidSettingError(name, "must not contain NUL")
    return text.strip()
