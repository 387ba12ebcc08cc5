"""A message by its id and by its place, as often as it is stored."""

from __future__ import annotations

from datetime import datetime, timedelta
from uuid import UUID, uuid4

import pytest

from msgdb import ids
from msgdb.log.copies import COPIES_MAX, find_copies, find_copy_at
from msgdb.log.found import FoundMessage, Position
from msgdb.postgres.connections import Connection
from tests.support.message_rows import NOON, StoredMessage, put_rows, run_of

_DAY = timedelta(days=1)
_GROUP = 7


def minted(at: datetime) -> UUID:
    return UUID(int=ids.mint_run(round(at.timestamp() * 1_000_000)))


def offsets(found: list[FoundMessage]) -> list[int]:
    return [message.queue_offset for message in found]


def once_more(message_id: UUID, count: int, *, first: int = 1, target_group: int = _GROUP) -> list[StoredMessage]:
    """Return rows that are stored once more for a group, a second apart."""
    return [
        StoredMessage(
            queue_offset=at, message_id=message_id, target_group=target_group, stored_at=NOON + timedelta(seconds=at)
        )
        for at in range(first, first + count)
    ]


@pytest.mark.parametrize("days_off", [0, 1, -1, 5])
async def test_a_message_is_found_by_its_id_in_whatever_day_it_is(
    conn: Connection, database_url: str, days_off: int
) -> None:
    message_id = minted(NOON - days_off * _DAY)
    put_rows(database_url, [*run_of(1, 3), StoredMessage(queue_offset=3, message_id=message_id, key="k", headers={})])

    (found,), is_cut = await find_copies(conn, message_id, "default")

    assert (found.id, found.queue_offset, found.key, found.headers, found.body_bytes) == (message_id, 3, "k", {}, 4)
    assert found.position == Position(round(NOON.timestamp() * 1_000_000), 1, 3)
    assert not is_cut
    assert await find_copies(conn, uuid4(), "default") == ([], False)


@pytest.mark.parametrize("number", [0, 2**128 - 1])
async def test_whatever_is_given_as_an_id_may_be_looked_for(conn: Connection, number: int) -> None:
    assert await find_copies(conn, UUID(int=number), "default") == ([], False)


async def test_a_message_is_found_by_its_place(conn: Connection, database_url: str) -> None:
    put_rows(database_url, run_of(1, 3))

    found = await find_copy_at(conn, 1, 2)

    assert found is not None
    assert (found.queue_id, found.queue_offset) == (1, 2)
    assert await find_copy_at(conn, 1, 3) is None


async def test_what_its_publisher_stored_comes_before_what_was_stored_once_more(
    conn: Connection, database_url: str
) -> None:
    message_id = minted(NOON)
    again = [
        StoredMessage(queue_offset=at, message_id=message_id, target_group=_GROUP, stored_at=NOON - at * _DAY)
        for at in (1, 2)
    ]
    put_rows(database_url, [*again, StoredMessage(queue_offset=0, message_id=message_id)])

    found, _ = await find_copies(conn, message_id, "default")

    assert offsets(found) == [0, 2, 1]
    assert offsets((await find_copies(conn, message_id, "default", limit=1)).found) == [0]


async def test_of_a_message_that_was_stored_very_often_the_first_and_the_newest_are_told(
    conn: Connection, database_url: str
) -> None:
    message_id = minted(NOON)
    put_rows(database_url, [StoredMessage(queue_offset=0, message_id=message_id), *once_more(message_id, COPIES_MAX)])

    found, is_cut = await find_copies(conn, message_id, "default")
    whole = await find_copies(conn, message_id, "default", limit=COPIES_MAX + 1)

    assert (offsets(found), is_cut) == ([0, *range(2, COPIES_MAX + 1)], True)
    assert (offsets(whole.found), whole.is_cut) == ([*range(COPIES_MAX + 1)], False)


async def test_what_is_not_meant_takes_no_place_from_what_is(conn: Connection, database_url: str) -> None:
    message_id = minted(NOON)
    meant = [StoredMessage(queue_offset=0, message_id=message_id), *once_more(message_id, 1)]
    others = once_more(message_id, COPIES_MAX + 9, first=2, target_group=_GROUP + 1)
    elsewhere = [
        StoredMessage(queue_id=2, queue_offset=at, message_id=message_id, namespace="other")
        for at in range(COPIES_MAX + 9)
    ]
    put_rows(database_url, [*meant, *others, *elsewhere])

    found, is_cut = await find_copies(conn, message_id, "default", group_id=_GROUP)

    assert (offsets(found), is_cut) == ([0, 1], False)
    assert len((await find_copies(conn, message_id, "default")).found) == COPIES_MAX
