"""Looking at a topic as it goes on, and taking much out of it: with bounded reads, and nothing held."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta

import psycopg
import pytest

from confdb.services import ConfigService
from confdb.store import ConfigStore
from msgbroker.contract.errors import LookTooLongError
from msgconsole.operations.looking import in_log, tailing
from msgconsole.operations.looking.answers import PageToken
from msgconsole.operations.looking.exporting import export_messages
from msgconsole.operations.looking.finding import find_messages
from msgconsole.operations.looking.in_log import LogSearch
from msgconsole.operations.looking.tailing import LOOKED_AT_MAX, Seen, WantedTail, open_tail
from msgconsole.operations.stores import Stores
from msgdb.log.found import FoundMessage
from msgdb.looking.bodies import read_together
from msgdb.looking.stretches import WantedMessages
from msgdb.store import MessageStore
from tests.support.message_rows import NOON, StoredMessage, drop_day, put_rows, run_of

SEARCH = LogSearch(namespace="default", topic="TP_TRADE")
TAIL = WantedTail(namespace="default", topic="TP_TRADE")
_DAY = timedelta(days=1)


@pytest.fixture
async def stores(database_url: str) -> AsyncIterator[Stores]:
    """Both databases, with a topic."""
    async with ConfigStore.open(database_url) as config, MessageStore.open(database_url, pool_size=2) as messages:
        await ConfigService(config, "ada").topics.create("default", "TP_TRADE")
        yield Stores(config, messages)


def offsets(seen: Seen) -> list[int]:
    return [message.queue_offset for message, _ in seen.messages]


def places(found: list[FoundMessage]) -> list[tuple[int, int]]:
    return [(message.queue_id, message.queue_offset) for message in found]


@pytest.mark.parametrize("newest_first", [True, False])
async def test_page_by_page_a_log_of_several_queues_and_days_comes_once_and_in_order(
    stores: Stores, database_url: str, newest_first: bool
) -> None:
    chance = random.Random(11)
    rows = []
    for queue_id in (1, 2, 3):
        stored_at = NOON - 3 * _DAY
        for offset in range(300):
            stored_at += timedelta(microseconds=chance.choice([0, 0, 1, 1_000, 1_500_000_000]))
            headers = {"region": chance.choice(["hz", "sh"])}
            rows.append(StoredMessage(queue_id=queue_id, queue_offset=offset, stored_at=stored_at, headers=headers))
    put_rows(database_url, rows)
    wanted = WantedMessages(headers={"region": "sh"})

    search = replace(SEARCH, wanted=wanted, newest_first=newest_first, limit=37)
    found: list[tuple[int, int]] = []
    while True:
        answer = await find_messages(stores, search)
        found += places(answer.found)
        if answer.after is None:
            break
        search = replace(search, after=PageToken.of_text(str(answer.after)))

    expected = sorted(
        ((row.stored_at, row.queue_id, row.queue_offset) for row in rows if row.headers == {"region": "sh"}),
        reverse=newest_first,
    )
    assert answer.is_complete
    assert found == [(queue_id, offset) for _, queue_id, offset in expected]


async def test_looking_that_takes_long_ends_with_what_was_seen_and_goes_on(
    stores: Stores, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(in_log, "SECONDS_MAX", -1.0)
    put_rows(database_url, run_of(1, 2_000))
    search = replace(SEARCH, wanted=WantedMessages(headers={"no": "such"}), newest_first=False)

    answers = [await find_messages(stores, search)]
    while (after := answers[-1].after) is not None:
        answers.append(await find_messages(stores, replace(search, after=after)))

    assert [answer.looked_at for answer in answers] == [500, 500, 500, 500]
    assert [answer.is_complete for answer in answers] == [False, False, False, True]


async def test_a_statement_that_takes_too_long_is_told(
    stores: Stores, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_rows(database_url, run_of(1, 1))
    monkeypatch.setattr("msgdb.looking.stretches._READ_BACK", "SELECT pg_sleep(30), %(limit)s")
    monkeypatch.setattr("msgdb.store._LOOK", "SELECT set_config('statement_timeout', '50', true), %(milliseconds)s")

    with pytest.raises(LookTooLongError):
        await find_messages(stores, SEARCH)


async def test_a_tail_goes_on_where_it_was_in_every_queue(stores: Stores, database_url: str) -> None:
    put_rows(database_url, run_of(1, 5))
    tail = await open_tail(stores, replace(TAIL, last=2))

    assert offsets(await tail.look_once(100)) == [3, 4]
    assert await tail.look_once(100) == Seen([], 0)
    put_rows(database_url, run_of(1, 3, first=5, stored_at=NOON + timedelta(minutes=1)))
    assert offsets(await tail.look_once(100)) == [5, 6, 7]


async def test_a_tail_shows_what_is_wanted_and_counts_what_it_has_no_room_for(
    stores: Stores, database_url: str
) -> None:
    put_rows(database_url, run_of(1, 1))
    wanted = replace(TAIL, wanted=WantedMessages(event_code="EC_PAID"), expression='headers.region == "hz"')
    tail = await open_tail(stores, wanted)
    assert offsets(await tail.look_once(100)) == []
    headers = [{"region": "hz"}, {"region": "sh"}, None, {"region": "hz"}, {"region": "hz"}]
    put_rows(database_url, [StoredMessage(queue_offset=at, headers=each) for at, each in enumerate(headers, 1)])
    put_rows(database_url, [StoredMessage(queue_offset=6, headers={"region": "hz"}, event_code="EC_OTHER")])

    seen = await tail.look_once(2)

    assert (offsets(seen), seen.passed) == ([1, 4], 1)


async def test_a_tail_that_is_far_behind_passes_what_it_would_not_catch_up_with(
    stores: Stores, database_url: str
) -> None:
    put_rows(database_url, run_of(1, 1))
    tail = await open_tail(stores, TAIL)
    await tail.look_once(10)
    with psycopg.connect(database_url) as connection:
        connection.execute(
            "INSERT INTO message (queue_id, queue_offset, stored_at, message_id, namespace, topic, event_code, body,"
            " born_at, stress) SELECT 1, o, %s, gen_random_uuid(), 'default', 'TP_TRADE', 'EC', 'x', now(), false"
            " FROM generate_series(1, %s) o",
            (NOON, LOOKED_AT_MAX + 1_000),
        )

    seen = await tail.look_once(10)

    assert offsets(seen) == list(range(1_001, 1_011))
    assert len(seen.messages) + seen.passed == LOOKED_AT_MAX + 1_000
    assert await tail.look_once(10) == Seen([], 0)


async def test_bodies_that_are_more_than_may_be_held_are_passed(
    stores: Stores, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_rows(database_url, [StoredMessage(queue_offset=at, body=b"x" * 100) for at in range(5)])
    monkeypatch.setattr(f"{tailing.__name__}.read_together", lambda found: read_together(found, 250))
    tail = await open_tail(stores, replace(TAIL, last=5))

    assert offsets(await tail.look_once(10)) == [3, 4]
    put_rows(database_url, [StoredMessage(queue_offset=at, body=b"x" * 100) for at in range(5, 10)])
    seen = await tail.look_once(10)
    assert (offsets(seen), seen.passed) == ([5, 6], 3)


async def test_an_export_holds_no_transaction_while_its_taker_is_slow_and_says_what_went_meanwhile(
    stores: Stores, database_url: str
) -> None:
    yesterday = NOON - _DAY
    put_rows(
        database_url, [StoredMessage(queue_offset=at, stored_at=yesterday, body=b"x" * 5_000_000) for at in (0, 1)]
    )

    exporting = export_messages(stores, SEARCH)
    first = await anext(exporting)
    # It waits for whoever reads.
    drop_day(database_url, yesterday, [(1, 2)])
    rest = [exported async for exported in exporting]

    assert [message.queue_offset for message, _ in first.messages] == [0]
    assert sum(exported.lost for exported in rest) == 1
    assert rest[-1].after is None


async def test_an_export_is_of_what_was_stored_when_it_began(stores: Stores, database_url: str) -> None:
    put_rows(
        database_url, [*run_of(1, 1_200, stored_at=NOON - _DAY), *run_of(1, 5, first=1_200, stored_at=NOON + _DAY)]
    )

    exported = [message async for each in export_messages(stores, SEARCH) for message, _ in each.messages]

    assert [message.queue_offset for message in exported] == list(range(1_200))
    some = [message async for each in export_messages(stores, SEARCH, 1_100) for message, _ in each.messages]
    assert len(some) == 1_100
