"""Looks at the backlog: who reads what, and not so often that it costs much."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import pytest

from confdb.routes import Snapshot
from msgbroker.contract.errors import StoreUnavailableError
from msgbroker.engine.matching_share import asked_of
from msgbroker.server.figures import backlog_looks
from msgbroker.server.figures.backlog_looks import BacklogLooks, readings_of
from msgdb.figures.backlog import Reading
from tests.support.broker_builders import group_route, subscription


class Scene:
    """Looks that take as long as the test has them take."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seconds = 0.0
        self.takes_seconds = 0.0
        self.is_done = True
        self.fails = False
        self.asked: list[Mapping[str, str]] = []
        group = group_route()
        self.snapshot = Snapshot(1, groups={("default", group.name): group})
        monkeypatch.setattr(backlog_looks, "look", self._look)
        self.looks = BacklogLooks(
            self,  # type: ignore[arg-type]
            UUID(int=1),
            lambda: self.snapshot,
            now=lambda: self.seconds,
        )

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Any]:
        yield None

    async def _look(self, _: Any, __: UUID, readings: Mapping[str, str], *, apart_seconds: float) -> bool:
        assert 0 < apart_seconds < self.looks._seconds
        self.asked.append(readings)
        self.seconds += self.takes_seconds
        if self.fails:
            raise StoreUnavailableError("it took too long")
        return self.is_done


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    return Scene(monkeypatch)


@pytest.mark.parametrize("takes_seconds, seconds", [(0.01, 10.0), (0.2, 10.0), (0.5, 25.0), (4.0, 60.0)])
async def test_a_look_that_takes_long_is_made_less_often(scene: Scene, takes_seconds: float, seconds: float) -> None:
    scene.takes_seconds = takes_seconds

    assert await scene.looks.look_once()

    assert scene.looks._seconds == pytest.approx(seconds)


async def test_a_look_that_is_too_long_for_a_statement_is_made_seldom(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop = asyncio.Event()
    paused: list[float] = []

    async def pause(_: asyncio.Event, seconds: float) -> None:
        paused.append(seconds)
        stop.set()

    monkeypatch.setattr(backlog_looks, "pause", pause)
    scene.fails = True

    await scene.looks.run(stop)

    assert paused == [60.0]


async def test_who_reads_what_is_put_together_once_for_a_configuration(scene: Scene) -> None:
    await scene.looks.look_once()
    await scene.looks.look_once()
    scene.snapshot = Snapshot(2, groups=scene.snapshot.groups)
    await scene.looks.look_once()

    first, second, third = scene.asked
    assert first is second
    assert first == third
    assert first is not third


def test_a_group_reads_a_topic_from_where_its_first_subscription_begins() -> None:
    group = group_route(
        subscriptions=(
            subscription(1, topic_id=1, start_offsets={10: 5, 11: 8}),
            subscription(2, topic_id=1, start_offsets={10: 9, 11: 2, 12: 4}),
            subscription(3, topic_id=2, start_offsets={}),
        )
    )

    # Queue 12 is younger than the first of them, which so wants all of it.
    assert readings_of(group) == [
        Reading(group.group_id, 1, {10: 5, 11: 2}, asked_of(group.subscriptions, 1)),
        Reading(group.group_id, 2, {}, asked_of(group.subscriptions, 2)),
    ]
