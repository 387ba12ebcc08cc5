"""How far a stream goes in one batch: as many messages as it may, shared by the queues that have some. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from typing import NamedTuple


class Waiting(NamedTuple):
    """What a queue has for a stream: from the offset that comes next to where it ends."""

    first: int
    end: int
    row_bytes: float = 1.0
    """About what a message of it has."""

    @property
    def messages(self) -> int:
        """How many messages it is."""
        return max(0, self.end - self.first)


def admit(waiting: Mapping[int, Waiting], messages_max: int | None, bytes_max: int | None) -> dict[int, int]:
    """Return, for each queue, where the batch ends: so many messages and about so many bytes at most, None for all.

    Each queue gets the same part of what it has, so that all of them reach their ends together. Where something waits,
    something is read, whatever its size.
    """
    count = sum(each.messages for each in waiting.values())
    total_bytes = sum(each.messages * each.row_bytes for each in waiting.values())
    messages_left = count if messages_max is None else messages_max
    # Sums of estimates are not exact: without a bound there is more than enough.
    bytes_left = 2 * total_bytes if bytes_max is None else bytes_max
    part = min(1.0, messages_left / max(count, 1), bytes_left / max(total_bytes, 1))
    ends = {queue_id: each.first for queue_id, each in waiting.items()}
    # The smallest first, rounded up: of a part of few messages nothing would be left.
    for queue_id, each in sorted(waiting.items(), key=lambda item: (item[1].messages, item[0])):
        taken = min(ceil(each.messages * part), messages_left, int(bytes_left // each.row_bytes))
        ends[queue_id] += taken
        messages_left -= taken
        bytes_left -= taken * each.row_bytes
        last = queue_id
    if count and all(ends[queue_id] == each.first for queue_id, each in waiting.items()):
        ends[last] += 1
    return ends
