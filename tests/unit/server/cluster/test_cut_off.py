"""Whether a broker may go on: in contact it may, and cut off as long as a fresh reading of the mark says so."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from confdb.brokers import LIVE_SECONDS
from confdb.routes import Snapshot
from msgbroker.contract.errors import ConfigOutdatedError, StoreUnavailableError
from msgbroker.server.cluster import cut_off as module
from msgbroker.server.cluster.cut_off import CONTACT_SECONDS, READING_SECONDS, CutOff
from msgdb.log.config_mark import ConfigMark
from tests.support.broker_builders import board

ERA = UUID(int=1)


class World:
    """A broker's confdb and msgdb, and the time."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self.mark = ConfigMark(ERA, 5)
        self.is_store_away = False
        self.may_answer: asyncio.Event | None = None
        """Held back until then, where it is given."""
        self.asked = asyncio.Event()
        self.feed: Any = SimpleNamespace(current=Snapshot(5), checked_at=0.0)
        self.board = board()
        self.cut_off = CutOff(store=self, feed=self.feed, board=self.board)  # type: ignore[arg-type]
        self.heard: list[str] = []
        self.cut_off.on_behind(lambda _: self.heard.append("behind"))
        self.cut_off.on_current(lambda: self.heard.append("current"))

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[World]:
        if self.is_store_away:
            raise StoreUnavailableError("stopped")
        self.asked.set()
        if self.may_answer is not None:
            await self.may_answer.wait()
        yield self

    def look_at_confdb(self, version: int | None = None) -> None:
        if version is not None:
            self.feed.current = Snapshot(version)
        self.feed.checked_at = time.monotonic()

    def beat(self) -> None:
        self.cut_off.beaten(self.now)

    async def join(self) -> None:
        await self.cut_off.look_once()
        self.beat()
        self.look_at_confdb()

    def is_refused(self) -> bool:
        try:
            self.cut_off.check_current()
        except StoreUnavailableError:
            return True
        return False


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    world = World()

    async def read_mark(_: object) -> ConfigMark:
        return world.mark

    monkeypatch.setattr(module, "read_mark", read_mark)
    monkeypatch.setattr(module, "clock", SimpleNamespace(now=lambda: world.now))
    return world


async def test_in_contact_it_goes_on_whatever_the_mark_says(world: World) -> None:
    await world.join()
    world.mark = ConfigMark(ERA, 6)

    await world.cut_off.look_once()

    world.cut_off.check_current()
    assert await world.cut_off.is_current()
    assert world.heard == []


async def test_contact_ends_before_others_may_count_the_broker_as_gone(world: World) -> None:
    await world.join()

    world.now += CONTACT_SECONDS

    assert not world.cut_off.is_in_contact
    assert CONTACT_SECONDS < LIVE_SECONDS


async def test_cut_off_it_goes_on_for_so_long_after_each_reading(world: World) -> None:
    await world.join()
    world.now += 60
    assert world.is_refused()

    await world.cut_off.look_once()

    assert not world.is_refused()
    world.now += READING_SECONDS
    assert world.is_refused()


async def test_cut_off_from_both_it_is_not_current(world: World) -> None:
    await world.join()
    world.now += 60
    world.is_store_away = True

    assert not await world.cut_off.is_current()
    assert not world.cut_off.is_behind, "its leases run out by themselves"


async def test_a_mark_beyond_what_it_knows_stops_it_until_it_knows_it(world: World) -> None:
    await world.join()
    world.now += 60
    world.mark = ConfigMark(ERA, 6)

    assert not await world.cut_off.is_current()

    with pytest.raises(ConfigOutdatedError):
        world.cut_off.check_current()
    assert len(world.board.standing) == 1
    world.look_at_confdb(6)
    assert await world.cut_off.is_current()
    world.cut_off.check_current()
    assert world.heard == ["behind", "current"]
    assert world.board.standing == []


async def test_a_reading_that_was_asked_for_earlier_undoes_nothing(world: World) -> None:
    await world.join()
    world.now += 60
    may_answer = world.may_answer = asyncio.Event()
    earlier = asyncio.create_task(world.cut_off.look_once())
    world.asked.clear()
    await world.asked.wait()
    world.now += 0.1
    world.may_answer, before = None, world.mark
    world.mark = ConfigMark(ERA, 6)
    assert not await world.cut_off.is_current()

    world.mark = before
    may_answer.set()
    await earlier

    assert world.cut_off.is_behind


async def test_after_it_was_struck_off_a_beat_alone_is_no_contact(world: World) -> None:
    await world.join()
    world.now += LIVE_SECONDS
    world.mark = ConfigMark(ERA, 6)

    world.beat()

    assert not world.cut_off.is_in_contact
    assert not await world.cut_off.is_current()
    world.look_at_confdb(6)
    assert await world.cut_off.is_current()


async def test_a_mark_that_confdb_has_not_come_to_is_not_heeded(world: World) -> None:
    world.mark = ConfigMark(ERA, 105)
    await world.join()
    world.now += 60

    assert await world.cut_off.is_current()


async def test_a_new_era_is_beyond_whatever_was_known_in_the_one_before(world: World) -> None:
    await world.join()
    world.now += 60
    world.mark = ConfigMark(UUID(int=2), 3)

    assert not await world.cut_off.is_current()


async def test_a_new_era_that_began_while_it_was_in_contact_is_its_own(world: World) -> None:
    await world.join()
    world.look_at_confdb(3)
    world.mark = ConfigMark(UUID(int=2), 3)
    await world.cut_off.look_once()
    world.look_at_confdb()
    await world.cut_off.look_once()
    world.now += 60

    assert await world.cut_off.is_current()
