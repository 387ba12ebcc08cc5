"""A store and a service on a fresh database, and a message store's place taken by known queue tails."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from uuid import UUID, uuid4

import pytest

from confdb.services import ConfigService
from confdb.store import ConfigStore


@dataclass
class KnownTails:
    """Queue tails as told; remembers who asked."""

    offsets: dict[int, int] = field(default_factory=lambda: {1: 10, 2: 20})
    asked: list[tuple[int, int, int]] = field(default_factory=list)
    owners: set[UUID] = field(default_factory=set)
    is_read: bool = False
    """Every group has read everything."""
    kept: list[tuple[int, int, int]] = field(default_factory=list)
    """Beginnings: for which group, of which topic, by which version."""
    mark: tuple[UUID, int] = field(default_factory=lambda: (uuid4(), 0))

    async def tails(self, topic_id: int, generation: int, queue_count: int) -> dict[int, int]:
        self.asked.append((topic_id, generation, queue_count))
        return self.offsets

    async def has_cursor(self, group_id: int, topic_id: int) -> bool:
        return self.is_read

    async def keep_beginning(
        self, group_id: int, topic_id: int, generation: int, queue_count: int, version: int
    ) -> bool:
        self.kept.append((group_id, topic_id, version))
        return not self.is_read

    async def lane_owners(self) -> set[UUID]:
        return self.owners

    async def config_mark(self) -> tuple[UUID, int]:
        return self.mark

    async def raise_config_mark(self, version: int, lost: tuple[UUID, int] | None) -> None:
        self.mark = (uuid4(), version) if lost == self.mark else (self.mark[0], max(version, self.mark[1]))


@pytest.fixture
async def store(database_url: str) -> AsyncIterator[ConfigStore]:
    async with ConfigStore.open(database_url) as opened:
        yield opened


@pytest.fixture
def tails() -> KnownTails:
    return KnownTails()


@pytest.fixture
def service(store: ConfigStore, tails: KnownTails) -> ConfigService:
    return ConfigService(store, "operator:ann", tails)


@pytest.fixture
async def trade(service: ConfigService) -> ConfigService:
    """Return a service whose default namespace has topic TP_TRADE with EC_PAID and EC_REFUNDED, and group SG_POINTS."""
    await service.topics.create("default", "TP_TRADE")
    await service.event_codes.add("default", "TP_TRADE", "EC_PAID")
    await service.event_codes.add("default", "TP_TRADE", "EC_REFUNDED")
    await service.subscriber_groups.create("default", "SG_POINTS")
    return service
