"""Unary calls that have begun and whose request is not read: whose turn it is, and which are given up for others.

gRPC takes a request into memory while somebody waits for it, so only so many are awaited at a time. Nobody can tell a
client that sends slowly from one that sends nothing; but it can be seen who is in whose way. A free turn goes to the
connection that has fewest. Where another connection waits for a turn, or finds no place, the oldest unread call of the
connection that has most is given up, unless it has just come: that one can be sent again. Where nobody else waits, each
has the full time.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

from msgbroker.server.edge.calls.places import Place
from msgbroker.server.edge.calls.sending_in_time import Sending

_AMONG_OTHERS_SECONDS: Final = 2.0
"""A call of a connection with several of them is left alone for so long."""
_ALONE_SECONDS: Final = 5.0
"""The only call of its connection is left alone for so long: more likely it is slow."""
_LOOK_SECONDS: Final = 0.25


@dataclass(slots=True, eq=False)
class UnreadCall:
    """A call whose request has not come."""

    peer: str
    """The connection that the call came by."""
    place: Place
    sending: Sending


@dataclass(slots=True, eq=False)
class _Connection:
    awaited: dict[UnreadCall, float] = field(default_factory=dict)
    """Calls that have a turn, and how long they had waited then; the oldest one at the front."""
    waiting: dict[UnreadCall, asyncio.Future[None]] = field(default_factory=dict)
    """Calls that have none, and what gives it to them; the oldest one at the front."""

    @property
    def count(self) -> int:
        return len(self.awaited) + len(self.waiting)

    def overdue(self) -> UnreadCall | None:
        """Return the oldest call, if it has had its time: since it came, or since it got its turn."""
        seconds = _ALONE_SECONDS if self.count == 1 else _AMONG_OTHERS_SECONDS
        call = next(iter(self.awaited), None) or next(iter(self.waiting))
        return call if call.sending.waited_seconds - self.awaited.get(call, 0.0) >= seconds else None


class UnreadCalls:
    """Gives calls their turns at being read, and gives up those that are in the way of others."""

    def __init__(self, turns_max: int) -> None:
        self._free = turns_max
        self._waiting = 0
        self._connections: dict[str, _Connection] = {}
        """Those with unread calls; of equals the next one in turn is at the front."""
        self._look_at: asyncio.TimerHandle | None = None

    @asynccontextmanager
    async def turn(self, call: UnreadCall) -> AsyncIterator[None]:
        """Wait for a turn at awaiting the request of *call*, and have it for the length of the block."""
        connection = self._connections.setdefault(call.peer, _Connection())
        try:
            if self._free and not self._waiting:
                self._begin(call, connection)
            else:
                await self._wait(call, connection)
            yield
        finally:
            self._forget(call)

    def make_place_for(self, peer: str) -> None:
        """Give up a call of the connection that has most, if that is more than *peer* has: there is no place left."""
        most = max(self._connections.values(), key=lambda each: each.count, default=None)
        own = self._connections.get(peer)
        if most is None or (own is not None and most.count <= own.count):
            return
        overdue = most.overdue()
        if overdue is not None:
            self._give_up(overdue)

    def _begin(self, call: UnreadCall, connection: _Connection) -> None:
        self._free -= 1
        connection.awaited[call] = call.sending.waited_seconds

    async def _wait(self, call: UnreadCall, connection: _Connection) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        connection.waiting[call] = turn
        self._waiting += 1
        self._look()
        await turn

    def _forget(self, call: UnreadCall) -> None:
        """Let *call* have no turn any more, and wait for none. A repeat changes nothing."""
        connection = self._connections.get(call.peer)
        if connection is None:
            return
        if connection.awaited.pop(call, None) is not None:
            self._free += 1
        elif connection.waiting.pop(call, None) is not None:
            self._waiting -= 1
        if not connection.count:
            del self._connections[call.peer]
        while self._free and self._waiting:
            self._next()

    def _next(self) -> None:
        """Give a turn to a call that waits."""
        peer, connection = self._neediest()
        call, turn = next(iter(connection.waiting.items()))
        del connection.waiting[call]
        self._waiting -= 1
        self._begin(call, connection)
        # Behind its equals.
        self._connections[peer] = self._connections.pop(peer)
        if not turn.done():
            turn.set_result(None)

    def _neediest(self) -> tuple[str, _Connection]:
        """Return the connection that is next: of those with calls that wait, one with the fewest turns."""
        waiting = ((peer, connection) for peer, connection in self._connections.items() if connection.waiting)
        return min(waiting, key=lambda each: len(each[1].awaited))

    def _look(self) -> None:
        """Give up what is in the way of calls that wait; look again soon where nothing has had its time."""
        if self._look_at is not None:
            self._look_at.cancel()
            self._look_at = None
        while self._waiting:
            _, needy = self._neediest()
            most = max(self._connections.values(), key=lambda each: len(each.awaited))
            # Those that have about as much as each other do not take it from each other.
            if len(most.awaited) < (len(needy.awaited) + 2 if needy.awaited else 1):
                return
            overdue = most.overdue()
            if overdue is None:
                self._look_at = asyncio.get_running_loop().call_later(_LOOK_SECONDS, self._look)
                return
            self._give_up(overdue)

    def _give_up(self, call: UnreadCall) -> None:
        call.sending.give_up()
        call.place.leave()
        self._forget(call)
