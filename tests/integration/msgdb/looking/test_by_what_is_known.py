"""Messages by their key, and what is known of what is not there."""

from __future__ import annotations

from datetime import datetime, timedelta
from uuid import UUID

import pytest

from msgdb import ids
from msgdb.log.found import Position
from msgdb.looking.bodies import read_bodies, read_together
from msgdb.looking.by_key import COMPARED_MAX, list_by_key
from msgdb.looking.days_known import DayFate, Horizon, find_horizon, find_known_day
from msgdb.looking.stretches import WantedMessages
from msgdb.postgres.connections import Connection
from tests.support.archive_runs import archive_day, days_ago
from tests.support.message_rows import NOON, StoredMessage, drop_day, put_rows, run_of

_DAY = timedelta(days=1)


def minted(at: datetime) -> UUID:
    return UUID(int=ids.mint_run(round(at.timestamp() * 1_000_000)))


async def test_bodies_are_read_by_their_places_so_many_at_once(conn: Connection, database_url: str) -> None:
    rows = [StoredMessage(queue_offset=at, key="k", body=b"x" * at) for at in range(6)]
    put_rows(database_url, rows)
    page = await list_by_key(conn, "default", ["TP_TRADE"], WantedMessages(key="k"))

    together = list(read_together(page.found, bytes_max=5))
    assert [[message.queue_offset for message in each] for each in together] == [[0, 1, 2], [3], [4], [5]]
    bodies = await read_bodies(conn, [message.position for message in page.found])
    assert [len(bodies[message.position]) for message in page.found] == [0, 1, 2, 3, 4, 5]
    gone = page.found[0].position._replace(queue_offset=99)
    assert await read_bodies(conn, [gone]) == {}


@pytest.mark.parametrize("newest_first", [True, False])
async def test_pages_of_a_key_go_over_days_and_queues_in_the_order_of_time(
    conn: Connection, database_url: str, newest_first: bool
) -> None:
    rows = [
        StoredMessage(queue_id=queue_id, queue_offset=at, key="k", stored_at=NOON - (at % 3) * _DAY)
        for queue_id in (1, 2)
        for at in range(9)
    ]
    others = [
        StoredMessage(queue_id=3, queue_offset=0, key="k", topic="TP_OTHER"),
        StoredMessage(queue_id=4, queue_offset=0, key="k", namespace="other"),
        StoredMessage(queue_id=5, queue_offset=0, key="k", event_code="EC_OTHER"),
        StoredMessage(queue_id=6, queue_offset=0, key="k2"),
    ]
    put_rows(database_url, [*rows, *others])
    wanted = WantedMessages(key="k", event_code="EC_PAID")

    found: list[Position] = []
    while True:
        page = await list_by_key(
            conn,
            "default",
            ["TP_TRADE"],
            wanted,
            after=found[-1] if found else None,
            newest_first=newest_first,
            limit=5,
        )
        found += [message.position for message in page.found]
        if not page.found:
            break

    expected = (Position(round(row.stored_at.timestamp() * 1e6), row.queue_id, row.queue_offset) for row in rows)
    assert found == sorted(expected, reverse=newest_first)
    both = await list_by_key(conn, "default", ["TP_OTHER", "TP_TRADE"], WantedMessages(key="k"), limit=100)
    assert len(both.found) == 20
    today = round(NOON.replace(hour=0).timestamp() * 1e6)
    assert len((await list_by_key(conn, "default", ["TP_TRADE"], wanted, from_us=today)).found) == 6
    assert len((await list_by_key(conn, "default", ["TP_TRADE"], wanted, before_us=today)).found) == 12


async def test_a_key_that_very_many_messages_have_is_told_also_where_they_are_another_tenants(
    conn: Connection, database_url: str
) -> None:
    put_rows(database_url, [StoredMessage(queue_offset=0, key="k")])
    await conn.execute(
        "INSERT INTO message (queue_id, queue_offset, stored_at, message_id, namespace, topic, event_code, key, body,"
        " born_at, stress) SELECT 2, o, %s, gen_random_uuid(), 'other', 'TP_TRADE', 'EC', 'k', '', now(), false"
        " FROM generate_series(1, %s) o",
        (NOON, COMPARED_MAX + 1),
    )

    assert (await list_by_key(conn, "default", ["TP_TRADE"], WantedMessages(key="k"))).is_too_many
    assert not (await list_by_key(conn, "default", ["TP_TRADE"], WantedMessages(key="k2"))).is_too_many


async def test_of_a_day_that_is_not_there_it_is_known_whether_the_archive_has_it(
    conn: Connection, database_url: str
) -> None:
    for days in (0, 2, 3):
        put_rows(database_url, run_of(1, 1, first=3 - days, stored_at=NOON - days * _DAY))
    await archive_day(conn, days_ago(3))
    for days in (2, 3):
        drop_day(database_url, NOON - days * _DAY, [(1, 4 - days)])

    fates = {days: (await find_known_day(conn, days_ago(days)))[1:] for days in (-9, 0, 2, 3, 900)}

    assert fates == {
        -9: (DayFate.NOT_YET, None),
        0: (DayFate.THERE, None),
        2: (DayFate.GONE, None),
        3: (DayFate.ARCHIVED, "day/run/_manifest.json"),
        900: (DayFate.GONE, None),
    }
    # Yesterday is made together with the tables.
    assert await find_horizon(conn) == Horizon(days_ago(1), [days_ago(3)])
