"""A context of its own for each call of a handler, although one task makes many of these calls.

What a handler sets in a ContextVar (a tenant, a trace id) is its own: the next message's handler must not see it, and a
task for each message would cost more than most handlers do. So the worker's task stays the one that runs, which time
limits and cancellation go by, and each step of the handler's coroutine is made inside the message's context. What the
coroutine waits for is handed on to the task untouched: asyncio sees no difference.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context
from typing import Any

from msgbroker.client.handle.outcomes import run_out


class _Unfinished:
    """A coroutine that has begun and waits for something."""

    __slots__ = ("awaited", "coroutine")

    def __init__(self, coroutine: Coroutine[Any, Any, Any], awaited: Any) -> None:
        self.coroutine = coroutine
        self.awaited = awaited


def begin(function: Callable[[Any], Any], argument: Any) -> Any:
    """Call a function, in a context; of the coroutine that it returns make the first step: most have no other one.

    What this returns is for `go_on`, unless it is None.
    """
    outcome = function(argument)
    if isinstance(outcome, types.CoroutineType):
        try:
            awaited = outcome.send(None)
        except StopIteration as end:
            return end.value
        return _Unfinished(outcome, awaited)
    return outcome


async def go_on(context: Context, outcome: Any) -> Any:
    """Return what comes of what was begun: it is awaited, and so is what comes of that (`run_out`), in *context*."""
    if isinstance(outcome, _Unfinished):
        outcome = await _finish(context, outcome)
    if outcome is not None:
        outcome = context.run(begin, run_out, outcome)
        if isinstance(outcome, _Unfinished):
            outcome = await _finish(context, outcome)
    return outcome


@types.coroutine
def _finish(context: Context, unfinished: _Unfinished) -> Generator[Any, Any, Any]:
    """Make the other steps of a coroutine, whenever the task is woken."""
    coroutine, awaited = unfinished.coroutine, unfinished.awaited
    try:
        while True:
            try:
                sent = yield awaited
            except GeneratorExit:
                # Nobody goes on with it: the loop has ended.
                context.run(coroutine.close)
                raise
            except BaseException as thrown:  # noqa: BLE001 - the coroutine's to take: a cancellation above all
                awaited = context.run(coroutine.throw, thrown)
            else:
                awaited = context.run(coroutine.send, sent)
    except StopIteration as end:
        return end.value
