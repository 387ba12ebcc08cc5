"""What operators ask of brokers, as rows: each is for one connection at one broker, and is carried out once or never.

The broker that has the connection carries it out and says so in the same transaction, with the act. A row names the
connection by a name that its broker gives once: a broker that was started anew has another id, and an instance that has
connected anew another name, so nothing is done twice, whoever looks at the row again. A row that nobody took in time is
closed by whoever asked: from then on nobody carries it out.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Final, NamedTuple
from uuid import UUID

from msgdb.acts import said, write_act
from msgdb.postgres.array_rows import array_rows
from msgdb.postgres.connections import Connection

CHANNEL: Final = "msgcenter_requests"
"""A NOTIFY on it is a hint that something is asked of some broker; a look once a second is the truth."""
ASKED_AT_ONCE_MAX: Final = 1_000
_TAKEN_AT_ONCE: Final = 1_000
_FORGOTTEN_AT_ONCE: Final = 1_000


class RequestOutcome(StrEnum):
    """What came of a request. Stored: never renamed."""

    DISCONNECTED = "DISCONNECTED"
    GONE = "GONE"
    """The connection was not there any more."""
    EXPIRED = "EXPIRED"
    """The broker did not take it in time, and will not any more."""


class NewRequest(NamedTuple):
    """A connection that is to be ended."""

    broker_id: UUID
    group_id: int | None
    """The group of the instance whose connection it is; None: it is that of a publisher."""
    attachment: str
    """The connection, as its broker names it."""
    thing: str
    """What it is, for people."""


class Request(NamedTuple):
    """What is asked of a broker."""

    request_id: int
    group_id: int | None
    attachment: str
    thing: str
    actor: str
    reason: str
    is_done: bool
    """It is committed that this was carried out; the broker that did may not have heard that."""


_ASKED: Final = {"broker_id": "uuid", "group_id": "bigint", "attachment": "text", "thing": "text"}
# The rows of an hour ago are of no use: what was done is in the acts. They go as new ones come, so that nobody has to
# come by for them; the table has some rows, and is read from end to end.
_FORGET: Final = """
DELETE FROM broker_request WHERE request_id = ANY(ARRAY(
    SELECT request_id FROM broker_request WHERE expires_at < clock_timestamp() - interval '1 hour'
    ORDER BY request_id LIMIT %(limit)s FOR UPDATE SKIP LOCKED
))
"""
_ASK: Final = f"""
INSERT INTO broker_request (broker_id, group_id, attachment, thing, actor, reason, expires_at)
SELECT a.broker_id, a.group_id, a.attachment, a.thing, %(actor)s, %(reason)s,
       clock_timestamp() + %(seconds)s * interval '1 second'
FROM {array_rows("a", **_ASKED)}
RETURNING request_id, attachment, broker_id
"""
# By the index on the broker. Those that are done come as well: where the commit was not heard of, the connection is
# still to be ended, and of one that is gone nothing is to be done. They come last: of an hour they may be many.
_OF_BROKER: Final = """
SELECT request_id, group_id, attachment, thing, actor, reason, outcome IS NOT NULL FROM broker_request
WHERE broker_id = %(broker_id)s
  AND (outcome = 'DISCONNECTED' OR outcome IS NULL AND expires_at > clock_timestamp())
ORDER BY outcome IS NOT NULL, request_id LIMIT %(limit)s
"""
# By the primary key. Of the broker and of whoever asked the first one wins: the other finds an outcome.
_END: Final = """
UPDATE broker_request SET outcome = %(outcome)s, ended_at = clock_timestamp()
WHERE request_id = %(request_id)s AND outcome IS NULL AND expires_at > clock_timestamp()
RETURNING request_id
"""
_EXPIRE: Final = """
UPDATE broker_request SET outcome = 'EXPIRED', ended_at = clock_timestamp()
WHERE request_id = ANY(%s) AND outcome IS NULL
"""
_OUTCOMES: Final = "SELECT request_id, outcome FROM broker_request WHERE request_id = ANY(%s) AND outcome IS NOT NULL"
_HINT: Final = "SELECT pg_notify(%s, '')"


async def ask(
    conn: Connection, requests: Sequence[NewRequest], *, actor: str, reason: str, seconds: float
) -> dict[int, NewRequest]:
    """Write down what is asked of brokers, who have *seconds* for it; return it by the ids of the requests.

    Raises InvalidSettingError where it is not said who asks, or why.
    """
    assert len(requests) <= ASKED_AT_ONCE_MAX, "whoever asks looks at how many they are"
    await conn.execute(_FORGET, {"limit": _FORGOTTEN_AT_ONCE})
    columns = {name: [getattr(each, name) for each in requests] for name in _ASKED}
    parameters = {**columns, "actor": said("actor", actor), "reason": said("reason", reason), "seconds": seconds}
    rows = await (await conn.execute(_ASK, parameters)).fetchall()
    by_name = {(each.attachment, each.broker_id): each for each in requests}
    return {request_id: by_name[attachment, broker_id] for request_id, attachment, broker_id in rows}


async def hint(conn: Connection) -> None:
    """Let brokers look at once. Not in a transaction that does anything else: it takes a lock over the database."""
    await conn.execute(_HINT, (CHANNEL,))


async def list_requests(conn: Connection, broker_id: UUID) -> list[Request]:
    """Return what is asked of a broker, and what it has said to have done within the last hour."""
    rows = await conn.execute(_OF_BROKER, {"broker_id": broker_id, "limit": _TAKEN_AT_ONCE})
    return [Request._make(row) for row in await rows.fetchall()]


async def note_disconnected(conn: Connection, request: Request, *, namespace: str) -> bool:
    """Write down that a request is carried out, and the act; return whether it was still open.

    *namespace*: of the instance or the publisher, as the broker knows it, whatever version of a command asks.
    """
    if not await _end(conn, request, RequestOutcome.DISCONNECTED):
        return False
    await write_act(
        conn,
        actor=request.actor,
        action="publisher.disconnect" if request.group_id is None else "instance.disconnect",
        namespace=namespace,
        thing=request.thing,
        reason=request.reason,
        detail={"request_id": request.request_id, "attachment": request.attachment},
    )
    return True


async def note_gone(conn: Connection, request: Request) -> bool:
    """Write down that the connection was not there any more; return whether the request was still open."""
    return await _end(conn, request, RequestOutcome.GONE)


async def _end(conn: Connection, request: Request, outcome: RequestOutcome) -> bool:
    parameters = {"request_id": request.request_id, "outcome": outcome}
    return await (await conn.execute(_END, parameters)).fetchone() is not None


async def expire(conn: Connection, request_ids: Sequence[int]) -> None:
    """Close those of the requests that have no outcome: nobody carries them out from now on."""
    await conn.execute(_EXPIRE, (list(request_ids),))


async def find_outcomes(conn: Connection, request_ids: Sequence[int]) -> dict[int, RequestOutcome]:
    """Return what came of those of the requests that have ended."""
    rows = await (await conn.execute(_OUTCOMES, (list(request_ids),))).fetchall()
    return {request_id: RequestOutcome(outcome) for request_id, outcome in rows}
