"""gRPC's standard health service: what serves, by name, for whoever asks or watches.

The one that comes with gRPC tells its watchers one after the other, and waits for each: a watcher that does not read
would keep the broker from saying anything to anybody.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final, NoReturn

import grpc
from grpc_health.v1 import health_pb2

from msgbroker.contract.errors import MessageCenterError, TooManyCallsError
from msgbroker.server.edge.calls.ending import write
from msgbroker.server.edge.calls.places import Places
from msgbroker.server.edge.calls.sending_in_time import sent_in_time
from msgbroker.server.edge.decoding import decoder
from msgbroker.server.edge.refusals import abort_with

SERVICE: Final = "grpc.health.v1.Health"

HealthContext = grpc.aio.ServicerContext[Any, Any]

_WATCHERS_MAX: Final = 1_000
_CHECKS_MAX: Final = 100
_decode: Final = decoder(health_pb2.HealthCheckRequest, bytes_max=4 * 1024)


class HealthService:
    """Answers those who ask for a service's health, and tells those who watch it when it changes."""

    def __init__(self) -> None:
        self.places = Places("health watchers", _WATCHERS_MAX)
        self.checks = Places("health checks", _CHECKS_MAX, TooManyCallsError)
        self._statuses: dict[str, int] = {}
        self._watchers: set[asyncio.Event] = set()

    def set(self, service: str, *, serving: bool) -> None:
        """Say of one service whether it serves."""
        status = health_pb2.HealthCheckResponse.SERVING if serving else health_pb2.HealthCheckResponse.NOT_SERVING
        self._statuses[service] = status
        for watcher in self._watchers:
            watcher.set()

    async def check(
        self, request: health_pb2.HealthCheckRequest, context: HealthContext
    ) -> health_pb2.HealthCheckResponse:
        """Say whether the service of that name serves."""
        if request.service not in self._statuses:
            await context.abort(grpc.StatusCode.NOT_FOUND, "no such service")
        return health_pb2.HealthCheckResponse(status=self._statuses[request.service])

    async def watch(self, _: object, context: HealthContext) -> None:
        """Say whether a service serves, now and whenever that changes."""
        try:
            with self.places.taken():
                async with sent_in_time("the request"):
                    encoded = await context.read()
                if encoded is not grpc.aio.EOF:
                    await self._tell(_decode(encoded).service, context)
        except MessageCenterError as error:
            await abort_with(context, error)

    async def _tell(self, service: str, context: HealthContext) -> NoReturn:
        told: int | None = None
        changed = asyncio.Event()
        self._watchers.add(changed)
        try:
            while True:
                changed.clear()
                status = self._statuses.get(service, health_pb2.HealthCheckResponse.SERVICE_UNKNOWN)
                if status != told:
                    told = status
                    await write(context, health_pb2.HealthCheckResponse(status=status).SerializeToString())
                await changed.wait()
        finally:
            self._watchers.discard(changed)
