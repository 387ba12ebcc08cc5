"""The kind of thread that handlers run in, told from all others by those whom a handler calls.

What a handler calls must not wait for that handler: a fork waits until handlers are done, and so does a center that is
closed. Both ask here whether it is one of them that calls. Which threads there are, and who gets one, is decided in
`handle.threads`.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable


class HandlerThread(threading.Thread):
    """A daemon thread that calls the handlers of a center, which itself runs on *loop*."""

    def __init__(self, loop: asyncio.AbstractEventLoop, serve: Callable[[], None], name: str) -> None:
        super().__init__(target=serve, name=name, daemon=True)
        self.loop = loop


def is_handler_thread(loop: asyncio.AbstractEventLoop | None = None) -> bool:
    """Return whether the caller is a handler in a thread: of the center on *loop*, or, without one, of any center."""
    caller = threading.current_thread()
    return isinstance(caller, HandlerThread) and (loop is None or caller.loop is loop)
