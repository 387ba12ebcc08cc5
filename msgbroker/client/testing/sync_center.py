"""SyncInMemoryCenter: the in-memory center for tests of blocking code."""

from __future__ import annotations

from typing import Unpack

from msgbroker.client.core.center_core import CenterCore
from msgbroker.client.sync_center import SyncMessageCenter
from msgbroker.client.testing.center import SETTLE_SECONDS_MAX, InMemoryCenter
from msgbroker.client.testing.delivery import DeadLetter
from msgbroker.client.values.config import AddressesGiven, CenterSettings
from msgbroker.client.values.message import Message


class SyncInMemoryCenter(SyncMessageCenter):
    """A SyncMessageCenter that is an InMemoryCenter inside; `memory` registers things.

    Example:
        with SyncInMemoryCenter() as center:
            attach_handlers(center)
            center.start()
            center.publish("TP_TRADE", "EC_PAID", {"order": 1})
            center.settle_all()
    """

    memory: InMemoryCenter
    """The center inside, for its `register_topic`, `register_group`, `register_subscription` and `allow_stress`."""

    def __init__(self, *, strict: bool = False, **settings: Unpack[CenterSettings]) -> None:
        self._is_strict = strict
        super().__init__("in-memory:1", **settings)

    @property
    def published(self) -> list[Message]:
        """All messages stored so far, in their order."""
        return self.memory.published

    @property
    def dead_letters(self) -> list[DeadLetter]:
        """What was dead-lettered so far, group by group."""
        return self.memory.dead_letters

    def settle_all(self, within_seconds: float = SETTLE_SECONDS_MAX) -> None:
        """Run the handlers until every message is settled, as `InMemoryCenter.settle_all` does."""
        self._background.call(self.memory.settle_all(within_seconds))

    def advance(self, seconds: float) -> None:
        """Let time pass, as `InMemoryCenter.advance` does."""
        self._background.call(self.memory.advance(seconds))

    def _make_core(self, addresses: AddressesGiven, settings: CenterSettings) -> CenterCore:  # noqa: ARG002 - has none
        self.memory = InMemoryCenter(strict=self._is_strict, **settings)
        return self.memory._core  # noqa: SLF001 - the same center, for blocking code
