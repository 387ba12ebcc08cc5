"""Dead letters as operators see them: listed, shown, counted. `msgdb.lanes.checkpoints` and `msgdb.days` make them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final, NamedTuple

from msgbroker.contract.errors import ThingNotFoundError
from msgdb.dead_letters.wanted import BACK, CONDITIONS, EVERY_ONE, LETTERS, WantedDeadLetters
from msgdb.postgres.binary_rows import TO_1970, binary_cursor
from msgdb.postgres.connections import Connection

PAGE_MAX: Final = 1_000
SCANNED_MAX: Final = 50_000
"""So many are looked at for one page: conditions may leave out most of them."""
COUNTED_MAX: Final = 10_000
"""So many are looked at to say how many there are."""


class DeadLetterSummary(NamedTuple):
    """A dead letter without its body."""

    dead_letter_id: int
    group_id: int
    group_name: str
    died_at_us: int
    attempts: int
    reason: str
    last_error: str | None
    queue_id: int
    queue_offset: int
    stored_at_us: int
    message_id: bytes
    namespace: str
    topic: str
    event_code: str
    key: str | None
    ordering_key: str | None
    headers: dict[str, str] | None
    body_bytes: int
    born_at_us: int
    born_host: str | None
    publisher_group: str | None
    stress: bool
    redrives: int
    redriven_at_us: int | None
    """When it was redriven last; None: it is open."""


class DeadLetter(NamedTuple):
    """A dead letter with all of its message."""

    summary: DeadLetterSummary
    body: bytes


class DeadLetterPage(NamedTuple):
    """Some dead letters, the newest first."""

    items: list[DeadLetterSummary]
    next_before_id: int | None
    """Where the next page begins; None: there is none."""
    is_cut: bool
    """Whether looking ended before the page was full: the next one goes on with it."""


class Redrive(NamedTuple):
    """That a dead letter was delivered again."""

    job_id: int
    redriven_at: datetime
    queue_id: int | None
    """Where it was stored once more; None: it was, and where is not known any more."""
    queue_offset: int | None


class DeadLetterCount(NamedTuple):
    """How many dead letters a group has."""

    total: int
    open: int
    """How many of them nobody has redriven."""


# By the primary key of redrive, which has few rows for each.
_REDRIVEN_AT: Final = f"(SELECT max(r.redriven_at) FROM redrive r WHERE r.dead_letter_id = d.id) + {TO_1970}"
_COLUMNS: Final = f"""
d.id, d.group_id, d.group_name, d.died_at + {TO_1970}, d.attempts, d.reason, d.last_error,
d.queue_id, d.queue_offset, d.stored_at + {TO_1970}, d.message_id, d.namespace, d.topic, d.event_code, d.key,
d.ordering_key, d.headers, octet_length(d.body), d.born_at + {TO_1970}, d.born_host, d.publisher_group, d.stress,
d.redrives, {_REDRIVEN_AT}
"""

# It looks at dead letters until the page is full; only where it is not, it asks how far it got, in the same snapshot.
# Without any there is a row all the same, which says that.
_LIST: Final = f"""
WITH page AS MATERIALIZED (
    SELECT {_COLUMNS} FROM {BACK} {LETTERS}
    WHERE {CONDITIONS} ORDER BY near.id DESC LIMIT %(limit)s
), looked_at AS MATERIALIZED (
    SELECT count(*) AS number, min(near.id) AS oldest_id FROM {BACK}
    WHERE (SELECT count(*) FROM page) < %(limit)s
)
SELECT page.*, looked_at.number, looked_at.oldest_id FROM looked_at LEFT JOIN page ON true ORDER BY page.id DESC
"""
_GET: Final = f"SELECT {_COLUMNS}, d.body FROM dead_letter d WHERE d.id = %(id)s"
_REDRIVES: Final = """
SELECT job_id, redriven_at, queue_id, queue_offset FROM redrive WHERE dead_letter_id = %s ORDER BY job_id
"""
# From the index on (group_id, id) alone, beside the primary key of redrive.
_COUNT: Final = """
SELECT d.group_id, count(*), count(*) FILTER (WHERE r.dead_letter_id IS NULL)
FROM dead_letter d LEFT JOIN (SELECT DISTINCT dead_letter_id FROM redrive) r ON r.dead_letter_id = d.id
GROUP BY d.group_id
"""
# From the index on (group_id, id), one of these groups after the other, and each dead letter by the primary key.
_COUNT_OF_GROUPS: Final = f"""
SELECT count(*) FILTER (WHERE {CONDITIONS}), count(*) FROM (
    SELECT one.id FROM unnest(%(group_ids)s::bigint[]) g (group_id)
    CROSS JOIN LATERAL (SELECT id FROM dead_letter WHERE group_id = g.group_id ORDER BY id DESC OFFSET 0) one
    LIMIT %(scanned_max)s
) near {LETTERS}
"""

_NEWEST: Final = 2**63 - 1


async def list_dead_letters(
    conn: Connection, wanted: WantedDeadLetters = EVERY_ONE, *, before_id: int | None = None, limit: int = 100
) -> DeadLetterPage:
    """Return a page of those that are *wanted*, the newest first."""
    limit = min(limit, PAGE_MAX)
    scanned_max = SCANNED_MAX if wanted.leaves_out_some else limit
    parameters = {
        **wanted.parameters(),
        "before_id": _NEWEST if before_id is None else before_id,
        "limit": limit,
        "scanned_max": scanned_max,
    }
    cursor = binary_cursor(conn)
    await cursor.execute(_LIST, parameters, prepare=False)
    rows = await cursor.fetchall()
    items = [DeadLetterSummary._make(row[:-2]) for row in rows if row[0] is not None]
    if len(items) == limit:
        return DeadLetterPage(items, items[-1].dead_letter_id, is_cut=False)
    looked_at, oldest_id = rows[0][-2:]
    is_cut = looked_at == scanned_max
    return DeadLetterPage(items, oldest_id if is_cut else None, is_cut=is_cut)


async def get_dead_letter(conn: Connection, dead_letter_id: int, *, namespace: str | None = None) -> DeadLetter:
    """Return one with its body, of this namespace where it is given. Raises ThingNotFoundError."""
    cursor = binary_cursor(conn)
    await cursor.execute(_GET, {"id": dead_letter_id})
    row = await cursor.fetchone()
    found = None if row is None else DeadLetter(DeadLetterSummary._make(row[:-1]), row[-1])
    if found is None or namespace not in {None, found.summary.namespace}:
        raise ThingNotFoundError("dead letter", str(dead_letter_id), namespace=namespace)
    return found


async def list_redrives(conn: Connection, dead_letter_id: int) -> list[Redrive]:
    """Return how often a dead letter was redriven, and where it lies since."""
    return [Redrive._make(row) for row in await (await conn.execute(_REDRIVES, (dead_letter_id,))).fetchall()]


async def count_of_groups(conn: Connection, wanted: WantedDeadLetters, group_ids: Sequence[int]) -> tuple[int, bool]:
    """Return how many of those that are *wanted* these groups have, and whether that is all: not all are looked at."""
    parameters = {**wanted.parameters(), "group_ids": list(group_ids), "scanned_max": COUNTED_MAX}
    row = await (await conn.execute(_COUNT_OF_GROUPS, parameters, prepare=False)).fetchone()
    assert row is not None, "it is one row"
    return row[0], row[1] < COUNTED_MAX


async def count_dead_letters(conn: Connection) -> dict[int, DeadLetterCount]:
    """Return how many dead letters each group has; groups without any are left out."""
    cursor = await conn.execute(_COUNT)
    return {group_id: DeadLetterCount(total, still_open) for group_id, total, still_open in await cursor.fetchall()}
