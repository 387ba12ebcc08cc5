"""Reads and turns of the pump run beside the loops: what one of them fails with is not lost."""

from __future__ import annotations

import asyncio

import pytest

from msgbroker.server.deliver.watched_tasks import WatchedTasks


async def fail() -> None:
    raise ValueError("odd")


async def wait_for_ever() -> None:
    await asyncio.Event().wait()


async def test_what_a_task_fails_with_is_raised_by_the_loop_that_watches_them() -> None:
    tasks = WatchedTasks()
    watching = asyncio.ensure_future(tasks.run(asyncio.Event()))
    tasks.start(fail())

    with pytest.raises(ValueError, match="odd"):
        await watching


async def test_what_work_without_a_task_fails_with_is_raised_as_well() -> None:
    def fail_at_once() -> None:
        raise ValueError("odd")

    tasks = WatchedTasks()
    watching = asyncio.ensure_future(tasks.run(asyncio.Event()))
    tasks.call_soon(fail_at_once)

    with pytest.raises(ValueError, match="odd"):
        await watching


async def test_what_failed_before_anybody_watched_is_raised_as_well() -> None:
    tasks = WatchedTasks()
    tasks.start(fail())
    await asyncio.sleep(0)
    await asyncio.sleep(0)

    with pytest.raises(ValueError, match="odd"):
        await tasks.run(asyncio.Event())


async def test_the_watch_ends_when_it_is_stopped_whatever_is_under_way() -> None:
    tasks, stop = WatchedTasks(), asyncio.Event()
    tasks.start(wait_for_ever())
    watching = asyncio.ensure_future(tasks.run(stop))
    await asyncio.sleep(0)
    stop.set()
    await watching

    (left,) = tasks.cancel_all()
    await asyncio.wait([left])
    assert left.cancelled()
    assert tasks.cancel_all() == []
