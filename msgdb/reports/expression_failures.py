"""How often a subscription's expression failed on a message, and why the last time. Brokers add to it, operators read.

Counts are of evaluations, not of messages: what a lane reads again, because it moved to another broker, counts again.
A subscription's id is never used again, so what is left of one that was deleted is nobody else's.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final, NamedTuple

from msgdb.postgres.array_rows import array_rows
from msgdb.postgres.connections import Connection

KEPT_DAYS: Final = 30
"""How long the last failure of a subscription is remembered."""


class ExpressionFailure(NamedTuple):
    """Failures of one subscription, to be added to those that are stored."""

    group_id: int
    subscription_id: int
    failures: int
    last_header: str | None
    """The header that was missing the last time, if that was it."""
    last_error: str


class ExpressionFailureRow(NamedTuple):
    """Failures of one subscription, as they are stored."""

    group_id: int
    subscription_id: int
    failures: int
    """How often the expression failed since `first_failed_at`."""
    last_header: str | None
    last_error: str
    first_failed_at: datetime
    last_failed_at: datetime
    """When a broker wrote the last failure: up to ten seconds after it."""


_ADDED: Final = {
    "group_id": "bigint",
    "subscription_id": "bigint",
    "failures": "bigint",
    "last_header": "text",
    "last_error": "text",
}

# By the primary key, in its order: two brokers that add to the same rows wait for each other, and never in a circle.
# No updated column is in an index, so the new row stays on its page.
_WRITE: Final = f"""
INSERT INTO expression_failure AS e (group_id, subscription_id, failures, last_header, last_error)
SELECT a.group_id, a.subscription_id, a.failures, a.last_header, a.last_error FROM {array_rows("a", **_ADDED)}
ORDER BY a.group_id, a.subscription_id
ON CONFLICT (group_id, subscription_id)
DO UPDATE SET failures = e.failures + excluded.failures, last_header = excluded.last_header,
              last_error = excluded.last_error, last_failed_at = clock_timestamp()
"""

_LIST: Final = """
SELECT group_id, subscription_id, failures, last_header, last_error, first_failed_at, last_failed_at
FROM expression_failure
ORDER BY group_id, subscription_id
"""
# No group is named: a subscription has one row. The table is small, and this is asked by people.
_FIND: Final = """
SELECT group_id, subscription_id, failures, last_header, last_error, first_failed_at, last_failed_at
FROM expression_failure
WHERE subscription_id = %s
"""

# The table has a row for each subscription that ever fails: reading it from end to end once a minute costs nothing.
_DELETE_OLD: Final = """
DELETE FROM expression_failure WHERE last_failed_at < clock_timestamp() - %(kept_days)s * interval '1 day'
"""


async def write_expression_failures(conn: Connection, failures: Sequence[ExpressionFailure]) -> None:
    """Add *failures*, each subscription once, to those that are stored."""
    await conn.execute(_WRITE, {name: [getattr(failure, name) for failure in failures] for name in _ADDED})


async def list_expression_failures(conn: Connection) -> list[ExpressionFailureRow]:
    """Return the failures of all subscriptions that have failed lately."""
    cursor = await conn.execute(_LIST)
    return [ExpressionFailureRow._make(row) for row in await cursor.fetchall()]


async def find_expression_failure(conn: Connection, subscription_id: int) -> ExpressionFailureRow | None:
    """Return the failures of a subscription, or None: it has not failed lately."""
    row = await (await conn.execute(_FIND, (subscription_id,))).fetchone()
    return None if row is None else ExpressionFailureRow._make(row)


async def forget_expression_failures(conn: Connection) -> None:
    """Delete the failures of subscriptions that have not failed for weeks, or are long gone."""
    await conn.execute(_DELETE_OLD, {"kept_days": KEPT_DAYS})
