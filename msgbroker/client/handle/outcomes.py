"""What a handler's call returned: nothing of it may be left to be run, or what is acknowledged was not handled.

Whether a function is async can be seen of the function itself only: one that is wrapped by an ordinary decorator, or
called by a lambda, is ordinary, and what it returns is the coroutine. So it is looked at what came out.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import inspect
from typing import Any


async def run_out(outcome: Any) -> Any:
    """Return what comes of what a call returned: what can be awaited is. Raises TypeError for what stays unrun."""
    if isinstance(outcome, concurrent.futures.Future):
        outcome = asyncio.wrap_future(outcome)
    if inspect.isawaitable(outcome):
        outcome = await outcome
    if _is_to_be_run(outcome):
        discard(outcome)
        raise TypeError(f"the handler returned a {type(outcome).__name__}, and nothing of that was run")
    return outcome


def discard(outcome: Any) -> None:
    """Let go of what a call returned, and nobody waits for any more."""
    if inspect.iscoroutine(outcome):
        # Or Python would warn that it was never awaited.
        outcome.close()


def _is_to_be_run(outcome: Any) -> bool:
    return (
        inspect.isgenerator(outcome)
        or inspect.isasyncgen(outcome)
        or inspect.isawaitable(outcome)
        or isinstance(outcome, concurrent.futures.Future)
    )
