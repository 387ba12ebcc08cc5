"""One message at a time, each known to be begun before it is: where one of them may have ended another instance.

A message that ends its process at once leaves no time to say that it was begun, nor to send the verdicts of those
before it: the broker can only guess then which one it was. With this it knows, the next time that message comes.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Final

from msgbroker.client.handle.waiters import Waiters

TURN_SECONDS: Final = 0.25
"""How long a turn lasts at most: a handler that takes longer holds up the next one no more."""
START_TURNS_MAX: Final = 5_000


class Turns:
    """The turns that the workers of all handlers of a session take for suspect messages, or for all at its start."""

    def __init__(self, confirmed: Callable[[], Awaitable[None]]) -> None:
        """Make them; *confirmed* waits until the broker has heard all that was said so far."""
        self._confirmed = confirmed
        self._loop = asyncio.get_running_loop()
        self._number = 0
        self._holder: int | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._waiters = Waiters()
        self._has_ended = False
        self._start_until = 0.0
        self._start_turns_left = 0

    def start_carefully(self, seconds: float) -> None:
        """Ask for turns for whatever comes in the next *seconds*, or for so many messages."""
        self._start_until = self._loop.time() + seconds
        self._start_turns_left = START_TURNS_MAX

    @property
    def are_for_all(self) -> bool:
        """Whether all messages need turns, suspect or not."""
        return self._start_turns_left > 0 and self._loop.time() < self._start_until and not self._has_ended

    def end(self) -> None:
        """Let everybody go on: the session is over."""
        self._has_ended = True
        self._waiters.wake_next()

    async def take(self) -> int | None:
        """Wait for a turn and return its number, for `give`; None where the session is over."""
        while self._holder is not None and not self._has_ended:
            await self._waiters.wait(self._waiters.wake_next)
        if self._has_ended:
            self._waiters.wake_next()
            return None
        self._start_turns_left -= 1
        self._number += 1
        turn = self._holder = self._number
        self._timer = self._loop.call_later(TURN_SECONDS, self.give, turn)
        return turn

    def give(self, turn: int) -> None:
        """Let the next one begin. Once for each turn; what comes late changes nothing."""
        if self._holder == turn:
            self._holder = None
            if self._timer is not None:
                self._timer.cancel()
            self._waiters.wake_next()

    async def confirmed(self) -> None:
        """Wait until the broker has heard all that was said so far; not for ever, if it does not tell."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(TURN_SECONDS):
                await self._confirmed()
