"""A connected instance of a subscriber group, as the hub sees it: its credit, and what is on its way to it."""

from __future__ import annotations

import asyncio
import itertools
import math
import sys
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, Protocol, TypeVar

from confdb.routes import GroupRoute
from msgbroker.engine.lane.begun import Begun
from msgbroker.engine.lane.config import Handout
from msgbroker.server import clock
from msgbroker.server.deliver.instances.batch import Batch, Lease, Stress, wires_of
from msgbroker.server.deliver.instances.heard import Heard
from msgbroker.server.deliver.instances.notices import (
    Attached,
    Draining,
    EncodeNotice,
    LaneRevoked,
    Notice,
    Relocation,
    WaitingNotices,
)
from msgbroker.server.deliver.outgoing import Outgoing, Outlet
from msgbroker.server.log import encoding
from msgbroker.server.log.message import LogMessage

ValueT = TypeVar("ValueT")

_serials = itertools.count(1)

RESPONSE_BYTES_MAX = 256 * 1024
"""Another batch is joined to a response until it has this size. One at a time is on its way, and a response costs the
broker and the subscriber some 200 us each, whatever is in it."""
JOINED_BYTES_MAX = 500 * 1024
"""What is joined has this size at most, and with what goes around it 512 KiB. A response is larger only where its one
message is: a client that takes in the largest message takes in every response."""
PULLED_BYTES_MAX = 2 * 1024 * 1024
"""The same for the answer to a pull. With the receipts of 1,000 messages that is far less than the 4 MiB which clients
take in unless they are told otherwise."""


class InstanceRoom(NamedTuple):
    """How many messages and bytes an instance may be handed now."""

    messages: int
    """How many messages it may be given. There is no room for any where this is 0 or less."""
    size_bytes: int


_NO_ROOM: Final = InstanceRoom(0, 0)


class WayOut(Protocol):
    """What batches pass as they leave, given by the group an instance is attached to."""

    def check(self, instance: Instance, batch: Batch, now: float) -> Batch | None:
        """Return what of *batch* may be written now, if anything."""
        ...

    def give_back(self, instance: Instance, batches: Iterable[Batch], now: float) -> None:
        """Return what was never written to its lanes."""
        ...

    def permits(self, batches: Iterable[Batch]) -> bool:
        """Return whether all stress messages in *batches* may be written as things are."""
        ...


class _OfRoom(Generic[ValueT]):
    """An attribute of an instance on which its room depends: whoever changes it, `say_room` is called.

    To read it costs nothing: where a descriptor has no `__get__`, Python looks into the instance.
    """

    if TYPE_CHECKING:

        def __get__(self, instance: Instance, owner: type[Instance]) -> ValueT: ...

    def __set_name__(self, owner: type[Instance], name: str) -> None:
        self._name = name

    def __set__(self, instance: Instance, value: ValueT) -> None:
        instance.__dict__[self._name] = value
        instance.say_room()


def _nothing() -> None:
    """Do nothing."""


class Instance:
    """One attachment of an instance: a stream, or the pulls under its name.

    What it may still be given is bounded twice: by its credit (messages it holds unsettled), and by the bytes that wait
    to be written to it (its own, and those of all outlets), so that an instance that does not read costs little. Its
    group looks at it only where there may be room: `say_room` is called after all that may have made some.
    """

    credit = _OfRoom[int]()
    """What it asks for, which may be more than its group allows."""
    credit_max = _OfRoom[int]()
    """What its group allows as things are."""
    unsettled = _OfRoom[int]()
    """How many messages it holds that it has not settled."""
    handed_max = _OfRoom[int]()
    """How many messages it may be given in all: a call asks for some, whatever is settled meanwhile."""
    is_paused = _OfRoom[bool]()
    is_resting = _OfRoom[bool]()
    """Whether it gets nothing for a while: it let messages time out that it had not begun, and others come first."""

    def __init__(
        self,
        instance_id: str,
        credit: int,
        outbox_bytes_max: int,
        outlet: Outlet | None = None,
        *,
        begun: Begun = Begun.UNKNOWN,
        process_id: bytes = b"",
        host: str = "",
        client_version: str = "",
        encode: EncodeNotice | None = None,
    ) -> None:
        self.say_room: Callable[[], object] = _nothing
        """Tells its group that it may have room: called after all that may have made some."""
        self.instance_id = instance_id
        self.begun = begun
        """What is known of a message when it is handed to it."""
        self.process_id = process_id
        """What tells its process from others; empty if it does not say."""
        self.host, self.client_version = host, client_version
        self.handed_count = 0
        """How many messages it was given so far."""
        self.handed_max = sys.maxsize
        self.since = self.said_at = clock.now()
        """When the instance said something last (`said_at`), and for the first time."""
        self.heard = Heard(self.since)
        self.is_resting = False
        self.sent_on_count = 0
        """How often it was told to subscribe elsewhere."""
        self.serial = next(_serials)
        self.name = f"{instance_id}#{self.serial}"
        """A name that no other attachment has: an instance that reconnects is another one to the lanes."""
        self.credit = credit
        self.credit_max = sys.maxsize
        self.unsettled = 0
        self.is_paused = False
        self.is_closed = False
        self.wants_nothing = False
        """It has asked to be given nothing any more."""
        self.has_left = False
        """It ended its stream in good order: it had begun nothing of what it still held."""
        self.ended_because: Exception | None = None
        self.outbox: deque[Batch] = deque()
        self.outbox_bytes = 0
        self._outbox_bytes_max = outbox_bytes_max
        self.outlet = outlet or Outgoing().open(lambda _: None)
        self._way_out: WayOut | None = None
        """What its batches pass as they leave, once it is attached to a group."""
        self.under_way: list[Batch] = []
        """The batches that are being written: gRPC has them, and has not taken them over."""
        self._notices = WaitingNotices(encode, self.outlet)
        self.wake = asyncio.Event()

    def attach_to(self, way_out: WayOut, *, credit_max: int, say_room: Callable[[], object]) -> None:
        """Belong to a group: *credit_max* is what it allows, and *say_room* how it hears that there may be room."""
        self._way_out = way_out
        self.credit_max = credit_max
        self.say_room = say_room

    def detach(self) -> None:
        """Let its group hear of no room any more: what is being written may still come to an end."""
        self.say_room = _nothing

    @property
    def room(self) -> InstanceRoom:
        """How much the instance may be handed now."""
        if self.is_paused or self.is_closed or self.is_resting:
            return _NO_ROOM
        size_bytes = min(self._outbox_bytes_max - self.outbox_bytes, self.outlet.room_bytes)
        if size_bytes <= 0:
            return _NO_ROOM
        credit = min(self.credit, self.credit_max)
        return InstanceRoom(min(credit - self.unsettled, self.handed_max - self.handed_count), size_bytes)

    @property
    def pulls(self) -> bool:
        """Whether it gets its messages by calls, and not by a stream."""
        return self.begun is Begun.YES

    def is_of_other_process(self, newcomer: Instance) -> bool:
        """Return whether *newcomer*, of the same instance id, is known to be another process."""
        return bool(self.process_id and newcomer.process_id) and self.process_id != newcomer.process_id

    def give(
        self,
        queue_id: int,
        epoch: int,
        handout: Handout[LogMessage],
        lease: Lease,
        permitted_by: Callable[[LogMessage], bool] | None = None,
    ) -> None:
        """Queue messages for writing, as long as *lease* has not passed; *permitted_by*, where some are stress ones."""
        wires, size_bytes = wires_of(handout.fresh, handout.again)
        stress = None if permitted_by is None else Stress(permitted_by, handout)
        batch = Batch(
            queue_id,
            epoch,
            wires,
            size_bytes,
            lease=lease,
            deadline=handout.deadline,
            handed=handout.handed,
            stress=stress,
            is_suspect=handout.is_suspect,
        )
        self.outbox.append(batch)
        self._hold(batch.held_bytes)
        self.unsettled += len(wires)
        self.handed_count += len(wires)
        self.wake.set()

    def let_go(self, count: int) -> None:
        """Count so many messages no longer as held: they are settled, or were taken back."""
        # Once closed it counts as holding nothing, though its lanes may find out later what it held.
        if not self.is_closed:
            self.unsettled -= count

    def revoke(self, queue_id: int, epoch: int) -> None:
        """Tell it that a lane's messages are no longer its own; drop those that were not written."""
        self._take_out(lambda batch: (batch.queue_id, batch.epoch) == (queue_id, epoch))
        self.notice(LaneRevoked(queue_id, epoch))

    def notice(self, notice: Notice) -> None:
        """Tell it something, if there is a way: it is written before the deliveries that wait."""
        self._notices.add(notice)
        self.wake.set()

    def send_away(self) -> None:
        """Ask it to settle what it has and to subscribe elsewhere."""
        self.notice(Draining())

    def relocate(self, addresses: Sequence[str]) -> None:
        """Ask it to settle what it has and to subscribe at one of these brokers."""
        self.sent_on_count += 1
        self.notice(Relocation(addresses))

    def follow_limits(self, route: GroupRoute) -> None:
        """Tell it how long it may take to answer from now on. What waits for it was handed out by another time."""
        self.give_back()
        self.notice(Attached.to(route))

    def confirm(self, number: int) -> None:
        """Tell it that its requests up to that one are carried out. The last number says it for all before."""
        self._notices.confirm(number)
        self.wake.set()

    def close(self, because: Exception | None = None) -> None:
        """Give it nothing any more, and end its stream. What was not written goes back to the lanes at once.

        What is being written may have arrived: it goes back with all else that it holds, when it is detached.
        """
        self.is_closed = True
        self.give_back()
        self.under_way = []
        self.unsettled = 0
        self.ended_because = self.ended_because or because
        self.wake.set()

    def give_back(self) -> None:
        """Let what waits in its outbox go back to the lanes: it was never written."""
        self._return(self._take_out(lambda _: True))

    def give_back_lane(self, queue_id: int, epoch: int) -> None:
        """Let what waits of one lane go back to it."""
        if self.outbox:
            self._return(self._take_out(lambda batch: (batch.queue_id, batch.epoch) == (queue_id, epoch)))

    def give_back_overdue(self, now: float) -> None:
        """Let what was not written within its time to answer go back to the lanes; nobody was asked for an answer."""
        if not self.outbox and not self.under_way:
            return
        late = [batch for batch in self.under_way if now >= batch.deadline]
        if late:
            # It may yet arrive: an answer to it is stale, and until then it is still what is being written. Once.
            self.under_way = [
                replace(batch, deadline=math.inf) if now >= batch.deadline else batch for batch in self.under_way
            ]
        self._return([*late, *self._take_out(lambda batch: now >= batch.deadline)])

    def take_batches(self) -> list[Batch]:
        """Return what fits into one answer to a pull; the rest goes back."""
        batches: list[Batch] = []
        size_bytes = 0
        while (batch := self._next_batch(size_bytes, PULLED_BYTES_MAX)) is not None:
            batches.append(batch)
            size_bytes += batch.size_bytes
        # The next pull may ask for fewer, and may never come.
        self.give_back()
        return batches

    def next_response(self) -> bytes:
        """Return the next encoded SubscribeResponse to write; empty if there is nothing. `written` ends the write."""
        parts = self._notices.take()
        size_bytes = sum(map(len, parts))
        while size_bytes < RESPONSE_BYTES_MAX and (batch := self._next_batch(size_bytes, JOINED_BYTES_MAX)) is not None:
            size_bytes += batch.size_bytes
            self.under_way.append(batch.without_wires())
            parts.append(
                encoding.batch_head(batch.queue_id, batch.epoch, batch.size_bytes, is_suspect=batch.is_suspect)
            )
            parts.extend(itertools.chain.from_iterable(batch.wires))
        response = b"".join(parts)
        if response:
            has_stress = any(batch.stress is not None for batch in self.under_way)
            self.outlet.begin_write(len(response), has_stress=has_stress)
        return response

    def written(self) -> None:
        """Note that gRPC has taken over what `next_response` returned."""
        self.under_way = []
        self.outlet.end_write()
        self.say_room()

    def may_still_write(self) -> bool:
        """Return whether what is being written would be written as things are now."""
        return not self.is_closed and self.permits(self.under_way)

    def permits(self, batches: Iterable[Batch]) -> bool:
        """Return whether all stress messages in *batches* may be written as things are."""
        return self._way_out is not None and self._way_out.permits(batches)

    def _next_batch(self, joined_bytes: int, joined_bytes_max: int) -> Batch | None:
        """Take the next batch that may be written, joined to so many bytes; to none it may be, however large it is.

        This process may have been frozen since a batch was put there: then its messages are perhaps another broker's to
        hand out. They return to the instance's credit when their lane is given up.
        """
        while self.outbox and not self.is_closed:
            if joined_bytes and joined_bytes + self.outbox[0].size_bytes > joined_bytes_max:
                return None
            batch: Batch | None = self.outbox.popleft()
            assert batch is not None
            self._hold(-batch.held_bytes)
            now = clock.now()
            if now >= batch.lease.lease_until:
                continue
            if self._way_out is not None:
                batch = self._way_out.check(self, batch, now)
            if batch is not None:
                return batch
        return None

    def _hold(self, size_bytes: int) -> None:
        self.outbox_bytes += size_bytes
        self.outlet.hold(size_bytes)
        if size_bytes < 0:
            self.say_room()

    def _take_out(self, is_meant: Callable[[Batch], bool]) -> list[Batch]:
        """Take out of the outbox what is meant."""
        taken: list[Batch] = []
        kept: deque[Batch] = deque()
        for batch in self.outbox:
            (taken if is_meant(batch) else kept).append(batch)
        self.outbox = kept
        self._hold(-sum(batch.held_bytes for batch in taken))
        return taken

    def _return(self, batches: Sequence[Batch]) -> None:
        if batches and self._way_out is not None:
            self._way_out.give_back(self, batches, clock.now())
