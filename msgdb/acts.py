"""Acts: who did what to messages, and why. Written in the transaction of the act itself, and kept for a year.

An act is of one namespace, like what it was done to, or of the center as a whole. Who may see only one namespace asks
for that one by its name: no function gives away an act of another.
"""

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
INSERT INTO act (actor, action, namespace, thing, reason, detail)
VALUES (%(actor)s, %(action)s, %(namespace)s, %(thing)s, %(reason)s, %(detail)s)
RETURNING act_id
"""

# By the primary key, backwards. Acts are typed by people: a year of them is read in no time, whatever is left out.
_COLUMNS: Final = "act_id, at, actor, action, namespace, thing, reason, detail"
_WANTED: Final = """
act_id < %(before_id)s AND starts_with(action, %(action)s)
  AND (%(actor)s::text IS NULL OR position(%(actor)s IN actor) > 0)
  AND (%(since)s::timestamptz IS NULL OR at >= %(since)s) AND (%(until)s::timestamptz IS NULL OR at < %(until)s)
"""
_LIST: Final = f"SELECT {_COLUMNS} FROM act WHERE {_WANTED} ORDER BY act_id DESC LIMIT %(limit)s"
# By the index on the namespace, backwards: what others did is not read, however much that is.
_LIST_OF_NAMESPACE: Final = f"""
SELECT {_COLUMNS} FROM act WHERE namespace = %(namespace)s AND {_WANTED} ORDER BY act_id DESC LIMIT %(limit)s
"""
# By the primary key.
_GET: Final = f"""
SELECT {_COLUMNS} FROM act
WHERE act_id = %(act_id)s AND (%(namespace)s::text IS NULL OR namespace = %(namespace)s)
"""
_NEWEST: Final = 2**63 - 1
_OF_THE_CENTER: Final = ("archive.", "lanes.")
"""Acts whose actions begin like this concern the center as a whole; all others are of one namespace."""

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
    namespace: str | None
    """Of which namespace; None: it concerns the center, or nobody noted it."""
    thing: str
    """To what, for people."""
    reason: str
    detail: dict[str, Any] | None

    @property
    def is_of_center(self) -> bool:
        """Whether it concerns the center as a whole."""
        return self.action.startswith(_OF_THE_CENTER)

    @property
    def is_namespace_noted(self) -> bool:
        """Whether it is known whom it concerns: versions of before did not note that."""
        return self.namespace is not None or self.is_of_center


async def write_act(
    conn: Connection,
    *,
    actor: str,
    action: str,
    namespace: str | None,
    thing: str,
    reason: str,
    detail: Mapping[str, Any] | None = None,
) -> int:
    """Write down an act, in the transaction that carries it out, and return its id.

    *namespace*: None for what concerns the center as a whole. Raises InvalidSettingError where it is not said who does
    it, or why.
    """
    assert (namespace is None) == action.startswith(_OF_THE_CENTER), "an act says which namespace it is of"
    parameters = {
        "actor": said("actor", actor),
        "action": action,
        "namespace": namespace,
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
    namespace: str | None = None,
    action: str = "",
    actor: str = "",
    since: datetime | None = None,
    until: datetime | None = None,
    before_id: int | None = None,
    limit: int = 100,
) -> list[Act]:
    """Return a page of acts, the newest first; the last one's id begins the next page.

    *namespace*: only those of this one; None: all, also what concerns the center. *action*: only those whose action
    begins like that, `archive.` for example. *actor*: of whose actor that is part.
    """
    statement = _LIST if namespace is None else _LIST_OF_NAMESPACE
    parameters = {
        "namespace": namespace,
        "before_id": _NEWEST if before_id is None else before_id,
        "action": action,
        "actor": actor or None,
        "since": since,
        "until": until,
        "limit": min(limit, PAGE_MAX),
    }
    return [Act._make(row) for row in await (await conn.execute(statement, parameters)).fetchall()]


async def get_act(conn: Connection, act_id: int, *, namespace: str | None = None) -> Act:
    """Return an act with all that is known of it, of this namespace where it is given. Raises ThingNotFoundError."""
    row = await (await conn.execute(_GET, {"act_id": act_id, "namespace": namespace})).fetchone()
    if row is None:
        raise ThingNotFoundError("act", str(act_id), namespace=namespace)
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
