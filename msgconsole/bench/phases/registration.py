"""What a phase needs to be registered: the topic, its groups, and the group that is late."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final

from confdb.services import ConfigService
from confdb.store import ConfigStore
from msgbroker.contract.errors import ThingAlreadyExistsError
from msgconsole.bench.phases.center import BenchCenter
from msgconsole.bench.scenario import EXPRESSION, LateGroup, Phase
from msgconsole.bench.workers.load import EVENT_CODE, TOPIC
from msgdb.log.queues import QueueTailReader
from msgdb.store import MessageStore

NAMESPACE: Final = "default"
LATE_GROUP: Final = "SG_LATE"


@dataclass(frozen=True, slots=True)
class Registered:
    """The groups that were registered for a phase, by how they subscribe."""

    direct: list[str]
    header: list[str]

    @property
    def names(self) -> list[str]:
        """The names of all groups of the phase."""
        return [*self.direct, *self.header]


class Registration:
    """Registers what each phase needs, and removes what only the one before needed."""

    def __init__(self, center: BenchCenter) -> None:
        self._center = center
        self._phase_number = 0
        self._to_remove: list[str] = []
        self._has_late = False

    def prepare(self, phase: Phase) -> Registered:
        """Return the groups of *phase* once all are active."""
        return asyncio.run(self._prepare(phase))

    async def _prepare(self, phase: Phase) -> Registered:
        async with configuring(self._center) as service:
            await ensure_topic(service)
            await self._remove_old(service, phase)
            # Active when what is registered next is.
            await service.topics.update(NAMESPACE, TOPIC, trace_rate=phase.trace_rate)
            self._phase_number += 1
            direct = [f"SG_{self._phase_number}_{index}" for index in range(phase.groups.direct)]
            header = [f"SG_{self._phase_number}_HEADER_{index}" for index in range(phase.groups.header)]
            version = 0
            for name in direct:
                version = await _subscribe(service, name)
            for threshold, name in enumerate(header):
                version = await _subscribe(service, name, EXPRESSION.format(threshold=threshold))
            if phase.late is not LateGroup.NONE and not self._has_late:
                version = await _subscribe(service, LATE_GROUP)
                self._has_late = True
            self._to_remove = [*direct, *header]
            await service.wait_until_active(version)
        return Registered(direct, header)

    async def _remove_old(self, service: ConfigService, phase: Phase) -> None:
        if self._has_late and phase.late is LateGroup.NONE:
            self._to_remove.append(LATE_GROUP)
            self._has_late = False
        for name in self._to_remove:
            await service.subscriber_groups.delete(NAMESPACE, name)
        self._to_remove = []


@contextlib.asynccontextmanager
async def configuring(center: BenchCenter) -> AsyncIterator[ConfigService]:
    """Give the services that change the center's configuration."""
    async with ConfigStore.open(center.confdb_url) as config_store, MessageStore.open(center.msgdb_url) as store:
        yield ConfigService(config_store, "bench", QueueTailReader(store))


async def ensure_topic(service: ConfigService) -> None:
    """Register the topic of the bench, unless it is."""
    for step in (service.topics.create(NAMESPACE, TOPIC), service.event_codes.add(NAMESPACE, TOPIC, EVENT_CODE)):
        with contextlib.suppress(ThingAlreadyExistsError):
            await step


async def _subscribe(service: ConfigService, group: str, expression: str | None = None) -> int:
    await service.subscriber_groups.create(NAMESPACE, group)
    changed = await service.subscriptions.create(NAMESPACE, group, TOPIC, EVENT_CODE, expression=expression)
    return changed.version
