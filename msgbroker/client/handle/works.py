"""What the workers of a handler are at: said to be begun, kept as long as it takes, and stopped where it is lost.

If the stream ends while a handler runs, the handler goes on: its message may come again to this process, and then the
call that runs answers for that as well. Where it has not come again in time, or is known to be somebody else's, it is
stopped. A call in a thread cannot be: it goes on, and answers if its message comes again here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from msgbroker.client.handle.handed import HandedMessage
from msgbroker.client.handle.handlers import Handler
from msgbroker.client.handle.holding import Hold
from msgbroker.client.handle.message_logs import keys_of
from msgbroker.client.values.log_lines import log_line
from msgbroker.contract import limits

AGAIN_SECONDS_MAX: Final = 600.0
"""How long a handler may go on whose message was lost with its stream, whatever the ack timeout."""


class Work:
    """What one worker of a handler is at."""

    __slots__ = (
        "extended",
        "extended_at",
        "has_thread",
        "lost_with",
        "message",
        "said",
        "since",
        "spoken_of",
        "stopped",
        "worker",
    )

    def __init__(self, worker: asyncio.Task[None]) -> None:
        self.worker = worker
        self.has_thread = False
        """Whether a thread is its own, for its next call."""
        self.message: HandedMessage | None = None
        self.since = 0.0
        """When, by the loop's clock, it began with that message."""
        self.said: HandedMessage | None = None
        """The message that it has last said to have begun."""
        self.extended: HandedMessage | None = None
        """The message that it has last extended; when that was, is the next line."""
        self.extended_at = 0.0
        self.spoken_of: HandedMessage | None = None
        """The message that it was last logged to be slow with."""
        self.lost_with: dict[bytes, Work] | None = None
        """All that was lost with it when its stream ended; None: its message has come again since."""
        self.stopped: HandedMessage | None = None
        """The message that it was last cancelled for: that call ends, and answers for nothing any more."""

    def is_at(self, message_id: bytes) -> bool:
        """Whether it is that message that it handles."""
        return self.message is not None and self.message.id_bytes == message_id

    def go_on_with(self, again: HandedMessage) -> None:
        """Answer for a hand-out of the same message, which is handled already."""
        assert self.message is not None  # or nothing goes on
        self.message.come_again(again)
        self.said = self.extended = self.lost_with = None


class Works:
    """What all workers of one handler are at."""

    def __init__(self, handler: Handler, loop: asyncio.AbstractEventLoop) -> None:
        self._handler = handler
        self._loop = loop
        self._works: list[Work] = []
        self._lost: dict[bytes, Work] = {}
        """By its id, each message that is not this instance's any more, as far as is known, and what is at it."""

    def __iter__(self) -> Iterator[Work]:
        return iter(self._works)

    def add(self, work: Work) -> None:
        """Take in the work of a worker that begins."""
        self._works.append(work)

    def remove(self, work: Work) -> None:
        """Forget the work of a worker that has ended."""
        self._works.remove(work)

    # --- what is begun ----------------------------------------------------------------------------------------------

    def unsaid_since(self) -> float | None:
        """Return since when the handler has been at a message that was not said to be begun; None: at none."""
        return min((w.since for w in self._works if w.message is not None and w.message is not w.said), default=None)

    def say_begun(self, began_until: float, count_max: int) -> int:
        """Say of messages begun until then, and not said before, that they are; return of how many."""
        count = 0
        for work in self._works:
            message = work.message
            if message is not None and message is not work.said and work.since <= began_until and count < count_max:
                work.said = message
                message.begin()
                count += 1
        return count

    # --- what is extended -------------------------------------------------------------------------------------------

    def extend_due(self, hold: Hold) -> None:
        """Extend the time of what the handler is at, where it is needed by now; say so where it takes long."""
        now = self._loop.time()
        for work in self._works:
            message = work.message
            if message is None:
                continue
            seconds = now - work.since
            if seconds >= hold.limit_seconds / 2 and work.spoken_of is not message:
                work.spoken_of = message
                self._log("handler.found_slow", work, message, f"after {hold.limit_seconds:g} s it is given to others")
            extended_at = work.extended_at if work.extended is message else message.begin_by - hold.start_seconds
            if seconds < hold.handle_seconds_max and now - extended_at >= hold.extend_seconds:
                work.extended = work.said = message
                work.extended_at = now
                _extend(message, hold.ack_timeout_seconds)

    @property
    def are_held(self) -> bool:
        """Whether the handler is at messages that nobody else was given, as far as is known."""
        return any(work.message is not None and work.message.is_held for work in self._works)

    def extend_all(self, seconds: float) -> None:
        """Keep all that the handler is at for so long from now on."""
        for work in self._works:
            if work.message is not None:
                _extend(work.message, seconds)

    # --- what is lost -----------------------------------------------------------------------------------------------

    def lose_stream(self, again_seconds: float) -> None:
        """Take note that the stream has ended; what the handler is at has so long to come again."""
        self._forget_done()
        lost: dict[bytes, Work] = {}
        for work in self._works:
            message = work.message
            # Who has waited for its message since an earlier end has the time of then.
            if message is not None and message is not work.stopped and message.id_bytes not in self._lost:
                message.lose()
                lost[message.id_bytes] = work
                work.lost_with = lost
        if lost:
            self._lost.update(lost)
            self._loop.call_later(min(again_seconds, AGAIN_SECONDS_MAX), self._give_up, lost)

    def take_back(self, is_meant: Callable[[HandedMessage], bool], why: str) -> None:
        """Take note that messages are somebody else's now, and stop what is at them."""
        self._forget_done()
        for work in self._works:
            message = work.message
            if message is not None and is_meant(message):
                message.lose()
                self._lost[message.id_bytes] = work
                self._stop(work, message, why)

    @property
    def are_lost(self) -> bool:
        """Whether a message may come again that is being handled."""
        return bool(self._lost)

    def go_on(self, messages: Sequence[HandedMessage]) -> list[HandedMessage]:
        """Let the calls that are at some of these messages answer for them as they come again; return the others."""
        return [message for message in messages if not self._goes_on(message)]

    def _goes_on(self, message: HandedMessage) -> bool:
        work = self._lost.pop(message.id_bytes, None)
        if work is None or not work.is_at(message.id_bytes):
            return False
        work.go_on_with(message)
        return True

    def _give_up(self, lost: dict[bytes, Work]) -> None:
        for message_id, work in lost.items():
            is_lost = work.lost_with is lost and self._lost.get(message_id) is work
            if is_lost and work.message is not None and work.is_at(message_id):
                self._stop(work, work.message, "the connection was lost, and it has not come again")
        self._forget_done()

    def _stop(self, work: Work, message: HandedMessage, why: str) -> None:
        if self._handler.is_async:
            self._log("handler.taken_back", work, message, f"{why}; the handler is cancelled")
            self._lost.pop(message.id_bytes, None)
            work.stopped = message
            work.worker.cancel()
        else:
            self._log("handler.taken_back", work, message, f"{why}; the handler goes on in its thread")

    def _forget_done(self) -> None:
        self._lost = {message_id: work for message_id, work in self._lost.items() if work.is_at(message_id)}

    def _log(self, event: str, work: Work, message: HandedMessage, what: str) -> None:
        seconds = f"{self._loop.time() - work.since:.1f}"
        log_line(logging.WARNING, event, what, **keys_of(self._handler.group, message), seconds=seconds)


def _extend(message: HandedMessage, seconds: float) -> None:
    message.extend(min(seconds, limits.HANDLE_SECONDS_CEILING))
