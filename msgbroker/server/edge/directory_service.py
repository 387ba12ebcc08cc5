"""The gRPC service `Directory`: who serves, and registration for developers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

import grpc

from confdb.expressions.compiled import warnings_about
from confdb.expressions.cost_limits import check_expression
from confdb.services import ConfigService
from confdb.services.subscriptions import describe_subscription
from confdb.services.views import Changed, SubscriptionView
from msgbroker.contract import limits, names
from msgbroker.contract.errors import (
    ExpressionTooCostlyError,
    MessageCenterError,
    NotFoundError,
    RegistrationDisabledError,
    SubscriptionDiffersError,
    ThingAlreadyExistsError,
)
from msgbroker.server.cluster.heartbeats import Heartbeats
from msgbroker.server.edge.refusals import abort_with
from msgbroker.v1 import directory_pb2

DirectoryContext = grpc.aio.ServicerContext[Any, Any]
Step = tuple[str, Callable[[], Awaitable[Changed[Any]]]]

_SUBSCRIPTION: Final = "subscription "


class DirectoryService:
    """Answers which brokers there are, and registers what clients ask for, where that is allowed."""

    def __init__(self, heartbeats: Heartbeats, service: ConfigService, *, client_registration: bool) -> None:
        self._heartbeats = heartbeats
        self._service = service
        self._client_registration = client_registration

    async def list_brokers(
        self, _: directory_pb2.ListBrokersRequest, __: DirectoryContext
    ) -> directory_pb2.ListBrokersResponse:
        """Return the live brokers; this one first."""
        own_id = self._heartbeats.identity.broker_id
        brokers = sorted(self._heartbeats.brokers, key=lambda broker: broker.broker_id != own_id)
        return directory_pb2.ListBrokersResponse(
            brokers=[
                directory_pb2.Broker(broker_id=str(broker.broker_id), address=broker.address, draining=broker.draining)
                for broker in brokers
            ]
        )

    async def register(
        self, request: directory_pb2.RegisterRequest, context: DirectoryContext
    ) -> directory_pb2.RegisterResponse:
        """Register what does not exist yet, and wait until it is active."""
        try:
            if not self._client_registration:
                raise RegistrationDisabledError
            created = await self._register(request)
            warnings = warnings_about(request.expression) if request.group and request.expression else ()
            return directory_pb2.RegisterResponse(created=created, warnings=warnings)
        except MessageCenterError as error:
            await abort_with(context, error)

    async def _register(self, request: directory_pb2.RegisterRequest) -> list[str]:
        namespace = request.namespace or names.DEFAULT_NAMESPACE
        created: list[str] = []
        try:
            check_request(request)
        except ExpressionTooCostlyError:
            # Before there was a limit? A repeat changes nothing.
            if not await self._was_registered(namespace, request):
                raise
        else:
            created = await self._create_missing(namespace, request)
        # Of what was there as well: another replica of the program may have made it a moment ago, and still wait.
        version = await self._service.audit.version_with(namespace, _things(request))
        await self._service.wait_until_active(version, group=request.group)
        return created

    async def _create_missing(self, namespace: str, request: directory_pb2.RegisterRequest) -> list[str]:
        """Create what does not exist yet; return what that was."""
        created: list[str] = []
        for name, step in self._steps(namespace, request):
            try:
                await step()
            except ThingAlreadyExistsError:
                continue
            created.append(name)
        if not any(name.startswith(_SUBSCRIPTION) for name in created):
            # It was there: then all else was, too, and nothing has been made by halves.
            await self._refuse_other_expression(namespace, request)
        return created

    def _steps(self, namespace: str, request: directory_pb2.RegisterRequest) -> list[Step]:
        """Return what to create, in this order, each with its name."""
        service = self._service
        topic, event_code, group = request.topic, request.event_code, request.group
        steps: list[Step] = [(f"topic {topic}", lambda: service.topics.create(namespace, topic))]
        if event_code != names.ANY_EVENT_CODE:
            steps.append((f"event code {event_code}", lambda: service.event_codes.add(namespace, topic, event_code)))
        if group:
            steps.append((f"group {group}", lambda: service.subscriber_groups.create(namespace, group)))
            steps.append(
                (
                    f"{_SUBSCRIPTION}{group} {topic}/{event_code}",
                    lambda: service.subscriptions.create(
                        namespace,
                        group,
                        topic,
                        event_code,
                        expression=request.expression or None,
                        from_beginning=request.from_beginning,
                    ),
                )
            )
        return steps

    async def _refuse_other_expression(self, namespace: str, request: directory_pb2.RegisterRequest) -> None:
        """Raise SubscriptionDiffersError if the subscription exists with another expression."""
        wanted = request.expression or None
        found = await self._find_subscription(namespace, request)
        if found is not None and found.expression != wanted:
            raise SubscriptionDiffersError(request.group, request.topic, request.event_code, found.expression, wanted)

    async def _was_registered(self, namespace: str, request: directory_pb2.RegisterRequest) -> bool:
        """Return whether the subscription exists as it is asked for; then all else that it needs does, too."""
        found = await self._find_subscription(namespace, request)
        return found is not None and found.expression == request.expression

    async def _find_subscription(
        self, namespace: str, request: directory_pb2.RegisterRequest
    ) -> SubscriptionView | None:
        if not request.group:
            return None
        try:
            page = await self._service.subscriptions.list(
                namespace, group=request.group, topic=request.topic, limit=limits.SUBSCRIPTIONS_PER_GROUP_MAX
            )
        except NotFoundError:
            # Of the group or the topic: then there is no subscription either. The steps say what else is missing.
            return None
        return next((found for found in page.items if found.event_code == request.event_code), None)


def check_request(request: directory_pb2.RegisterRequest) -> None:
    """Raise unless every name of a registration and its expression are good: nothing is half made."""
    names.check_namespace(request.namespace or names.DEFAULT_NAMESPACE)
    names.check_topic(request.topic)
    if request.event_code != names.ANY_EVENT_CODE:
        names.check_event_code(request.event_code)
    if request.group:
        names.check_group(request.group)
    if request.expression:
        check_expression(request.expression)


def _things(request: directory_pb2.RegisterRequest) -> list[tuple[str, str]]:
    """Return all that a registration needs, as the audit trail calls it."""
    things = [("topic", request.topic), ("event_code", f"{request.topic}/{request.event_code}")]
    if request.group:
        subscription = describe_subscription(request.group, request.topic, request.event_code)
        things += [("subscriber_group", request.group), ("subscription", subscription)]
    return things
