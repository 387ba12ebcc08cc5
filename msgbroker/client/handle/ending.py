"""Whether a worker that is cancelled is meant, or only a handler that it runs.

A worker ends when it is told to: by the center, or by the end of the whole loop, which cancels the task of its stream
as well. Any other cancellation is a handler's own doing, or of a library in it that bounds time by cancelling the task
it runs in: that message has failed, and the worker goes on.
"""

from __future__ import annotations

import asyncio


class Ending:
    """Tells the workers of one group's handlers when to end."""

    def __init__(self) -> None:
        self._has_begun = False
        self._stream: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Tell the workers to end, for good."""
        self._has_begun = True

    def follow(self, stream: asyncio.Task[None]) -> None:
        """Let them end with the task of their stream: without it nothing comes any more."""
        self._stream = stream

    @property
    def is_told(self) -> bool:
        """Whether workers are to end: who cancels one means it."""
        stream = self._stream
        return self._has_begun or (stream is not None and (stream.done() or stream.cancelling() > 0))

    async def pause(self) -> None:
        """Let the loop turn, and undo what handlers have asked of the worker that they ran in.

        The next handler would be cut off by that, or its own bounds of time go wrong.
        """
        task = asyncio.current_task()
        assert task is not None  # a worker is one
        try:
            while task.cancelling() and not self.is_told:
                task.uncancel()
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            if self.is_told:
                raise


def is_cancelled() -> bool:
    """Return whether the task that runs was asked to end, and that was not taken back."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
