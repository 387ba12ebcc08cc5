"""Turns at being read: for whoever has fewest; and calls that are given up because they are in others' way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from msgbroker.server.edge.calls.places import Place, Places
from msgbroker.server.edge.calls.unread import UnreadCall, UnreadCalls
from tests.support.eventually import eventually

pytestmark = pytest.mark.slow


class Caller:
    """A call of a connection: it sends when the test says so, or is given up."""

    def __init__(self, unread: UnreadCalls, peer: str, places: Places) -> None:
        self.is_read = False
        self.is_given_up = False
        self.waited_seconds = 0.0
        self.place = Place(places)
        self._sends = asyncio.Event()
        self._call = UnreadCall(peer, self.place, self)  # type: ignore[arg-type]
        self._unread = unread
        self.task = asyncio.create_task(self._be_read())

    async def _be_read(self) -> None:
        async with self._unread.turn(self._call):
            self.is_read = True
            await self._sends.wait()

    async def send(self) -> None:
        """Send the request."""
        self._sends.set()
        await self.task

    def give_up(self) -> None:
        """Stand for `Sending.give_up`."""
        self.is_given_up = True
        self.task.cancel()


class Scene:
    """Two turns, and who wants them."""

    def __init__(self) -> None:
        self.unread = UnreadCalls(2)
        self.places = Places("calls", 100)
        self.callers: list[Caller] = []

    async def come(self, *peers: str) -> list[Caller]:
        """Let calls of these connections come, one after the other."""
        came = [Caller(self.unread, peer, self.places) for peer in peers]
        self.callers += came
        await asyncio.sleep(0)
        return came


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    scene = Scene()
    yield scene
    for caller in scene.callers:
        caller.task.cancel()
    await asyncio.gather(*(caller.task for caller in scene.callers), return_exceptions=True)
    assert scene.unread._connections == {}
    assert (scene.unread._free, scene.unread._waiting) == (2, 0)


def read(callers: list[Caller]) -> list[bool]:
    return [caller.is_read for caller in callers]


def wait(callers: list[Caller], seconds: float) -> None:
    """Let so much time have passed since they came."""
    for caller in callers:
        caller.waited_seconds = seconds


def given_up(callers: list[Caller]) -> list[bool]:
    return [caller.is_given_up for caller in callers]


async def test_a_free_turn_goes_to_the_connection_with_fewest(scene: Scene) -> None:
    callers = await scene.come("a", "a", "a", "b", "c")
    assert read(callers) == [True, True, False, False, False]

    await callers[0].send()
    await eventually(lambda: read(callers) == [True, True, False, True, False])
    await callers[1].send()
    # Neither has a turn; the other one came first.
    await eventually(lambda: read(callers) == [True, True, True, True, False])
    await callers[3].send()
    await eventually(lambda: all(read(callers)))


async def test_connections_with_equally_many_take_turns(scene: Scene) -> None:
    x, _, *callers = await scene.come("x", "x", "a", "a", "b", "b")
    await x.send()
    order, waiting = [], [*callers]
    while waiting:
        await eventually(lambda: any(read(waiting)))
        current = next(caller for caller in waiting if caller.is_read)
        waiting.remove(current)
        order.append("aabb"[callers.index(current)])
        await current.send()

    assert order == ["a", "b", "a", "b"]


async def test_where_another_connection_waits_the_oldest_of_the_one_with_most_is_given_up_when_it_has_had_its_time(
    scene: Scene,
) -> None:
    theirs = await scene.come("a", "a", "a")
    (own,) = await scene.come("b")
    assert given_up(theirs) == [False] * 3
    wait(theirs, 2.0)
    await eventually(lambda: own.is_read)

    assert given_up(theirs) == [True, False, False]
    assert scene.places.count == 3


async def test_what_has_waited_for_its_turn_has_its_time_from_then_on(scene: Scene) -> None:
    theirs = await scene.come("a", "a", "a")
    wait(theirs, 5.0)
    await theirs[0].send()
    await theirs[1].send()
    await eventually(lambda: theirs[2].is_read)
    _, own = await scene.come("a", "b")
    wait(theirs[2:], 6.9)
    scene.unread._look()
    assert not theirs[2].is_given_up
    wait(theirs[2:], 7.0)
    await eventually(lambda: own.is_read)

    assert theirs[2].is_given_up


async def test_a_connection_is_in_nobodys_way_but_its_own(scene: Scene) -> None:
    theirs = await scene.come("a", "a", "a")
    wait(theirs, 9.0)
    theirs += await scene.come("a")

    assert given_up(theirs) == [False] * 4


async def test_the_only_call_of_a_connection_is_left_alone_for_longer(scene: Scene) -> None:
    others = await scene.come("a", "b")
    wait(others, 4.9)
    (own,) = await scene.come("c")
    assert given_up(others) == [False, False]
    wait(others, 5.0)
    await eventually(lambda: own.is_read)

    assert given_up(others) == [True, False]


async def test_connections_with_about_as_many_as_each_other_do_not_take_turns_from_each_other(scene: Scene) -> None:
    callers = await scene.come("a", "b")
    wait(callers, 9.0)
    callers += await scene.come("a", "b")

    assert given_up(callers) == [False] * 4


async def test_a_newcomer_gets_the_place_of_the_connection_that_has_most(scene: Scene) -> None:
    callers = await scene.come("a", "b", "b", "b")
    scene.unread.make_place_for("c")
    assert given_up(callers) == [False] * 4, "they have just come"

    wait(callers, 2.0)
    scene.unread.make_place_for("b")
    assert given_up(callers) == [False] * 4
    scene.unread.make_place_for("c")
    assert given_up(callers) == [False, True, False, False]
    assert scene.places.count == 3
    await eventually(callers[1].task.cancelled)
    assert scene.places.count == 3


async def test_a_call_that_goes_away_while_it_waits_leaves_nothing_behind(scene: Scene) -> None:
    callers = await scene.come("a", "a", "b", "c")
    callers[2].task.cancel()
    await asyncio.sleep(0)
    await callers[0].send()

    await eventually(lambda: read(callers) == [True, True, False, True])
