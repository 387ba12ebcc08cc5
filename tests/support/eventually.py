"""Waiting for something to become so, within a bound: the only way a test waits for what gives it no signal."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, overload

ResultT = TypeVar("ResultT")

_LOOK_SECONDS = 0.02


@overload
async def eventually(look: Callable[[], Awaitable[ResultT]], seconds: float = ..., *, what: str = ...) -> ResultT: ...
@overload
async def eventually(look: Callable[[], ResultT], seconds: float = ..., *, what: str = ...) -> ResultT: ...
async def eventually(look: Callable[[], Any], seconds: float = 10.0, *, what: str = "") -> Any:
    """Return the first true result of *look*; fail after *seconds* with the last one."""
    deadline = time.monotonic() + seconds
    while True:
        seen = look()
        result = await seen if inspect.isawaitable(seen) else seen
        if result:
            return result
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what or inspect.getsource(look).strip()}"
        await asyncio.sleep(_LOOK_SECONDS)


def eventually_blocking(look: Callable[[], ResultT], seconds: float = 10.0, *, what: str = "") -> ResultT:
    """As `eventually`, for tests without an event loop."""
    deadline = time.monotonic() + seconds
    while not (result := look()):
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what or inspect.getsource(look).strip()}"
        time.sleep(_LOOK_SECONDS)
    return result
