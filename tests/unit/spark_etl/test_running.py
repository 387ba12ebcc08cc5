"""Work is run to its end for callers without a loop, and for those in the middle of one."""

from __future__ import annotations

import asyncio
import signal
import threading
from contextlib import suppress

import pytest

from spark_etl.running import run_to_end


async def thread_of_its_own() -> int:
    await asyncio.sleep(0)
    return threading.get_ident()


async def failing() -> None:
    raise ValueError("no")


def test_without_a_loop_it_runs_in_the_callers_thread() -> None:
    assert run_to_end(thread_of_its_own()) == threading.get_ident()


async def test_within_a_loop_it_runs_beside_it() -> None:
    assert run_to_end(thread_of_its_own()) != threading.get_ident()


async def test_what_it_fails_with_is_raised() -> None:
    with pytest.raises(ValueError, match="no"):
        run_to_end(failing())


def test_an_interrupt_is_raised_once_the_work_has_ended_in_good_order() -> None:
    ended: list[str] = []

    async def work() -> None:
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await asyncio.sleep(0)
            ended.append("in good order")
            raise

    loop = asyncio.new_event_loop()

    def within_the_loop() -> None:
        # As in a notebook: its loop runs, and is what is interrupted.
        with suppress(KeyboardInterrupt):
            run_to_end(work())
            ended.append("not interrupted")
        loop.stop()

    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        loop.call_soon(within_the_loop)
        loop.run_forever()
    finally:
        signal.signal(signal.SIGINT, previous)
        loop.close()
    assert ended == ["in good order"]
