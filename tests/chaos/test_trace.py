"""Brokers that are killed while all is traced: what is told is true, and what is missing is of their last second."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

import psycopg

from confdb.services import ConfigService
from confdb.store import ConfigStore
from msgbroker.server.trace.writer import FLUSH_SECONDS
from tests.chaos.history import Place
from tests.chaos.load import TOPIC, Load, register
from tests.support.broker_fixtures import StartBrokerProcess
from tests.support.eventually import eventually

GROUP = "SG_TRACED"
_FLUSH_ITSELF = timedelta(seconds=2)
"""What a flush may take on a busy machine; the next one is begun a second after it."""

_EVENTS = "SELECT kind, broker, queue_id, first_offset, last_offset, at, attempt, handed_at, left_out FROM trace_event"
_MESSAGES = "SELECT queue_id, queue_offset, stored_at FROM message"


async def test_what_is_traced_is_true_and_only_the_last_second_of_a_killed_broker_is_missing(
    broker_process: StartBrokerProcess, database_url: str, rounds: int
) -> None:
    await register(database_url, GROUP)
    async with ConfigStore.open(database_url) as store:
        await ConfigService(store, "chaos").topics.update("default", TOPIC, trace_rate=1.0)
    brokers = [broker_process() for _ in range(2)]
    addresses = [broker.address for broker in brokers]
    kills: list[datetime] = []
    async with Load.running(addresses, [GROUP]) as load:
        await load.more(1_000)
        for _ in range(rounds):
            victim = brokers.pop(0)
            # It is in the middle of it, and has more to write than it will.
            await eventually(lambda: has_traced(database_url, victim.address))  # noqa: B023 - called at once
            kills.append(ask(database_url, "SELECT clock_timestamp()")[0][0])
            victim.kill()
            brokers.append(broker_process(listen=victim.address))
            assert brokers[-1].address == victim.address
            await load.more(1_000)
        history = await load.finish()
        last_at = ask(database_url, "SELECT max(stored_at) FROM message")[0][0]
        await eventually(
            lambda: ask(database_url, "SELECT max(at) FROM trace_event WHERE kind = 'STORED'")[0][0] == last_at
        )
    for broker in brokers:
        # What they have noted they write as they leave.
        broker.end()

    stored = {Place(queue_id, offset): at for queue_id, offset, at in ask(database_url, _MESSAGES)}
    events = ask(database_url, _EVENTS)
    assert {broker for _, broker, *_ in events} == set(addresses)
    assert not [left_out for *_, left_out in events if left_out]
    check_stored(events, stored, kills)
    check_handed_out(events, stored, Counter((sight.place, sight.attempt) for sight in history.sights))


def has_traced(url: str, broker: str) -> bool:
    return any(said == broker for _, said, *_ in ask(url, _EVENTS))


def ask(url: str, statement: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(url) as connection:
        return connection.execute(statement).fetchall()


def places(events: Iterable[tuple[Any, ...]], kind: str) -> list[tuple[Place, tuple[Any, ...]]]:
    """Return the events of a kind, for each of their messages."""
    return [
        (Place(event[2], offset), event)
        for event in events
        if event[0] == kind
        for offset in range(event[3], event[4] + 1)
    ]


def check_stored(events: list[tuple[Any, ...]], stored: dict[Place, datetime], kills: list[datetime]) -> None:
    """Each message was stored once, at the time that its row has; what is missing is of a broker's last moments."""
    told = places(events, "STORED")
    assert [place for place, event in told if stored.get(place) != event[5]] == []
    assert [place for place, count in Counter(place for place, _ in told).items() if count > 1] == []
    window = timedelta(seconds=FLUSH_SECONDS) + _FLUSH_ITSELF
    missing = {place: at for place, at in stored.items() if place not in dict(told)}
    assert [
        at for at in missing.values() if not any(kill - window <= at <= kill + _FLUSH_ITSELF for kill in kills)
    ] == []


def check_handed_out(
    events: list[tuple[Any, ...]], stored: dict[Place, datetime], sights: Counter[tuple[Place, int]]
) -> None:
    """Nobody is said to have acknowledged what its handler never saw, or as often as it did not."""
    acked = Counter((place, event[6]) for place, event in places(events, "ACKED"))
    assert acked - sights == Counter()
    assert acked
    for place, event in [*places(events, "ACKED"), *places(events, "HANDED_OUT")]:
        assert place in stored
        assert stored[place] - timedelta(milliseconds=100) <= event[7] <= event[5]
