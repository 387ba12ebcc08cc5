"""What operators hear when clients ask for more than a broker has: places that are taken, and clients that do not read.

A refusal is a moment; the alarm stands as long as there was one within the last minute.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from msgbroker.server import clock
from msgbroker.server.alarms.board import AlarmBoard
from msgbroker.server.deliver.outgoing import Outgoing
from msgbroker.server.edge.calls.places import Places
from msgbroker.server.loops import pause
from msgdb.reports.alarms import Alarm, AlarmKind

_LOOK_SECONDS: Final = 1.0
_STANDS_SECONDS: Final = 60.0


class OverloadWatch:
    """Lets alarms stand while clients find no place, or are ended because they do not read."""

    def __init__(
        self,
        places: Sequence[Places],
        outgoing: Outgoing,
        board: AlarmBoard,
        now: Callable[[], float] = clock.now,
    ) -> None:
        self._places = places
        self._outgoing = outgoing
        self._board = board
        self._now = now

    async def run(self, stop: asyncio.Event) -> None:
        """Look whether places or memory ran out, until *stop* is set."""
        while not stop.is_set():
            self.look_once()
            await pause(stop, _LOOK_SECONDS)

    def look_once(self) -> None:
        """Let just those alarms stand of which there was a case lately."""
        full = [_full(each.kind, each.count_max) for each in self._places if self._is_recent(each.refused_at)]
        self._board.replace(AlarmKind.STREAMS_FULL, full)
        is_short = self._is_recent(self._outgoing.ended_for_room_at)
        self._board.replace(AlarmKind.OUTGOING_FULL, [_outgoing_full(self._outgoing)] if is_short else [])

    def _is_recent(self, at: float | None) -> bool:
        return at is not None and self._now() - at < _STANDS_SECONDS


def _full(kind: str, count_max: int) -> Alarm:
    return Alarm(AlarmKind.STREAMS_FULL, kind, f"there are {count_max}; further ones are sent to other brokers")


def _outgoing_full(outgoing: Outgoing) -> Alarm:
    return Alarm(
        AlarmKind.OUTGOING_FULL,
        "clients that do not read",
        f"{outgoing.config.bytes_max // 2} bytes and more waited for clients; those that did not read were ended",
    )
