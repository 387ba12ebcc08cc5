"""Numbers for frames that come without a publisher: the appender publishes them under an id of its own.

So a COMMIT whose answer was lost is resolved for them, too. An id is used while every attempt under it had a known end;
after a lost connection a new one is taken, and the old one is never used for numbering again: what stands under it in
the database then says exactly which of the frames that carry it are stored.

A number belongs to the attempt that gave it. Where its end is known (committed, or rolled back) the frame carries none
any more: the next attempt gives the same number to another frame. Only an attempt with an unknown end leaves it there.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping

from msgdb.append.plan import AppendFrame, PublisherTail


class AnonymousNumbers:
    """Gives frames without a publisher an id of the appender's own, and their numbers under it."""

    def __init__(self) -> None:
        self._own_id = secrets.token_bytes(16)
        self._numbered: list[AppendFrame] = []
        """The frames that were given numbers by the transaction that is open."""

    def adopt(self, frames: Iterable[AppendFrame]) -> None:
        """Give frames without a publisher the own id; their numbers come in the transaction."""
        for frame in frames:
            if not frame.publisher_id:
                frame.is_anonymous = True
                frame.publisher_id = self._own_id
                frame.sequence = 0

    def publisher_ids(self, frames: Iterable[AppendFrame]) -> set[bytes]:
        """Return whose locks and tails storing *frames* needs."""
        ids: set[bytes] = set()
        for frame in frames:
            ids.add(frame.publisher_id)
            if frame.is_anonymous:
                ids.add(self._own_id)
        return ids

    def number(self, frames: Iterable[AppendFrame], tails: Mapping[bytes, PublisherTail]) -> None:
        """Number the anonymous frames, all but those that an attempt with an unknown end turns out to have stored."""
        own_tail = tails.get(self._own_id)
        last = own_tail.sequence if own_tail is not None else 0
        for frame in frames:
            if not frame.is_anonymous or self._is_stored(frame, tails):
                continue
            last += 1
            frame.publisher_id = self._own_id
            frame.sequence = last
            self._numbered.append(frame)

    def transaction_ended(self) -> None:
        """Take the numbers back that the transaction gave: its end is known."""
        for frame in self._numbered:
            frame.sequence = 0
        self._numbered.clear()

    def connection_lost(self) -> None:
        """Take a new id: whether the last attempt was committed is unknown, and the frames' numbers will tell."""
        self._numbered.clear()
        self._own_id = secrets.token_bytes(16)

    def _is_stored(self, frame: AppendFrame, tails: Mapping[bytes, PublisherTail]) -> bool:
        # Under the own id it carries no number yet.
        tail = tails.get(frame.publisher_id)
        return tail is not None and 0 < frame.sequence <= tail.sequence
