"""Running what is asynchronous to its end, for callers that are not: in programs, and where a loop runs already."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from concurrent.futures import Future, wait
from contextlib import suppress
from threading import Thread
from typing import Any, Final, TypeVar

T = TypeVar("T")

_BEGIN_SECONDS_MAX: Final = 10.0


def run_to_end(work: Coroutine[Any, Any, T]) -> T:
    """Run *work* in a loop of its own and return what it returns.

    Where this thread runs a loop already, as a notebook's does, the other one is in a thread of its own, and this one
    waits: an interrupt of it cancels *work*, and is raised once that has ended in good order.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    return _run_beside(work)


def _run_beside(work: Coroutine[Any, Any, T]) -> T:
    begun: Future[tuple[asyncio.AbstractEventLoop, asyncio.Task[Any]]] = Future()
    ended: Future[T] = Future()

    def run() -> None:
        try:
            ended.set_result(asyncio.run(_noted(work, begun)))
        except BaseException as error:  # noqa: BLE001 - raised where it is waited for
            ended.set_exception(error)

    try:
        Thread(target=run, name="spark_etl", daemon=True).start()
        return ended.result()
    except BaseException:
        # An interrupt may come at any moment, also before *work* has begun.
        if not ended.done():
            loop, task = begun.result(_BEGIN_SECONDS_MAX)
            # It may end by itself at this very moment.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(task.cancel)
            wait([ended])
        raise


async def _noted(work: Coroutine[Any, Any, T], begun: Future[tuple[asyncio.AbstractEventLoop, asyncio.Task[Any]]]) -> T:
    """Say by what *work* can be cancelled, and do it."""
    task = asyncio.current_task()
    assert task is not None, "a loop runs tasks"
    begun.set_result((asyncio.get_running_loop(), task))
    return await work
