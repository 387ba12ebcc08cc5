"""One round of maintenance: what it did, what it left for the next one, and the alarms that stand after it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

import psycopg
import structlog

from msgbroker.contract.errors import StoreUnavailableError
from msgdb.archive.stored_days import StoredDay
from msgdb.postgres.failures import translate
from msgdb.reports.alarms import Alarm, AlarmKind

log = structlog.get_logger(__name__)

_DETAIL_CHARS_MAX: Final = 500
_WAITING_ALARMS_MAX: Final = 20
"""So many days of a table have an alarm each, and one tells of the rest."""


@dataclass(slots=True)
class MaintenanceReport:
    """What one round of maintenance did."""

    created: list[str] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)
    postponed: list[str] = field(default_factory=list)
    """The days that are due to be dropped, but still in use: tried again in the next round."""
    waiting: list[str] = field(default_factory=list)
    """The days that are due to be dropped, but must be archived before."""
    failed: list[str] = field(default_factory=list)
    """The work that failed for a reason nobody foresaw."""
    expired_redelivery_count: int = 0
    """How many redeliveries became dead letters, because their day went."""
    skipped_message_count: int = 0
    """How many messages a group had not settled when their day went, for each group."""
    deleted_row_count: int = 0
    """How many rows were deleted of days that are no partitions."""
    cut_lease_count: int = 0
    """How many leases were cut down that were from before the database's clock was set back."""
    is_analyzed: bool = False

    @property
    def is_empty(self) -> bool:
        """Tell whether there was nothing to do."""
        return self == MaintenanceReport()


class Round:
    """Keeps the report of a round and its alarms: what is not said again in the next round is cleared by it."""

    def __init__(self) -> None:
        self.report = MaintenanceReport()
        self.alarms: list[Alarm] = []
        self._waiting_counts: dict[str, int] = {}

    @asynccontextmanager
    async def contained(self, thing: str) -> AsyncIterator[None]:
        """Go on where *thing* fails for a reason nobody foresaw; the alarm stands until a round goes well."""
        try:
            yield
        except (StoreUnavailableError, MemoryError):
            raise
        except Exception as error:
            # One day must not end broker after broker. What is known of an outage is raised, locks of others aside.
            if translate(error) is not None and not isinstance(error, psycopg.errors.LockNotAvailable):
                raise
            log.exception("maintenance.failed", thing=thing)
            detail = f"{type(error).__name__}: {' '.join(str(error).split())}"[:_DETAIL_CHARS_MAX]
            self._set_aside(thing, detail)

    def leave_alone(self, thing: str, why: str) -> None:
        """Note that *thing* is not touched, and why."""
        log.error("maintenance.left_alone", thing=thing, why=why)
        self._set_aside(thing, why)

    def wait_for(self, stored: StoredDay, age_days: int, reason: str) -> None:
        """Note that an expired day stays until it is archived."""
        self.report.waiting.append(stored.name)
        table = stored.table.name
        count = self._waiting_counts[table] = self._waiting_counts.get(table, 0) + 1
        if count <= _WAITING_ALARMS_MAX:
            detail = f"{age_days} days old, and kept until it is archived: {reason}"[:_DETAIL_CHARS_MAX]
            self.alarms.append(Alarm(AlarmKind.DAY_NOT_ARCHIVED, stored.name, detail))
        elif count == _WAITING_ALARMS_MAX + 1:
            self.alarms.append(Alarm(AlarmKind.DAY_NOT_ARCHIVED, f"more days of {table}", "these wait, too"))

    def _set_aside(self, thing: str, why: str) -> None:
        self.report.failed.append(thing)
        self.alarms.append(Alarm(AlarmKind.PARTITION_SET_ASIDE, thing, why))
