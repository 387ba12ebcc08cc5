"""The pieces every loop of the broker shares."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

from msgdb.postgres.pausing import pause

__all__ = ["PatientCall", "pause", "woken"]

ResultT = TypeVar("ResultT")


async def woken(stop: asyncio.Event, wake: asyncio.Event, seconds: float | None = None) -> None:
    """Wait until *wake* or *stop* is set, or *seconds* have passed; *wake* is cleared.

    Others have their turn in any case: a loop whose work sets *wake* again does not keep the event loop to itself.
    """
    waiting = [asyncio.ensure_future(event.wait()) for event in (stop, wake)]
    try:
        await asyncio.wait(waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in waiting:
            each.cancel()
    # Nothing runs between here and what the caller does next: it sees all that was there when *wake* was set.
    wake.clear()


class PatientCall(Generic[ResultT]):
    """A call to a database that may hang: waited for only so long, and never made twice at a time.

    Cancelling it would not do: the driver first asks the server to cancel, and waits for that. So a call that was not
    answered in time goes on, and whoever calls next waits for its answer.
    """

    def __init__(self, make: Callable[[], Coroutine[Any, Any, ResultT]], seconds: float) -> None:
        self._make = make
        self._seconds = seconds
        self._call: asyncio.Task[ResultT] | None = None

    async def __call__(self) -> ResultT:
        """Return the answer, or raise what the call raised, or TimeoutError."""
        call = self._call
        if call is None:
            call = self._call = asyncio.get_running_loop().create_task(self._make())
        try:
            await asyncio.wait((call,), timeout=self._seconds)
        except asyncio.CancelledError:
            call.cancel()
            raise
        if not call.done():
            raise TimeoutError
        self._call = None
        return call.result()
