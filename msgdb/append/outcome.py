"""What became of a publisher's frames, packed into `publisher_frame.outcome`.

One row answers for all frames of one publisher in one commit. Within a frame the messages of a queue have consecutive
offsets, so the first offset in each queue and one queue index per message say it all: about a byte per message.

Nearly always all messages of a commit have one `stored_at`. Queues that are ahead of the clock have later ones of their
own; then, and only then, a section names them.
"""

from __future__ import annotations

import json
import struct
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

_FRAME: Final = struct.Struct(">QI16sqHI")
_QUEUE: Final = struct.Struct(">QQ")
_COUNT: Final = struct.Struct(">H")
_AHEAD: Final = struct.Struct(">Qq")
_HAS_AHEAD: Final = 0x8000
"""The bit that is set in the number of queues, which is far smaller, where a section of queues that are ahead of the
clock follows."""
_REFUSED: Final = 0xFFFF


@dataclass(frozen=True, slots=True)
class Refused:
    """A message of a frame that was refused, and why."""

    index: int
    reason: str
    status: str
    message: str
    facts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FrameOutcome:
    """Where the messages of one frame are."""

    sequence: int
    first_message_id: bytes
    """The 16 bytes of message 0's id; message i has this number + i, unless they keep ids of before."""
    stored_at_us: int
    """When its messages were stored, but for those in queues that are `ahead_us`."""
    queue_ids: Sequence[int]
    """The queue of each message; 0 where it was refused."""
    queue_offsets: Sequence[int]
    refusals: tuple[Refused, ...] = ()
    ahead_us: Mapping[int, int] = field(default_factory=dict)
    """The `stored_at` of messages whose queue is ahead of the clock, by queue."""

    def stored_at_us_in(self, queue_id: int) -> int:
        """Return the `stored_at` of its messages in that queue."""
        return self.ahead_us.get(queue_id, self.stored_at_us)


def encode(outcomes: Iterable[FrameOutcome]) -> bytes:
    """Pack the outcomes of one publisher's frames of one commit."""
    return b"".join(map(_encode_frame, outcomes))


def decode(packed: bytes) -> list[FrameOutcome]:
    """Return the outcomes that `encode` packed."""
    outcomes: list[FrameOutcome] = []
    at = 0
    while at < len(packed):
        outcome, at = _decode_frame(packed, at)
        outcomes.append(outcome)
    return outcomes


def _encode_frame(outcome: FrameOutcome) -> bytes:
    indexes: dict[int, int] = {0: _REFUSED}
    queues: list[bytes] = []
    placement = array("H")
    for queue_id, queue_offset in zip(outcome.queue_ids, outcome.queue_offsets, strict=True):
        index = indexes.get(queue_id)
        if index is None:
            index = indexes[queue_id] = len(queues)
            queues.append(_QUEUE.pack(queue_id, queue_offset))
        placement.append(index)
    refusals = _encode_refusals(outcome.refusals)
    ahead = _encode_ahead(outcome.ahead_us)
    head = _FRAME.pack(
        outcome.sequence,
        len(placement),
        outcome.first_message_id,
        outcome.stored_at_us,
        len(queues) | (_HAS_AHEAD if ahead else 0),
        len(refusals),
    )
    return b"".join((head, *queues, ahead, _narrow(placement, len(queues)), refusals))


def _decode_frame(packed: bytes, at: int) -> tuple[FrameOutcome, int]:
    sequence, count, first_message_id, stored_at_us, queue_count, refusals_bytes = _FRAME.unpack_from(packed, at)
    at += _FRAME.size
    has_ahead, queue_count = queue_count & _HAS_AHEAD, queue_count & ~_HAS_AHEAD
    queues = [list(_QUEUE.unpack_from(packed, at + i * _QUEUE.size)) for i in range(queue_count)]
    at += queue_count * _QUEUE.size
    ahead_us, at = _decode_ahead(packed, at) if has_ahead else ({}, at)
    placement, at = _widen(packed, at, count, queue_count)
    refusals = _decode_refusals(packed[at : at + refusals_bytes])
    queue_ids: list[int] = []
    queue_offsets: list[int] = []
    for index in placement:
        if index == _REFUSED:
            queue_ids.append(0)
            queue_offsets.append(0)
            continue
        place = queues[index]
        queue_ids.append(place[0])
        queue_offsets.append(place[1])
        place[1] += 1
    outcome = FrameOutcome(
        sequence,
        first_message_id=first_message_id,
        stored_at_us=stored_at_us,
        queue_ids=queue_ids,
        queue_offsets=queue_offsets,
        refusals=refusals,
        ahead_us=ahead_us,
    )
    return outcome, at + refusals_bytes


def _encode_ahead(ahead_us: Mapping[int, int]) -> bytes:
    if not ahead_us:
        return b""
    return _COUNT.pack(len(ahead_us)) + b"".join(_AHEAD.pack(*item) for item in ahead_us.items())


def _decode_ahead(packed: bytes, at: int) -> tuple[dict[int, int], int]:
    (count,) = _COUNT.unpack_from(packed, at)
    at += _COUNT.size
    ahead_us: dict[int, int] = dict(_AHEAD.unpack_from(packed, at + i * _AHEAD.size) for i in range(count))
    return ahead_us, at + count * _AHEAD.size


def _narrow(placement: array[int], queue_count: int) -> bytes:
    """Pack queue indexes into a byte each; two where a frame touches more queues than a byte can tell apart."""
    if queue_count < 0xFF:
        return bytes(index & 0xFF for index in placement)
    return struct.pack(f">{len(placement)}H", *placement)


def _widen(packed: bytes, at: int, count: int, queue_count: int) -> tuple[Sequence[int], int]:
    if queue_count < 0xFF:
        return [_REFUSED if index == 0xFF else index for index in packed[at : at + count]], at + count
    return struct.unpack_from(f">{count}H", packed, at), at + 2 * count


def _encode_refusals(refusals: tuple[Refused, ...]) -> bytes:
    if not refusals:
        return b""
    return json.dumps([[r.index, r.reason, r.status, r.message, dict(r.facts)] for r in refusals]).encode()


def _decode_refusals(packed: bytes) -> tuple[Refused, ...]:
    if not packed:
        return ()
    return tuple(Refused(*fields) for fields in json.loads(packed))
