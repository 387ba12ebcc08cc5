"""Dead letters: paged, counted, purged."""

from __future__ import annotations

import pytest

from msgbroker.contract.errors import ThingNotFoundError
from msgdb.lanes.dead_letters import count_dead_letters, get_dead_letter, list_dead_letters, purge_dead_letters
from msgdb.lanes.leases import claim
from msgdb.lanes.records import DeadLetterMove, LaneCheckpoint, LaneToClaim
from msgdb.postgres.connections import Connection
from tests.support.rows import GROUP, OWNER, make_queue, persist, put_messages

OTHER_GROUP = GROUP + 1


@pytest.fixture
async def conn_with_dead_letters(conn: Connection) -> Connection:
    """Five of one group, two of another."""
    queue_id = await make_queue(conn)
    rows = await put_messages(conn, queue_id, range(5))
    for group_id, count in ((GROUP, 5), (OTHER_GROUP, 2)):
        (lane,) = await claim(conn, OWNER, [LaneToClaim(group_id, "", queue_id, 0)], 60)
        moves = [DeadLetterMove(r.queue_offset, r.stored_at_us, 16, "ATTEMPTS_EXHAUSTED", "", False) for r in rows]
        await persist(conn, OWNER, [LaneCheckpoint(lane.key, 1, 5, [], dead_letters=moves[:count])], {})
    return conn


async def test_pages_go_from_the_newest_to_the_oldest(conn_with_dead_letters: Connection) -> None:
    conn = conn_with_dead_letters
    first = await list_dead_letters(conn, GROUP, limit=3)
    second = await list_dead_letters(conn, GROUP, before_id=first[-1].dead_letter_id, limit=3)

    ids = [row.dead_letter_id for row in (*first, *second)]
    assert [len(first), len(second)] == [3, 2]
    assert ids == sorted(ids, reverse=True)
    assert {row.group_id for row in (*first, *second)} == {GROUP}


async def test_without_a_group_all_are_listed(conn_with_dead_letters: Connection) -> None:
    assert len(await list_dead_letters(conn_with_dead_letters)) == 7


async def test_they_are_counted_by_group(conn_with_dead_letters: Connection) -> None:
    assert await count_dead_letters(conn_with_dead_letters) == {GROUP: 5, OTHER_GROUP: 2}


async def test_what_is_purged_is_gone(conn_with_dead_letters: Connection) -> None:
    conn = conn_with_dead_letters
    ids = [row.dead_letter_id for row in await list_dead_letters(conn, OTHER_GROUP)]

    assert await purge_dead_letters(conn, [*ids, 10**9]) == 2
    assert await count_dead_letters(conn) == {GROUP: 5}
    with pytest.raises(ThingNotFoundError):
        await get_dead_letter(conn, ids[0])
