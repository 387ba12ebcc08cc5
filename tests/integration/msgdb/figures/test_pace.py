"""By how much groups came further behind between two minutes, and by how much of that which matches."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from msgdb.figures.pace import BacklogChange, list_changes
from msgdb.postgres.connections import Connection

TOPIC_ID, GROUP_ID = 5, 7
LAST = datetime.now(UTC).replace(second=0, microsecond=0)
FIRST = LAST - timedelta(minutes=4)
_ROW = """
INSERT INTO backlog_minute (group_id, queue_id, minute, topic_id, behind, behind_max, redeliveries, matching)
VALUES (%s, %s, %s, %s, %s, %s, 0, %s)
"""


async def found(
    conn: Connection, minute: datetime, *rows: tuple[int, int, int | None], group_id: int = GROUP_ID
) -> None:
    """Write a look: at which queue, how far behind, how much of it matches."""
    for queue_id, behind, matching in rows:
        await conn.execute(_ROW, (group_id, queue_id, minute, TOPIC_ID, behind, behind, matching))


async def test_of_each_group_what_changed_is_added_up(conn: Connection) -> None:
    # In between, and of all lanes together.
    await found(conn, FIRST + timedelta(minutes=1), (1, 9_999, 9_999))
    for minute in (FIRST, LAST):
        await found(conn, minute, (0, 5_000, None), group_id=0)
    await found(conn, FIRST, (1, 400, 400), (2, 6_000, 600), (3, 50, 5))
    await found(conn, LAST, (1, 300, 300), (2, 1_000, 200), (4, 20, 4))
    await found(conn, LAST, (1, 100, 10), group_id=8)

    # One queue goes down by what matches, the second by a tenth of what it goes down by.
    assert await list_changes(conn, FIRST, LAST) == [
        BacklogChange(GROUP_ID, TOPIC_ID, -5_130, -100.0 - 500.0 - 5.0 + 4.0),
        BacklogChange(8, TOPIC_ID, 100, 10.0),
    ]


@pytest.mark.parametrize(
    "first, last, matching",
    [
        ((400, None), (300, 30), None),
        ((400, 40), (300, None), None),
        ((400, None), (400, None), 0),
        # A look of an earlier version wrote how far behind it was by then, and nothing of what matches.
        ((400, 800), (300, 30), -100),
        ((0, 0), (0, 0), 0),
        ((0, None), (100, 10), 10),
        ((100, 10), (0, None), -10),
    ],
)
async def test_where_it_is_not_known_what_matches_it_is_not_known_of_the_change(
    conn: Connection, first: tuple[int, int | None], last: tuple[int, int | None], matching: float | None
) -> None:
    await found(conn, FIRST, (1, *first), (2, 10, 10))
    await found(conn, LAST, (1, *last), (2, 10, 10))

    (change,) = await list_changes(conn, FIRST, LAST)

    assert change.behind == last[0] - first[0]
    assert change.matching == (None if matching is None else pytest.approx(matching))
