"""Writing what was counted: in pieces, with how far it was counted, and again where it may not have been written."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import pytest

from msgbroker.contract.errors import StoreUnavailableError
from msgbroker.server.figures import usage_writer
from msgbroker.server.figures.usage_writer import MARGIN_US, ROWS_MAX, Storing, UsageWriter
from msgdb.figures.usage import MINUTE_US, UsageBroker, UsageRow
from tests.unit.server.figures.test_usage import MINUTE, stored, usage

START_US = MINUTE * MINUTE_US


class Scene:
    """A writer, and a store that takes what it writes, or does not."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.usage, self.clock = usage(keys_max=10_000)
        self.in_flight_seconds = 0.0
        self.unknown = 0
        self.written: list[tuple[Sequence[UsageRow], UsageBroker]] = []
        self.fails = False
        self.clock.seconds = 30.0
        monkeypatch.setattr(usage_writer, "write_usage", self._write)
        monkeypatch.setattr(usage_writer, "read_clock_us", self._read_clock_us)
        self.writer = UsageWriter(
            self.usage,
            self,  # type: ignore[arg-type]
            broker_id=UUID(int=1),
            broker="here",
            storing=Storing(lambda: self.in_flight_seconds, lambda: self.unknown),
            now=self.clock,
        )

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Any]:
        yield None

    async def _write(self, _: Any, rows: Sequence[UsageRow], broker: UsageBroker) -> None:
        if self.fails:
            raise StoreUnavailableError("it is away")
        self.written.append((rows, broker))

    async def _read_clock_us(self, _: Any) -> int:
        return START_US + round(self.clock.seconds * 1_000_000)

    def counted_until(self) -> list[float]:
        return [(broker.counted_until.timestamp() * 1_000_000 - START_US) / 1_000_000 for _, broker in self.written]


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    return Scene(monkeypatch)


async def test_what_is_on_its_way_into_the_log_is_not_counted_yet(scene: Scene) -> None:
    scene.in_flight_seconds = 5.0

    assert await scene.writer.write_once()
    scene.clock.seconds, scene.in_flight_seconds = 40.0, 0.0
    assert await scene.writer.write_once()

    margin = MARGIN_US / 1_000_000
    assert scene.counted_until() == [pytest.approx(25.0 - margin), pytest.approx(40.0 - margin)]


async def test_how_far_it_has_counted_does_not_go_back(scene: Scene) -> None:
    await scene.writer.write_once()
    scene.in_flight_seconds = 20.0

    await scene.writer.write_once()

    first, second = scene.counted_until()
    assert first == second


async def test_much_is_written_in_pieces_and_is_counted_with_the_last(scene: Scene) -> None:
    await scene.writer.write_once()
    scene.clock.seconds = 40.0
    for number in range(ROWS_MAX + 1):
        scene.usage.stored({1: [stored(event_code=f"EC_{number}")]})

    await scene.writer.leave()

    assert [len(rows) for rows, _ in scene.written] == [0, ROWS_MAX, 1]
    assert [broker.has_ended for _, broker in scene.written] == [False, False, True]
    assert scene.counted_until()[1:] == [pytest.approx(29.0), pytest.approx(40.0)]


async def test_what_the_store_did_not_take_is_written_the_next_time(scene: Scene) -> None:
    scene.usage.stored({1: [stored()]})
    scene.fails = True
    assert not await scene.writer.write_once()
    scene.fails = False

    assert await scene.writer.write_once()

    assert [[row.published for row in rows] for rows, _ in scene.written] == [[1]]


async def test_where_nobody_knows_whether_something_was_stored_the_minutes_say_so(scene: Scene) -> None:
    scene.unknown = 1

    await scene.writer.write_once()
    await scene.writer.write_once()

    minutes = [[row.minute_us // MINUTE_US for row in rows if row.lacks] for rows, _ in scene.written]
    assert minutes == [[MINUTE - 1, MINUTE], []]


async def test_it_begins_with_the_time_of_the_store(scene: Scene) -> None:
    scene.usage.clock._ahead_us = 0
    scene.usage.clock._answers.clear()

    await scene.writer.begin()

    assert scene.usage.now_us() == START_US + 30_000_000
    assert scene.counted_until() == [pytest.approx(30.0)]
    assert 0 < scene.writer._seconds_to_next() <= 10


async def test_a_store_that_is_away_does_not_keep_a_broker_from_ending(scene: Scene) -> None:
    scene.fails = True

    await scene.writer.leave()

    assert scene.written == []
