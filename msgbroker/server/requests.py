"""Carries out what operators ask of this very broker: to end the connection of an instance, or of a publisher.

What is asked is a row. It is written down as done, with the act, before the connection ends: whatever happens in
between, the connection ends with the broker or, where the commit was not heard of, with the next look at the row.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, NamedTuple, Protocol
from uuid import UUID

import structlog

from msgbroker.contract.errors import DisconnectedError, StoreUnavailableError
from msgbroker.server.deliver.group import GroupDelivery
from msgbroker.server.deliver.hub import DeliveryHub
from msgbroker.server.deliver.instances.instance import Instance
from msgbroker.server.loops import woken
from msgdb.requests import Request, list_requests, note_disconnected, note_gone
from msgdb.store import MessageStore

log = structlog.get_logger(__name__)

_LOOK_SECONDS: Final = 1.0


class PublisherStream(Protocol):
    """The stream of a publisher, to whoever ends it."""

    @property
    def namespace(self) -> str:
        """The namespace that it publishes in."""
        ...

    def disconnect(self) -> None:
        """End it, once what was taken in is answered."""
        ...


class _Connection(NamedTuple):
    """What is to be ended."""

    namespace: str
    end: Callable[[], None]


class BrokerRequests:
    """Looks for what is asked of this broker, and carries it out."""

    def __init__(
        self,
        *,
        store: MessageStore,
        hub: DeliveryHub,
        publishers: Callable[[], Mapping[str, PublisherStream]],
        broker_id: UUID,
    ) -> None:
        self.wake = asyncio.Event()
        """Set by whoever hears that something is asked."""
        self._store = store
        self._hub = hub
        self._publishers = publishers
        self._broker_id = broker_id

    async def run(self, stop: asyncio.Event) -> None:
        """Carry out what is asked until *stop* is set."""
        while not stop.is_set():
            try:
                await self.carry_out_once()
            except StoreUnavailableError:
                # What is asked has its time, and whoever asks is told when that is over.
                log.warning("requests.store_unavailable")
            await woken(stop, self.wake, _LOOK_SECONDS)

    async def carry_out_once(self) -> int:
        """Carry out all that is asked; return how many connections were ended."""
        async with self._store.connection() as connection:
            requests = await list_requests(connection, self._broker_id)
        ended_count = 0
        for request in requests:
            if self._find(request) is not None or not request.is_done:
                ended_count += await self._carry_out(request)
        return ended_count

    async def _carry_out(self, request: Request) -> bool:
        if not request.is_done:
            found = self._find(request)
            async with self._store.transaction() as connection:
                if found is None:
                    is_noted = await note_gone(connection, request)
                else:
                    is_noted = await note_disconnected(connection, request, namespace=found.namespace)
            if not is_noted:
                # Its time was over.
                return False
        # Looked for once more: it may have gone meanwhile, and that is all that was asked.
        found = self._find(request)
        if found is None:
            return False
        found.end()
        log.info("requests.disconnected", request_id=request.request_id, thing=request.thing)
        return True

    def _find(self, request: Request) -> _Connection | None:
        """Return that connection; None: it is not there."""
        if request.group_id is None:
            # What was done within the last hour is looked at each second: whoever has much to disconnect asks much.
            stream = self._publishers().get(request.attachment)
            return None if stream is None else _Connection(stream.namespace, stream.disconnect)
        group = self._hub.groups.get(request.group_id)
        instance = None if group is None else group.instances.get(request.attachment)
        if group is None or instance is None:
            return None
        return _Connection(group.route.namespace, partial(self._disconnect, group, instance))

    def _disconnect(self, group: GroupDelivery, instance: Instance) -> None:
        """End the connection of an instance: what it held is its group's again at once, whether it reads or not."""
        because = DisconnectedError(instance.instance_id)
        instance.close(because)
        self._hub.detach(group, instance)
        if instance.outlet.is_writing:
            # Its stream would end behind what it does not read.
            instance.outlet.end(because)
