"""Room for bytes: a bound that holds however many wait."""

from __future__ import annotations

import asyncio

from msgbroker.server.publish.byte_budget import Room


class Crowd:
    """So many who want room of the same size, in their order."""

    def __init__(self, room: Room, count: int, size_bytes: int) -> None:
        self._room = room
        self.let_in: list[int] = []
        self.tasks = [asyncio.create_task(self._enter(number, size_bytes)) for number in range(count)]

    async def _enter(self, number: int, size_bytes: int) -> None:
        await self._room.acquire(size_bytes)
        self.let_in.append(number)


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_when_there_is_room_again_only_so_many_get_in_as_there_is_room_for_in_their_order() -> None:
    room = Room(100)
    crowd = Crowd(room, 300, 50)
    await turns()
    assert (crowd.let_in, room.bytes_held) == ([0, 1], 100)

    room.release(50)
    await turns()
    assert (crowd.let_in, room.bytes_held) == ([0, 1, 2], 100)
    room.release(100)
    await turns()
    assert (crowd.let_in, room.bytes_held) == ([0, 1, 2, 3, 4], 100)
    for task in crowd.tasks:
        task.cancel()


async def test_nobody_gets_in_before_those_who_wait() -> None:
    room = Room(100)
    room.take(100)
    crowd = Crowd(room, 1, 200)
    await turns()
    room.release(90)
    # It has its turn, if it has not taken it yet.
    assert (room.bytes_held, room.is_full) == (210, True)
    await turns()
    assert crowd.let_in == [0]


async def test_whoever_goes_away_while_waiting_leaves_its_turn_to_the_next() -> None:
    room = Room(100)
    room.take(100)
    crowd = Crowd(room, 3, 100)
    await turns()
    crowd.tasks[0].cancel()
    await turns()
    room.release(100)
    # This one was let in, and goes away before it knows.
    crowd.tasks[1].cancel()
    await turns()

    assert (crowd.let_in, room.bytes_held) == ([2], 100)
    room.release(100)
    assert (room.bytes_held, room.is_full) == (0, False)


async def test_who_asks_for_little_does_not_wait_for_all_who_asked_for_much() -> None:
    room = Room(100)
    room.take(100)
    large, small = Crowd(room, 10, 1_000), Crowd(room, 1, 10)
    await turns()
    room.release(100)
    await turns()

    assert (small.let_in, large.let_in) == ([0], [0])


async def test_who_asks_for_much_has_its_turn_however_many_ask_for_little() -> None:
    room = Room(100)
    room.take(100)
    large = Crowd(room, 1, 1_000)
    let_in = 0
    for _ in range(200):
        small = Crowd(room, 2, 50)
        await turns()
        room.release(room.bytes_held)
        await turns()
        let_in += len(small.let_in)
        if large.let_in:
            break

    # Twice its size, with two of them at a time.
    assert large.let_in == [0]
    assert 20 <= let_in <= 50


async def test_those_who_wait_and_go_away_leave_nothing_behind() -> None:
    room = Room(100)
    room.take(100)
    crowd = Crowd(room, 50, 10)
    await turns()
    for task in crowd.tasks:
        task.cancel()
    await turns()

    room.release(100)
    assert (room.bytes_held, room.is_full, crowd.let_in) == (0, False, [])


async def test_what_is_larger_than_the_room_gets_in_alone() -> None:
    room = Room(100)
    crowd = Crowd(room, 2, 1_000)
    await turns()
    assert crowd.let_in == [0]
    room.release(1_000)
    await turns()
    assert crowd.let_in == [0, 1]
