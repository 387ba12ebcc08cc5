"""Trials are begun only where, and as, anything may be handed out in that very moment."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import pytest

from msgbroker.contract.errors import ConfigOutdatedError, StoreUnavailableError
from msgbroker.server.jobs import trying
from msgbroker.server.jobs.trying import TrialRunner
from msgdb.jobs.specs import Place
from msgdb.jobs.trials import TrialOutcome, TrialState, Tried, WantedTrial
from tests.support.broker_builders import route
from tests.support.one_group import QUEUE
from tests.unit.server.deliver.test_trials import Scene, message_at


class _NoStore:
    @asynccontextmanager
    async def connection(self) -> AsyncIterator[None]:
        yield

    transaction = connection


class Trying:
    """One trial of a stress message, of an instance that has no room for it at first."""

    def __init__(self, scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
        self.scene = scene
        self.tried: list[Tried] = []
        self.waits_for_room, self.ended = asyncio.Event(), asyncio.Event()
        self.end: tuple[TrialState, str | None] | None = None
        self.is_cut_off = False
        for name in ("list_wanted", "take_trial", "note_tried", "end_trial"):
            monkeypatch.setattr(trying, name, getattr(self, f"_{name}"))
        monkeypatch.setattr(TrialRunner, "_read", self._read)
        scene.one.is_paused = True
        self.runner = TrialRunner(
            store=_NoStore(),  # type: ignore[arg-type]
            owner=uuid4(),
            hub=scene.hub,
            snapshot=lambda: scene.configuration,
            check_current=self.check_current,
        )

    def check_current(self) -> None:
        if self.is_cut_off:
            raise StoreUnavailableError("cut off")

    async def until_ended(self, change: Callable[[], None]) -> None:
        """Begin it, do *change* while it waits for room, make room, and wait for its end."""
        assert await self.runner.begin_once() == 1
        await self.waits_for_room.wait()
        change()
        self.scene.one.is_paused = False
        await self.ended.wait()

    async def _list_wanted(self, _: object) -> list[WantedTrial]:
        return [WantedTrial(1, self.scene.route.group_id, "one", [Place(QUEUE, 0, 0)])]

    async def _take_trial(self, *_: object) -> bool:
        return True

    async def _note_tried(self, _: object, __: object, ___: object, tried: list[Tried]) -> bool:
        self.tried += tried
        return True

    async def _end_trial(self, _: object, __: int, state: TrialState, error: str | None, **___: Any) -> bool:
        self.end = state, error
        self.ended.set()
        return True

    async def _read(self, *_: object) -> Any:
        self.waits_for_room.set()
        return message_at(0, stress=True), route()


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    return Scene(monkeypatch)


async def test_a_group_that_is_refused_while_there_is_no_room_is_handed_nothing(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = Trying(scene, monkeypatch)

    await one.until_ended(lambda: scene.hub.refuse_all(ConfigOutdatedError(1)))

    assert scene.written() == []
    assert [each.outcome for each in one.tried] == [TrialOutcome.NOT_HANDED_OUT]


async def test_a_broker_that_cannot_know_what_is_permitted_now_hands_out_nothing(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = Trying(scene, monkeypatch)

    def lose_contact() -> None:
        one.is_cut_off = True

    await one.until_ended(lose_contact)

    assert scene.written() == []
    assert one.end is not None
    assert one.end[0] is TrialState.FAILED
