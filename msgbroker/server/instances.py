"""A connected instance of a subscriber group, as the dispatcher sees it: its credit, and what is on its way to it."""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from msgbroker.engine.begun import Begun
from msgbroker.engine.lane_config import Again
from msgbroker.server import clock, wire
from msgbroker.server.log_message import LogMessage, Wire
from msgbroker.v1 import subscriber_pb2

_serials = itertools.count(1)

RESPONSE_BYTES_MAX = 256 * 1024
"""Another batch is joined to a response until it has this size. One at a time is on its way, and a response costs the
broker and the subscriber some 200 us each, whatever is in it."""


class Lease(Protocol):
    """What a lane is held by."""

    lease_until: float
    """By `clock.now`. It may be moved on; once it has passed, the lane is given up."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Messages of one lane on their way to one instance, encoded."""

    queue_id: int
    epoch: int
    wires: Sequence[Wire]
    size_bytes: int
    lease: Lease
    is_suspect: bool
    """One of it may have ended an instance that went away without a word."""


class Instance:
    """One attachment of an instance: a stream, or the pulls under its name.

    What it may still be given is bounded twice: by its credit (messages it holds unsettled), and by the bytes that wait
    to be written to it, so that an instance that does not read costs the broker little.
    """

    def __init__(
        self,
        instance_id: str,
        credit: int,
        outbox_bytes_max: int,
        begun: Begun = Begun.UNKNOWN,
        process_id: bytes = b"",
        host: str = "",
    ) -> None:
        self.instance_id = instance_id
        self.begun = begun
        """What is known of a message when it is handed to it."""
        self.process_id = process_id
        """Empty if it does not say."""
        self.host = host
        self.handed_count = 0
        """Messages it was given so far."""
        self.said_at = clock.now()
        """When it was heard last."""
        self.is_resting = False
        """It let messages time out that it had not begun: others come first for a while."""
        self.name = f"{instance_id}#{next(_serials)}"
        """Unique among attachments: an instance that reconnects is another one to the lanes."""
        self.credit = credit
        self.unsettled = 0
        self.is_paused = False
        self.is_closed = False
        self.wants_nothing = False
        """It has asked to be given nothing any more."""
        self.has_left = False
        """It ended its stream in good order: nothing of what it still had was begun."""
        self.ended_because: Exception | None = None
        self.outbox: deque[Batch] = deque()
        self.outbox_bytes = 0
        self._outbox_bytes_max = outbox_bytes_max
        self._notices: list[bytes] = []
        self._confirmed = 0
        self.wake = asyncio.Event()

    @property
    def count_room(self) -> int:
        """How many messages it may be given now."""
        if self.is_paused or self.is_closed or self.is_resting or self.outbox_bytes >= self._outbox_bytes_max:
            return 0
        return self.credit - self.unsettled

    def give(
        self,
        queue_id: int,
        epoch: int,
        wires: Sequence[Wire],
        size_bytes: int,
        lease: Lease,
        *,
        is_suspect: bool = False,
    ) -> None:
        """Queue messages for writing, as long as *lease* has not passed."""
        self.outbox.append(Batch(queue_id, epoch, wires, size_bytes, lease, is_suspect))
        self.outbox_bytes += size_bytes
        self.unsettled += len(wires)
        self.handed_count += len(wires)
        self.wake.set()

    def revoke(self, queue_id: int, epoch: int) -> None:
        """Tell it that a lane's messages are no longer its own; drop those that were not written."""
        kept = deque(batch for batch in self.outbox if (batch.queue_id, batch.epoch) != (queue_id, epoch))
        self.outbox_bytes -= sum(b.size_bytes for b in self.outbox) - sum(b.size_bytes for b in kept)
        self.outbox = kept
        self.notice(
            subscriber_pb2.SubscribeResponse(revoked=[subscriber_pb2.LaneRevoked(queue_id=queue_id, epoch=epoch)])
        )

    def notice(self, response: subscriber_pb2.SubscribeResponse) -> None:
        """Queue something that is not a delivery; it is written before the deliveries that wait."""
        self._notices.append(response.SerializeToString())
        self.wake.set()

    def confirm(self, number: int) -> None:
        """Tell it that its requests up to that one are carried out. The last number says it for all before."""
        self._confirmed = number
        self.wake.set()

    def close(self, because: Exception | None = None) -> None:
        """Give it nothing any more, and end its stream. What was not written goes back to the lanes, as it comes."""
        self.is_closed = True
        self.unsettled = 0
        self.outbox.clear()
        self.outbox_bytes = 0
        self.ended_because = self.ended_because or because
        self.wake.set()

    def take_batches(self) -> list[Batch]:
        """Return all that waits to be handed over. For pulls: they have no way to be told anything else."""
        batches: list[Batch] = []
        while (batch := self._next_batch()) is not None:
            batches.append(batch)
        self._notices.clear()
        return batches

    def next_response(self) -> bytes:
        """Return the next encoded SubscribeResponse to write; empty if there is nothing."""
        parts, self._notices = self._notices, []
        if self._confirmed:
            parts.append(subscriber_pb2.SubscribeResponse(confirmed=self._confirmed).SerializeToString())
            self._confirmed = 0
        size_bytes = 0
        while size_bytes < RESPONSE_BYTES_MAX and (batch := self._next_batch()) is not None:
            size_bytes += batch.size_bytes
            parts.append(wire.batch_head(batch.queue_id, batch.epoch, batch.size_bytes, is_suspect=batch.is_suspect))
            parts.extend(itertools.chain.from_iterable(batch.wires))
        return b"".join(parts)

    def _next_batch(self) -> Batch | None:
        """Take the next batch whose lease has not passed.

        This process may have been frozen since the others were put there: their messages are perhaps another broker's
        to hand out. They return to the instance's credit when their lane is given up.
        """
        while self.outbox:
            batch = self.outbox.popleft()
            self.outbox_bytes -= batch.size_bytes
            if clock.now() < batch.lease.lease_until:
                return batch
        return None


def wires_of(fresh: list[LogMessage], again: list[Again[LogMessage]]) -> tuple[list[Wire], int]:
    """Return the encoded deliveries of a hand-out and their size: what comes again first, with its attempt."""
    if not again:
        return [message.wire for message in fresh], sum([message.wire_bytes for message in fresh])
    wires = [
        wire.with_attempt(each.message.wire, each.attempt) if each.attempt > 1 else each.message.wire for each in again
    ]
    wires += [message.wire for message in fresh]
    return wires, sum(len(piece) for pieces in wires for piece in pieces)
