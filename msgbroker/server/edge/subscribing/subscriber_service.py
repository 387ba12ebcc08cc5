"""The gRPC service `Subscriber`, its stream: batches out, credit and settlements in."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final
from uuid import UUID

import grpc

from confdb.routes import GroupRoute, Snapshot
from msgbroker.contract import limits, names
from msgbroker.contract.errors import (
    BrokerUnavailableError,
    GroupNotFoundError,
    InvalidRequestFieldError,
    MessageCenterError,
)
from msgbroker.engine.lane.begun import Begun
from msgbroker.engine.missing_types import MissingType, list_missing
from msgbroker.server import clock
from msgbroker.server.alarms.not_understood import check_group_served
from msgbroker.server.deliver.group import GroupDelivery
from msgbroker.server.deliver.hub import DeliveryHub
from msgbroker.server.deliver.instances.instance import Instance
from msgbroker.server.deliver.instances.notices import Attached
from msgbroker.server.edge.calls.ending import end_at_once, write
from msgbroker.server.edge.calls.places import Places
from msgbroker.server.edge.calls.sending_in_time import sent_in_time
from msgbroker.server.edge.refusals import abort_with
from msgbroker.server.edge.subscribing.notices import encode_notice
from msgbroker.server.edge.subscribing.verdicts import begin_all, extend_all, settle_all
from msgbroker.v1 import subscriber_pb2

SubscriberContext = grpc.aio.ServicerContext[Any, Any]

CAREFUL_SECONDS: Final = 10.0
"""How long an instance begins with one message at a time, after another has crashed."""


class SubscriberService:
    """Serves instances that subscribe by a stream."""

    def __init__(
        self,
        *,
        hub: DeliveryHub,
        snapshot: Callable[[], Snapshot],
        broker_id: UUID,
        check_not_behind: Callable[[], None],
        instances_changed: asyncio.Event,
        streams_max: int,
    ) -> None:
        """Serve instances from *hub*.

        *check_not_behind* raises where nobody can be served. *instances_changed* is set when one came or went: which
        lanes should be this broker's follows from that.
        """
        self.places = Places("subscriber streams", streams_max)
        self._hub = hub
        self._broker_id = broker_id
        self._check_not_behind = check_not_behind
        self._instances_changed = instances_changed
        self._snapshot = snapshot
        self._instances: set[Instance] = set()
        self._is_draining = False

    def drain(self) -> None:
        """Tell all streams to settle and go elsewhere; give them nothing more."""
        self._is_draining = True
        for instance in self._instances:
            instance.is_paused = True
            instance.send_away()

    @property
    def is_idle(self) -> bool:
        """Whether no stream holds anything unsettled."""
        return all(instance.unsettled == 0 for instance in self._instances)

    async def subscribe(self, _: object, context: SubscriberContext) -> None:
        """Serve one instance's stream."""
        try:
            with self.places.taken():
                await self._serve(context)
        except MessageCenterError as error:
            await abort_with(context, error)

    async def _serve(self, context: SubscriberContext) -> None:
        first = await self._first_request(context)
        if first is None:
            return
        if self._is_draining:
            raise BrokerUnavailableError("this broker is stopping: subscribe at another one")
        self._check_not_behind()
        self._hub.outgoing.check_room()
        snapshot = self._snapshot()
        route = find_group(snapshot, first.hello)
        check_group_served(route)
        instance = self._make_instance(first, context)
        group = self._hub.attach(route, instance)
        self._instances.add(instance)
        self._instances_changed.set()
        instance.notice(self._attached(route, instance, missing_types(snapshot, route, first.hello)))
        # What an instance says first may be large, and is not kept for the length of the stream.
        requests = deque([first])
        del first
        reader = asyncio.ensure_future(self._read(context, group, instance, requests))
        try:
            await self._write(context, group, instance)
            if instance.ended_because is not None:
                raise instance.ended_because
        finally:
            reader.cancel()
            self._instances.discard(instance)
            self._hub.detach(group, instance)
            instance.outlet.close()
            self._instances_changed.set()

    async def _first_request(self, context: SubscriberContext) -> Any:
        """Return what the stream begins with, or None where it ends at once. Raises UnfinishedError."""
        async with sent_in_time("the hello of this stream"):
            first = await context.read()
        return None if first is grpc.aio.EOF else first

    def _make_instance(self, first: subscriber_pb2.SubscribeRequest, context: SubscriberContext) -> Instance:
        instance_id = names.check_instance_id(first.hello.instance_id)
        # Who names none has all that its group allows.
        credit = first.credit or limits.CREDIT_MAX
        begun = Begun.NO if first.hello.says_begun else Begun.UNKNOWN
        process_id = first.hello.process_id
        if process_id and len(process_id) != limits.PROCESS_ID_BYTES:
            raise InvalidRequestFieldError("process_id", f"must be {limits.PROCESS_ID_BYTES} bytes, or be left out")
        host = first.hello.host[: limits.HOST_CHARS_MAX]
        outbox_bytes_max = self._hub.config.instance_outbox_bytes_max

        def end(because: MessageCenterError) -> None:
            # It was not its own doing: nothing that it has not begun is to pay.
            instance.ended_because = instance.ended_because or because
            end_at_once(context, because)

        instance = Instance(
            instance_id,
            credit,
            outbox_bytes_max,
            self._hub.outgoing.open(end),
            begun=begun,
            process_id=process_id,
            host=host,
            client_version=first.hello.client_version[: limits.CLIENT_VERSION_CHARS_MAX],
            encode=encode_notice,
        )
        instance.outlet.on_stalled(instance.give_back)
        instance.outlet.on_new_configuration(instance.may_still_write)
        return instance

    def _attached(self, route: GroupRoute, instance: Instance, missing: list[MissingType]) -> Attached:
        is_careful = self._hub.crashes.is_to_be_careful(route.group_id, instance, clock.now())
        return replace(
            Attached.to(route),
            broker_id=str(self._broker_id),
            missing=missing,
            careful_seconds=CAREFUL_SECONDS if is_careful else 0.0,
        )

    async def _read(
        self,
        context: SubscriberContext,
        group: GroupDelivery,
        instance: Instance,
        requests: deque[Any],
    ) -> None:
        try:
            while requests:
                await self._apply(group, instance, requests.popleft())
                request = await context.read()
                if request is not grpc.aio.EOF:
                    requests.append(request)
                del request
            # The end of a broken connection looks the same; only who has asked for nothing more has left on purpose.
            instance.has_left = instance.wants_nothing
        except MessageCenterError as error:
            instance.close(error)
        finally:
            instance.close()

    async def _apply(self, group: GroupDelivery, instance: Instance, request: subscriber_pb2.SubscribeRequest) -> None:
        """Carry out one request: credit, pause, what is begun, what is kept, verdicts."""
        instance.said_at = clock.now()
        if request.credit:
            if request.credit > limits.CREDIT_MAX:
                raise InvalidRequestFieldError("credit", f"is {request.credit}; {limits.CREDIT_MAX} at most")
            instance.credit = request.credit
        if request.pause or request.resume:
            instance.wants_nothing = request.pause and not request.resume
            instance.is_paused = self._is_draining or (request.pause and not request.resume)
        if request.begun:
            # Before the verdicts: what is given back by one of them may be handed out again meanwhile, not begun.
            await begin_all(group, instance, request.begun)
        if request.extensions:
            await extend_all(group, instance, request.extensions)
        if request.settlements:
            await settle_all(group, instance, request.settlements)
        if request.confirm:
            instance.confirm(request.confirm)
        group.mark()

    async def _write(self, context: SubscriberContext, group: GroupDelivery, instance: Instance) -> None:
        while True:
            await instance.wake.wait()
            instance.wake.clear()
            while response := instance.next_response():
                await write(context, response)
                instance.written()
                # There is room in the outbox again.
                group.mark()
            if instance.is_closed:
                return


def find_group(
    snapshot: Snapshot,
    hello: subscriber_pb2.SubscriberHello
    | subscriber_pb2.PullRequest
    | subscriber_pb2.SettleRequest
    | subscriber_pb2.ExtendRequest,
) -> GroupRoute:
    """Return the named subscriber group. Raises InvalidNameError or GroupNotFoundError."""
    namespace = names.check_namespace(hello.namespace or names.DEFAULT_NAMESPACE)
    group = names.check_group(hello.group)
    route = snapshot.groups.get((namespace, group))
    if route is None:
        raise GroupNotFoundError(namespace, group)
    return route


def missing_types(snapshot: Snapshot, route: GroupRoute, hello: subscriber_pb2.SubscriberHello) -> list[MissingType]:
    """Return what the instance has handlers for and will not get as things are, and why."""
    handled = ((each.topic, each.event_code) for each in hello.handled[: limits.SUBSCRIPTIONS_PER_GROUP_MAX])
    return list_missing(snapshot, route, handled)
