"""The answers of one publisher's stream, from a frame's submission until the publisher has been told.

A publisher may not read its answers. They are encoded as soon as they are known, because what they are made of is
several times as large, and count as outgoing bytes; and a stream with much that it was not told is not read further.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from msgbroker.contract import limits
from msgbroker.server.deliver.outgoing import Outlet
from msgdb.append.plan import FrameResult

_REFUSALS_MAX: Final = 250
"""How many refusals a stream's unanswered frames may have. An answer has some bytes for a message, and hundreds for a
refusal."""


@dataclass(slots=True, eq=False)
class _Expected:
    """A frame of a stream that is to be answered, and its answer once that is known."""

    result: asyncio.Future[FrameResult] | None
    refusals: int
    encoded: bytes = b""
    failure: Exception | None = None
    """An error that is none of ours: the stream ends with it."""


class Answers:
    """What a stream's publisher was not told yet, frame by frame in their order."""

    def __init__(self, outlet: Outlet, encode: Callable[[int, asyncio.Future[FrameResult]], bytes]) -> None:
        self.outlet = outlet
        self.wake = asyncio.Event()
        """Set when there may be something to write."""
        self._encode = encode
        self._expected: deque[_Expected] = deque()
        self._refusals = 0
        self._has_room = asyncio.Event()
        outlet.on_room(self._has_room.set)

    @property
    def are_given(self) -> bool:
        """Whether every frame of the stream is answered."""
        return not self._expected

    @property
    def unanswered_count(self) -> int:
        """How many frames are not answered."""
        return len(self._expected)

    def expect(self, sequence: int, result: asyncio.Future[FrameResult], refusals: int) -> None:
        """Take note of a frame that was submitted, and of how many of its messages are refused already."""
        expected = _Expected(result, refusals)
        self._expected.append(expected)
        self._refusals += refusals
        result.add_done_callback(partial(self._take, expected, sequence))

    def next(self) -> bytes:
        """Return the next answer, encoded, if it is known; else nothing."""
        if not self._expected:
            return b""
        expected = self._expected[0]
        if expected.failure is not None:
            raise expected.failure
        if expected.encoded:
            self._expected.popleft()
            self._refusals -= expected.refusals
            self.outlet.hold(-len(expected.encoded))
        return expected.encoded

    def begin_write(self, answer: bytes) -> None:
        """Note that *answer* is given to gRPC; `written` ends that."""
        self.outlet.begin_write(len(answer))

    def written(self) -> None:
        """Note that gRPC has taken over what was written."""
        self.outlet.end_write()
        self._has_room.set()

    async def room(self) -> None:
        """Wait until another frame may be read."""
        while self._expected and self._is_full:
            self._has_room.clear()
            await self._has_room.wait()

    def forget(self) -> None:
        """Wait for nothing any more: the stream has ended. What is in the committer is stored all the same."""
        for expected in self._expected:
            if expected.result is not None:
                expected.result.cancel()

    @property
    def _is_full(self) -> bool:
        return (
            len(self._expected) >= limits.FRAMES_UNANSWERED_MAX
            or self._refusals >= _REFUSALS_MAX
            or self.outlet.room_bytes <= 0
        )

    def _take(self, expected: _Expected, sequence: int, result: asyncio.Future[FrameResult]) -> None:
        expected.result = None
        if result.cancelled():
            return
        try:
            expected.encoded = self._encode(sequence, result)
        except Exception as failure:  # noqa: BLE001 - raised where the stream is served
            expected.failure = failure
        self.outlet.hold(len(expected.encoded))
        self.wake.set()
