"""Both databases, as every act is given them."""

from __future__ import annotations

from dataclasses import dataclass

from confdb.services import ConfigService
from confdb.store import ConfigStore
from msgdb.log.queues import QueueTailReader
from msgdb.store import MessageStore


@dataclass(frozen=True, slots=True)
class Stores:
    """The configuration and the message store: acts are where they meet, and no statement joins them."""

    config: ConfigStore
    messages: MessageStore

    def service(self, actor: str, reason: str = "") -> ConfigService:
        """Return what changes the configuration in the name of *actor*; the audit trail says why."""
        return ConfigService(self.config, actor, QueueTailReader(self.messages), reason=reason)
