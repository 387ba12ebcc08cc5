"""How far back a queue's or publisher's tail can be: what this broker saw there last.

A lower bound only. It lets PostgreSQL leave out the partitions of earlier days; with no bound it looks at all of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final

_LONG_AGO: Final = datetime(2000, 1, 1, tzinfo=UTC)
_PUBLISHERS_MAX: Final = 20_000


class TailBounds:
    """The latest stored_at this broker knows of each queue and publisher."""

    def __init__(self) -> None:
        self._queues: dict[int, int] = {}
        self._publishers: dict[bytes, int] = {}

    def saw_queues(self, queue_ids: Iterable[int], stored_at_us: int) -> None:
        """Remember that these queues end at or after *stored_at_us*."""
        for queue_id in queue_ids:
            self._queues[queue_id] = stored_at_us

    def saw_publishers(self, publisher_ids: Iterable[bytes], stored_at_us: int) -> None:
        """Remember that these publishers' last frames are at or after *stored_at_us*."""
        for publisher_id in publisher_ids:
            # Taken out and put back: the dict's order is the order of use, and the first is the one to forget.
            self._publishers.pop(publisher_id, None)
            self._publishers[publisher_id] = stored_at_us
        while len(self._publishers) > _PUBLISHERS_MAX:
            del self._publishers[next(iter(self._publishers))]

    def queues_since(self, queue_ids: Iterable[int]) -> datetime:
        """Return a time that none of these queues' tails is before."""
        return _earliest(self._queues.get(queue_id) for queue_id in queue_ids)

    def publishers_since(self, publisher_ids: Iterable[bytes]) -> datetime:
        """Return a time that none of these publishers' last frames is before."""
        return _earliest(self._publishers.get(publisher_id) for publisher_id in publisher_ids)


def _earliest(known: Iterable[int | None]) -> datetime:
    earliest: int | None = None
    for time_us in known:
        if time_us is None:
            return _LONG_AGO
        if earliest is None or time_us < earliest:
            earliest = time_us
    return _LONG_AGO if earliest is None else datetime.fromtimestamp(earliest / 1_000_000 - 1, UTC)
