"""The unary calls of `Subscriber`: Pull, Extend and Settle, for whoever does without a stream.

The pulls under one instance id share one attachment, which grants credit only while a call waits. It ends some time
after the last call; what it still had unsettled returns then, or with the group's ack timeout before that.
"""

from __future__ import annotations

import asyncio
import struct
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import grpc
import structlog

from confdb.routes import GroupRoute, Snapshot
from msgbroker.contract import limits, names
from msgbroker.contract.errors import (
    BrokerUnavailableError,
    InvalidRequestFieldError,
    MessageCenterError,
    TooManyCallsError,
)
from msgbroker.engine.lane.begun import Begun
from msgbroker.engine.offsets import runs
from msgbroker.engine.verdicts import Held, Settlement
from msgbroker.server import clock
from msgbroker.server.alarms.not_understood import check_group_served
from msgbroker.server.deliver.group import GroupDelivery
from msgbroker.server.deliver.hub import DeliveryHub
from msgbroker.server.deliver.instances.batch import Batch
from msgbroker.server.deliver.instances.instance import Instance
from msgbroker.server.edge.calls.ending import end_at_once, when_ended
from msgbroker.server.edge.calls.places import Places
from msgbroker.server.edge.refusals import abort_with
from msgbroker.server.edge.subscribing.subscriber_service import find_group
from msgbroker.server.edge.subscribing.verdicts import error_text_of, extension_of, verdict_of
from msgbroker.server.log.encoding import delivery_of
from msgbroker.v1 import subscriber_pb2

PullContext = grpc.aio.ServicerContext[Any, Any]

_RECEIPT: Final = struct.Struct(">QQQI")
_PULLERS_MAX: Final = 10_000
_IDLE_SECONDS: Final = 60.0
_WAIT_SECONDS_MIN: Final = 0.02
"""How long any pull waits: a turn or two of the event loop, in which what is ready is handed out."""

log = structlog.get_logger(__name__)


@dataclass(slots=True, eq=False)
class _Puller:
    group: GroupDelivery
    instance: Instance
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    used_at: float = 0.0


class PullService:
    """Serves instances that pull."""

    def __init__(
        self,
        *,
        hub: DeliveryHub,
        snapshot: Callable[[], Snapshot],
        check_not_behind: Callable[[], None],
        instances_changed: asyncio.Event,
        pulls_max: int,
    ) -> None:
        """Serve instances from *hub*; the others are as those of `SubscriberService`."""
        self.places = Places("pulling instances", _PULLERS_MAX)
        self.calls = Places("pulls", pulls_max, TooManyCallsError)
        """The places of pulls, apart from other calls': one may wait for long, and must not keep a verdict out."""
        self._hub = hub
        self._check_not_behind = check_not_behind
        self._instances_changed = instances_changed
        self._snapshot = snapshot
        self._pullers: dict[tuple[int, str], _Puller] = {}
        self._is_draining = False

    def drain(self) -> None:
        """Refuse further pulls, and end those that wait; what was pulled may still be settled."""
        self._is_draining = True
        for puller in self._pullers.values():
            puller.instance.is_paused = True
            puller.instance.wake.set()

    @property
    def is_idle(self) -> bool:
        """Whether nothing that was pulled is unsettled."""
        return all(puller.instance.unsettled == 0 for puller in self._pullers.values())

    def _check_open(self) -> None:
        if self._is_draining:
            raise BrokerUnavailableError("this broker is stopping: pull from another one")
        self._check_not_behind()

    async def pull(self, request: subscriber_pb2.PullRequest, context: PullContext) -> subscriber_pb2.PullResponse:
        """Return messages, waiting for them as long as the caller wants to."""
        try:
            self._check_open()
            return await self._pull(request, context)
        except MessageCenterError as error:
            await abort_with(context, error)

    async def settle(
        self, request: subscriber_pb2.SettleRequest, context: PullContext
    ) -> subscriber_pb2.SettleResponse:
        """Settle pulled messages by their receipts."""
        try:
            return self._settle(request)
        except MessageCenterError as error:
            await abort_with(context, error)

    async def extend(
        self, request: subscriber_pb2.ExtendRequest, context: PullContext
    ) -> subscriber_pb2.ExtendResponse:
        """Extend the time to answer pulled messages, by their receipts."""
        try:
            return self._extend(request)
        except MessageCenterError as error:
            await abort_with(context, error)

    def forget_idle(self, now: float) -> None:
        """Detach pullers that have not called for a while and hold nothing."""
        for name, puller in list(self._pullers.items()):
            idle = now - puller.used_at > _IDLE_SECONDS and not puller.lock.locked()
            if puller.instance.is_closed or (idle and puller.instance.unsettled == 0):
                self._detach(name)

    def _detach(self, name: tuple[int, str]) -> None:
        puller = self._pullers.pop(name)
        self._hub.detach(puller.group, puller.instance)
        puller.instance.outlet.close()
        self.places.leave()

    async def _pull(self, request: subscriber_pb2.PullRequest, context: PullContext) -> subscriber_pb2.PullResponse:
        count = request.messages_max or limits.PULL_MESSAGES_DEFAULT
        if count > limits.PULL_MESSAGES_MAX:
            raise InvalidRequestFieldError("messages_max", f"is {count}; {limits.PULL_MESSAGES_MAX} at most")
        wait_seconds = request.wait_ms / 1_000
        if wait_seconds > limits.PULL_WAIT_SECONDS_MAX:
            raise InvalidRequestFieldError("wait_ms", f"must be {limits.PULL_WAIT_SECONDS_MAX * 1_000:g} at most")
        route = find_group(self._snapshot(), request)
        check_group_served(route)
        puller = self._puller(route, names.check_instance_id(request.instance_id))
        async with puller.lock:
            instance = puller.instance
            puller.used_at = clock.now()
            instance.credit = route.unsettled_max
            instance.handed_max = instance.handed_count + count
            puller.group.mark()
            try:
                async with asyncio.timeout(max(wait_seconds, _WAIT_SECONDS_MIN)):
                    while not (instance.outbox or instance.is_closed or self._is_draining):
                        instance.wake.clear()
                        await instance.wake.wait()
            except TimeoutError:
                # What came in the last moment is taken all the same; nothing is an answer as well.
                log.debug("pull.waited_in_vain")
            except asyncio.CancelledError:
                # The caller is gone: others need not wait for what came for it.
                instance.give_back()
                raise
            finally:
                instance.credit = 0
                puller.used_at = clock.now()
            batches = instance.take_batches()
            if not batches:
                self._check_open()
            self._watch_stress(instance, batches, context)
            return subscriber_pb2.PullResponse(messages=_pulled(batches))

    def _watch_stress(self, instance: Instance, batches: Sequence[Batch], context: PullContext) -> None:
        """Let the hub know of stress messages until gRPC has taken the answer over. Its bytes are counted elsewhere."""
        stress = [batch for batch in batches if batch.stress is not None]
        if stress:
            outlet = self._hub.outgoing.open(lambda error: end_at_once(context, error))
            outlet.on_new_configuration(lambda: instance.permits(stress))
            outlet.begin_write(0, has_stress=True)
            when_ended(context, outlet.close)

    def _extend(self, request: subscriber_pb2.ExtendRequest) -> subscriber_pb2.ExtendResponse:
        seconds = extension_of(request)
        puller = self._puller_of(request)
        named = extended = 0
        now = clock.now()
        for held in _held_by(request.receipts):
            named += sum(end - first for first, end in held.ranges)
            if puller is not None:
                extended += puller.group.extend(puller.instance, held, seconds, now)
        # A receipt that comes twice is kept all the same.
        return subscriber_pb2.ExtendResponse(extended=extended, stale=named - extended)

    def _settle(self, request: subscriber_pb2.SettleRequest) -> subscriber_pb2.SettleResponse:
        verdict, delay_seconds = verdict_of(request)
        error = error_text_of(request)
        puller = self._puller_of(request)
        settled = 0
        now = clock.now()
        for held in _held_by(request.receipts):
            if puller is None:
                self._hub.counters.settled_elsewhere(held)
            else:
                settlement = Settlement(held, verdict, delay_seconds, error)
                settled += puller.group.settle(puller.instance, settlement, now)
        return subscriber_pb2.SettleResponse(settled=settled, stale=len(request.receipts) - settled)

    def _puller_of(self, request: subscriber_pb2.SettleRequest | subscriber_pb2.ExtendRequest) -> _Puller | None:
        """Return who pulled what a request is about, as far as it is known here."""
        route = find_group(self._snapshot(), request)
        puller = self._pullers.get((route.group_id, request.instance_id))
        if puller is not None:
            puller.used_at = clock.now()
        return puller

    def _puller(self, route: GroupRoute, instance_id: str) -> _Puller:
        name = (route.group_id, instance_id)
        known = self._pullers.get(name)
        if known is not None:
            if not known.instance.is_closed:
                return known
            self._detach(name)
        self.places.take()
        outlet = self._hub.outgoing.open(lambda _: None)
        # Who calls twice, for a message and for its verdict, has begun with it in between.
        instance = Instance(instance_id, 0, self._hub.config.instance_outbox_bytes_max, outlet, begun=Begun.YES)
        puller = _Puller(self._hub.attach(route, instance), instance)
        self._pullers[name] = puller
        self._instances_changed.set()
        return puller


def _pulled(batches: Iterable[Batch]) -> list[subscriber_pb2.PulledMessage]:
    pulled: list[subscriber_pb2.PulledMessage] = []
    for batch in batches:
        for wire in batch.wires:
            delivery = subscriber_pb2.Delivery.FromString(delivery_of(wire))
            receipt = _RECEIPT.pack(batch.queue_id, batch.epoch, delivery.queue_offset, delivery.attempt or 1)
            pulled.append(subscriber_pb2.PulledMessage(receipt=receipt, delivery=delivery))
    return pulled


def _held_by(receipts: Sequence[bytes]) -> list[Held]:
    """Return what *receipts* name, by lane and attempt. Raises InvalidRequestFieldError."""
    if not 0 < len(receipts) <= limits.PULL_MESSAGES_MAX:
        raise InvalidRequestFieldError("receipts", f"must be 1 to {limits.PULL_MESSAGES_MAX}")
    offsets_of: defaultdict[tuple[int, int, int], set[int]] = defaultdict(set)
    for receipt in receipts:
        if len(receipt) != _RECEIPT.size:
            raise InvalidRequestFieldError("receipts", "must be as they came with Pull")
        queue_id, epoch, offset, attempt = _RECEIPT.unpack(receipt)
        offsets_of[queue_id, epoch, attempt].add(offset)
    return [Held(*names, list(runs(sorted(offsets)))) for names, offsets in offsets_of.items()]
