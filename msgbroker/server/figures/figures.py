"""What this broker writes of figures: what it counts itself, and how far groups are behind when it is its turn."""

from __future__ import annotations

from dataclasses import dataclass

import structlog

from msgbroker.contract.errors import StoreUnavailableError
from msgbroker.server.figures.backlog_looks import BacklogLooks
from msgbroker.server.figures.usage_writer import UsageWriter

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Figures:
    """The writers of figures, as a broker has to do with them."""

    usage: UsageWriter
    backlog: BacklogLooks

    async def begin(self) -> None:
        """Say that this broker counts from now on, before it serves. Raises StoreUnavailableError."""
        try:
            await self.usage.begin()
        except (MemoryError, StoreUnavailableError):
            raise
        except Exception:
            # It serves all the same: its loop tries again, and is an alarm while it fails.
            log.exception("usage.not_begun")

    async def leave(self) -> None:
        """Write the rest: this broker stops, and nothing is stored or delivered any more."""
        await self.usage.leave()
