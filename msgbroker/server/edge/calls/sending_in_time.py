"""How long a client may take to send what it has begun: whoever serves it waits, with a place and perhaps with room.

The time is counted in looks, and only a look that comes when it should tells anything of the client. One that comes
late tells that this process had no time: what the client has sent may be there, and the event loop would hear of the
time that has passed before it hears of that.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from msgbroker.contract import limits
from msgbroker.contract.errors import UnfinishedError

_LOOKS: Final = 10
_LATE: Final = 0.5
"""A look that comes later than by this part of the time between two is late."""


class Sending:
    """Something that a client is to send, and the time that is left for it."""

    def __init__(self, seconds: float, bound: asyncio.Timeout) -> None:
        self._loop = asyncio.get_running_loop()
        self._bound = bound
        self._look_seconds = seconds / _LOOKS
        self._looks_left = _LOOKS
        self._timer = self._look_later()

    @property
    def waited_seconds(self) -> float:
        """How long it has been waited for, as far as this process had time to look."""
        return (_LOOKS - self._looks_left) * self._look_seconds

    def give_up(self) -> None:
        """Wait no longer: it counts as not sent in time."""
        if not self._bound.expired():
            self._bound.reschedule(self._loop.time())

    def done(self) -> None:
        """Note that all was sent: nothing is looked at any more."""
        self._timer.cancel()

    def _look_later(self) -> asyncio.TimerHandle:
        return self._loop.call_later(self._look_seconds, self._look)

    def _look(self) -> None:
        self._looks_left -= 1
        is_late = self._loop.time() - self._timer.when() > _LATE * self._look_seconds
        # However busy this process is, there is an end.
        if self._looks_left <= (-_LOOKS if is_late else 0):
            self.give_up()
        else:
            self._timer = self._look_later()


@asynccontextmanager
async def sent_in_time(what: str, size_bytes: int = 0) -> AsyncIterator[Sending]:
    """Bound what is awaited inside: what may be sent in one gRPC message, or *size_bytes* of parts.

    Raises UnfinishedError, which says that *what* was not complete.
    """
    # A slow way to here carries the same in the same time, however it is divided.
    seconds = limits.REQUEST_SECONDS_MAX * max(1, -(-size_bytes // limits.GRPC_MESSAGE_BYTES_MAX))
    bound = asyncio.timeout(None)
    sending = Sending(seconds, bound)
    try:
        async with bound:
            yield sending
    except TimeoutError as error:
        raise UnfinishedError(what, sending.waited_seconds) from error
    finally:
        sending.done()
