"""The gRPC service `Directory`: who serves, and registration for developers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import grpc

from confdb.services import ConfigService
from confdb.services.views import Changed
from msgbroker.contract import names
from msgbroker.contract.errors import (
    MessageCenterError,
    RegistrationDisabledError,
    ThingAlreadyExistsError,
)
from msgbroker.server.cluster import Cluster
from msgbroker.server.grpc_failures import abort_with
from msgbroker.v1 import directory_pb2

DirectoryContext = grpc.aio.ServicerContext[Any, Any]


class DirectoryService:
    """See the module."""

    def __init__(self, cluster: Cluster, service: ConfigService, *, client_registration: bool) -> None:
        self._cluster = cluster
        self._service = service
        self._client_registration = client_registration

    async def list_brokers(
        self, _: directory_pb2.ListBrokersRequest, __: DirectoryContext
    ) -> directory_pb2.ListBrokersResponse:
        """Return the live brokers; this one first."""
        own_id = self._cluster.identity.broker_id
        brokers = sorted(self._cluster.brokers, key=lambda broker: broker.broker_id != own_id)
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
            return directory_pb2.RegisterResponse(created=await self._register(request))
        except MessageCenterError as error:
            await abort_with(context, error)

    async def _register(self, request: directory_pb2.RegisterRequest) -> list[str]:
        namespace = names.check_namespace(request.namespace or names.DEFAULT_NAMESPACE)
        service = self._service
        created: list[str] = []
        version = 0
        steps: list[tuple[str, Callable[[], Awaitable[Changed[Any]]]]] = [
            (f"topic {request.topic}", lambda: service.topics.create(namespace, request.topic))
        ]
        if request.event_code != names.ANY_EVENT_CODE:
            steps.append(
                (
                    f"event code {request.event_code}",
                    lambda: service.event_codes.add(namespace, request.topic, request.event_code),
                )
            )
        if request.group:
            steps.append((f"group {request.group}", lambda: service.subscriber_groups.create(namespace, request.group)))
            steps.append(
                (
                    f"subscription {request.group} {request.topic}/{request.event_code}",
                    lambda: service.subscriptions.create(
                        namespace,
                        request.group,
                        request.topic,
                        request.event_code,
                        expression=request.expression or None,
                        from_beginning=request.from_beginning,
                    ),
                )
            )
        for name, step in steps:
            try:
                changed = await step()
            except ThingAlreadyExistsError:
                continue
            created.append(name)
            version = max(version, changed.version)
        if version:
            await service.wait_until_active(version, group=request.group)
        return created
