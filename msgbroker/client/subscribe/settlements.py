"""Verdicts on their way back to the broker: gathered per lane, attempt and verdict, and sent as ranges of offsets.

What is begun goes the same way, and what is to be kept for longer, and before the verdicts: what is said of a message
after its verdict would be of nobody any more. A request takes what there is `RequestRoom` for of all, and the rest
comes with the next one.

Pure: no I/O. `Settlements` belongs to one stream. When it is closed, or a lane of it is revoked, verdicts that still
come in are dropped: the broker has given those messages to others, and a verdict on a new stream would be about another
hand-out.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, TypeVar

from msgbroker.client.values.texts import safe_text, text_of
from msgbroker.client.values.verdicts import Verdict, VerdictKind
from msgbroker.contract import limits

REQUEST_BYTES_MAX: Final = limits.GRPC_MESSAGE_BYTES_MAX - 4 * 1024
"""The bytes of what is begun and settled in one request: with the rest it must fit into what a broker takes at once."""
_ENTRY_BYTES: Final = 64
"""The bytes of one settlement at most, without ranges and error text; what is begun or extended takes less."""
_RANGE_BYTES: Final = 20
"""The bytes of a range, two offsets, at most."""

_ACK: Final = Verdict(VerdictKind.ACK)

KeyT = TypeVar("KeyT")


def error_of(verdict: Verdict) -> str:
    """Return a verdict's error text as the wire has it: the verdict may be one of the user's own making."""
    return safe_text(text_of(verdict.error), limits.ERROR_TEXT_CHARS_MAX)


@dataclass(slots=True)
class RequestRoom:
    """How much more fits into the request that is being put together."""

    ranges: int = limits.SETTLEMENT_RANGES_MAX
    size_bytes: int = REQUEST_BYTES_MAX

    def for_ranges(self, error: str = "") -> int:
        """Return how many ranges a further entry with that text may have; 0, or less: there is no room for it."""
        left_bytes = self.size_bytes - _ENTRY_BYTES - len(error.encode())
        return min(self.ranges, left_bytes // _RANGE_BYTES)

    def take(self, ranges: list[int], error: str = "") -> None:
        """Count an entry that was put in."""
        self.ranges -= len(ranges) // 2
        self.size_bytes -= _ENTRY_BYTES + len(error.encode()) + len(ranges) // 2 * _RANGE_BYTES


@dataclass(frozen=True, slots=True)
class SettledRanges:
    """One verdict on ranges of offsets of one lane."""

    queue_id: int
    epoch: int
    attempt: int
    verdict: Verdict
    ranges: list[int]
    """Offsets in pairs: first, last (inclusive), first, last, ..."""


@dataclass(frozen=True, slots=True)
class ExtendedRanges:
    """The offsets of one lane and attempt whose time to answer is to be extended."""

    queue_id: int
    epoch: int
    attempt: int
    extend_ms: int
    """How long the messages are to be kept, from when the broker hears of it."""
    ranges: list[int]
    """Offsets in pairs: first, last (inclusive), first, last, ..."""


@dataclass(frozen=True, slots=True)
class BegunRanges:
    """The offsets of one lane and attempt that were begun."""

    queue_id: int
    epoch: int
    attempt: int
    ranges: list[int]
    """Offsets in pairs: first, last (inclusive), first, last, ..."""


class StreamLane:
    """One lane as one stream sees it: gathers the verdicts on its messages."""

    __slots__ = ("_acked", "_owner", "epoch", "live", "queue_id")

    def __init__(self, owner: Settlements, queue_id: int, epoch: int) -> None:
        self.queue_id = queue_id
        self.epoch = epoch
        self.live = True
        self._owner = owner
        self._acked: list[int] = []

    def ack(self, queue_offset: int, attempt: int) -> None:
        """Settle a message as done."""
        if attempt > 1:
            self.settle(queue_offset, attempt, _ACK)
        elif self.live:
            # The one path that nearly all messages take.
            if not self._acked:
                self._owner.add_acked_lane(self)
            self._acked.append(queue_offset)

    def settle(self, queue_offset: int, attempt: int, verdict: Verdict) -> None:
        """Settle a message with any verdict."""
        if self.live:
            self._owner.add((self.queue_id, self.epoch, attempt, verdict), queue_offset)

    def begin(self, queue_offset: int, attempt: int) -> None:
        """Say that a message is begun."""
        if self.live:
            self._owner.begin((self.queue_id, self.epoch, attempt), queue_offset)

    def extend(self, queue_offset: int, attempt: int, seconds: float) -> bool:
        """Ask to keep a message for so long from now on; return False if it is too late. From any thread."""
        key = (self.queue_id, self.epoch, attempt, math.ceil(seconds * 1_000))
        if self.live:
            self._owner.in_loop(functools.partial(self._extend, key, queue_offset))
        return self.live

    def _extend(self, key: tuple[int, int, int, int], queue_offset: int) -> None:
        if self.live:
            self._owner.extend(key, queue_offset)

    def take_acked(self) -> list[int]:
        """Return the first-attempt acknowledgements since the last call."""
        acked, self._acked = self._acked, []
        return acked


_Key = tuple[int, int, int, Verdict]


class Settlements:
    """The verdicts of one stream that were not sent yet."""

    def __init__(self, on_first: Callable[[], None], in_loop: Callable[[Callable[[], None]], None]) -> None:
        """Call *on_first* whenever something is there to be sent after nothing was; *in_loop* has things done there."""
        self.in_loop = in_loop
        self.settled_count = 0
        """How many verdicts `take` has returned so far."""
        self._on_first = on_first
        self._lanes: dict[tuple[int, int], StreamLane] = {}
        self._acked_lanes: list[StreamLane] = []
        self._others: dict[_Key, list[int]] = {}
        self._begun: dict[tuple[int, int, int], list[int]] = {}
        self._extended: dict[tuple[int, int, int, int], list[int]] = {}

    @property
    def is_empty(self) -> bool:
        """Whether there is no verdict to send."""
        return not self._acked_lanes and not self._others

    @property
    def has_more(self) -> bool:
        """Whether something found no room in the last request, or came since."""
        return bool(self._begun or self._extended) or not self.is_empty

    def lane(self, queue_id: int, epoch: int) -> StreamLane:
        """Return the stream's one object for that lane."""
        lane = self._lanes.get((queue_id, epoch))
        if lane is None:
            lane = self._lanes[queue_id, epoch] = StreamLane(self, queue_id, epoch)
        return lane

    def revoke(self, queue_id: int, epoch: int) -> StreamLane | None:
        """Drop what was settled of that lane, and whatever will be; return the lane, if there was anything of it."""
        lane = self._lanes.pop((queue_id, epoch), None)
        if lane is not None:
            lane.live = False
            self._acked_lanes = [other for other in self._acked_lanes if other is not lane]
            self._others = {key: offsets for key, offsets in self._others.items() if key[:2] != (queue_id, epoch)}
            self._begun = {key: offsets for key, offsets in self._begun.items() if key[:2] != (queue_id, epoch)}
            self._extended = {key: offsets for key, offsets in self._extended.items() if key[:2] != (queue_id, epoch)}
        return lane

    def close(self) -> None:
        """Drop all verdicts that were not sent: the stream has ended."""
        for lane in self._lanes.values():
            lane.live = False
        self._lanes.clear()
        self._acked_lanes.clear()
        self._others.clear()
        self._begun.clear()
        self._extended.clear()

    def add_acked_lane(self, lane: StreamLane) -> None:
        """Take note that *lane* has acknowledgements."""
        was_empty = self.is_empty
        self._acked_lanes.append(lane)
        if was_empty:
            self._on_first()

    def add(self, key: _Key, queue_offset: int) -> None:
        """Take one verdict that is not a first-attempt acknowledgement."""
        offsets = self._others.get(key)
        if offsets is not None:
            offsets.append(queue_offset)
            return
        was_empty = self.is_empty
        self._others[key] = [queue_offset]
        if was_empty:
            self._on_first()

    def begin(self, key: tuple[int, int, int], queue_offset: int) -> None:
        """Take note that a message of (queue, epoch, attempt) is begun; it goes with whatever is sent next."""
        self._begun.setdefault(key, []).append(queue_offset)

    def extend(self, key: tuple[int, int, int, int], queue_offset: int) -> None:
        """Take note that a message of (queue, epoch, attempt) is to be kept for so many ms: it goes at once."""
        self._extended.setdefault(key, []).append(queue_offset)
        self._on_first()

    def take_begun(self, room: RequestRoom) -> list[BegunRanges]:
        """Return what was begun, as far as there is room for it."""
        return [BegunRanges(*key, ranges) for key, ranges in _taken_from(self._begun, room)]

    def take_extended(self, room: RequestRoom) -> list[ExtendedRanges]:
        """Return what is to be kept for longer, as far as there is room for it; after `take_begun`."""
        return [ExtendedRanges(*key, ranges) for key, ranges in _taken_from(self._extended, room)]

    def take(self, room: RequestRoom) -> list[SettledRanges]:
        """Return what to settle now, after the others and in the same request; nothing, as long as they have more."""
        taken: list[SettledRanges] = []
        if self._begun or self._extended:
            return taken
        while self._acked_lanes and (ranges_room := room.for_ranges()) > 0:
            lane = self._acked_lanes.pop()
            offsets = lane.take_acked()
            ranges, rest = coalesce(offsets, ranges_room)
            self.settled_count += len(offsets) - len(rest)
            taken.append(SettledRanges(lane.queue_id, lane.epoch, 1, _ACK, ranges))
            room.take(ranges)
            for queue_offset in rest:
                lane.ack(queue_offset, 1)
        for key in list(self._others):
            queue_id, epoch, attempt, verdict = key
            error = error_of(verdict)
            ranges_room = room.for_ranges(error)
            if ranges_room <= 0:
                break
            offsets = self._others.pop(key)
            ranges, rest = coalesce(offsets, ranges_room)
            self.settled_count += len(offsets) - len(rest)
            taken.append(SettledRanges(queue_id, epoch, attempt, verdict, ranges))
            room.take(ranges, error)
            if rest:
                self._others[key] = rest
        return taken


def _taken_from(gathered: dict[KeyT, list[int]], room: RequestRoom) -> Iterator[tuple[KeyT, list[int]]]:
    """Take out offsets by their keys, as ranges, as far as there is room for them; what is over stays."""
    while gathered and (ranges_room := room.for_ranges()) > 0:
        key = next(iter(gathered))
        ranges, rest = coalesce(gathered.pop(key), ranges_room)
        room.take(ranges)
        if rest:
            gathered[key] = rest
        yield key, ranges


def coalesce(offsets: list[int], ranges_max: int) -> tuple[list[int], list[int]]:
    """Return *offsets* as at most *ranges_max* flat (first, last) pairs, and those that found no room."""
    # One that came twice counts once, or a gap would pass for a neighbour.
    offsets = sorted(set(offsets))
    if offsets[-1] - offsets[0] == len(offsets) - 1:
        return [offsets[0], offsets[-1]], []
    ranges = [offsets[0]]
    last = offsets[0]
    for index, queue_offset in enumerate(offsets):
        if queue_offset > last + 1:
            if len(ranges) >= 2 * ranges_max - 1:
                return [*ranges, last], offsets[index:]
            ranges += (last, queue_offset)
        last = queue_offset
    ranges.append(last)
    return ranges, []
