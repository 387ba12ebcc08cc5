"""Running coroutines beside each other and stopping them without leaving anything behind."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

ResultT = TypeVar("ResultT")

OnFailure = Callable[[str, BaseException], bool]
"""Told what has ended, and by what, where a part of the client ends for a reason that nobody foresaw. Returns whether
somebody waits in `run`, who gets it raised."""


async def first_of(*coroutines: Coroutine[Any, Any, None]) -> None:
    """Run them until one raises or all have returned; stop the others and raise what was raised first.

    Where several raised in the same moment, the one named first counts.
    """
    tasks = [asyncio.ensure_future(coroutine) for coroutine in coroutines]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        for task in tasks:
            if task.done():
                task.result()
    finally:
        await cancel_and_wait(*tasks)


async def unless(happens: asyncio.Event, coroutine: Coroutine[Any, Any, ResultT]) -> ResultT | None:
    """Return what *coroutine* returns; where the event *happens* first, stop it and return None."""
    working = asyncio.ensure_future(coroutine)
    happening = asyncio.ensure_future(happens.wait())
    try:
        await asyncio.wait([working, happening], return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        await cancel_and_wait(working, happening)


async def cancel_and_wait(*tasks: asyncio.Future[Any]) -> None:
    """Cancel tasks and wait until they have ended, however they do."""
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.gather(*tasks, return_exceptions=True)


class LoopEndedError(Exception):
    """The event loop ends, as it does behind asyncio.run, and the center was not closed before."""


def cancelled_by_others() -> Exception:
    """Return what a task ended by that somebody cancelled who had no business to: as loud as any failure.

    A loop that ends cancels every task there is: that is no failure.
    """
    if all(task.cancelling() for task in asyncio.all_tasks()):
        return LoopEndedError("the event loop has ended")
    return RuntimeError("its task was cancelled, and not by closing the center")
