"""The front door for gRPC as a whole, which its broker opens as it starts, drains as it stops, and closes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import grpc

from msgbroker.server.edge.health import HealthWatch
from msgbroker.server.edge.publishing.publisher_service import PublisherService
from msgbroker.server.edge.subscribing.pull_service import PullService
from msgbroker.server.edge.subscribing.subscriber_service import SubscriberService

_CLOSE_SECONDS: Final = 0.5
"""What is still under way then is ended."""


@dataclass(frozen=True, slots=True)
class GrpcDoor:
    """What clients reach over gRPC: the server, the services that hold something of theirs, and what health says."""

    server: grpc.aio.Server
    publisher: PublisherService
    subscriber: SubscriberService
    pull: PullService
    health: HealthWatch

    async def open(self) -> None:
        """Serve clients from now on."""
        await self.server.start()
        await self.health.check_once()

    def drain(self) -> None:
        """Say that this broker is about to stop, and send its clients to others; what they are at may be ended here."""
        self.health.leave()
        for service in (self.publisher, self.subscriber, self.pull):
            service.drain()

    @property
    def is_idle(self) -> bool:
        """Whether no client is at anything that it would lose."""
        return all(service.is_idle for service in (self.publisher, self.subscriber, self.pull))

    async def close(self) -> None:
        """End all streams and calls."""
        await self.server.stop(_CLOSE_SECONDS)
