"""The tables that are kept by days: one entry for each, by which days are made, archived and dropped.

A day is a day in UTC by the table's time column. Standard library only, so that whoever reads the store without
SQLAlchemy knows them, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from msgbroker.contract.errors import InvalidSettingError
from msgbroker.contract.limits import DEAD_LETTER_DAYS_DEFAULT, DEAD_LETTER_DAYS_MAX, FIGURE_DAYS, RETENTION_DAYS_MAX
from msgdb import names


@dataclass(frozen=True, slots=True)
class DayTable:
    """A table whose rows go by days."""

    name: str
    time_column: str
    """What says to which day a row belongs."""
    is_partitioned: bool
    """Whether each day is a partition, which goes as a whole; the rows of others are deleted."""
    is_archivable: bool
    """Whether there is an archive of it, so that it may be required before a day goes."""
    retention_days: int
    """For how many days rows are kept, where nobody says anything else."""
    retention_days_max: int
    is_kept_as_long_as: str = ""
    """The table whose rows are not to be kept for longer than these."""
    is_log: bool = False
    """Whether it has the queues' messages: its days go in their order, because a queue has one start only, and what
    points into a day is ended before."""

    def check_retention(self, days: int) -> None:
        """Raise InvalidSettingError unless rows may be kept for so many days."""
        if not 1 <= days <= self.retention_days_max:
            raise InvalidSettingError(f"retention of {self.name}", f"must be 1 to {self.retention_days_max} days")


_ALL: Final = (
    DayTable(
        names.MESSAGE,
        "stored_at",
        is_partitioned=True,
        is_archivable=True,
        retention_days=RETENTION_DAYS_MAX,
        retention_days_max=RETENTION_DAYS_MAX,
        is_log=True,
    ),
    DayTable(
        names.PUBLISHER_FRAME,
        "stored_at",
        is_partitioned=True,
        is_archivable=False,
        retention_days=RETENTION_DAYS_MAX,
        retention_days_max=RETENTION_DAYS_MAX,
        # A frame that is repeated after its row is gone is stored a second time: beside the first, as long as the
        # messages of that one are kept.
        is_kept_as_long_as=names.MESSAGE,
    ),
    DayTable(
        names.DEAD_LETTER,
        "died_at",
        is_partitioned=False,
        is_archivable=True,
        retention_days=DEAD_LETTER_DAYS_DEFAULT,
        retention_days_max=DEAD_LETTER_DAYS_MAX,
    ),
    DayTable(
        names.TRACE_EVENT,
        "at",
        is_partitioned=True,
        is_archivable=False,
        retention_days=RETENTION_DAYS_MAX,
        retention_days_max=RETENTION_DAYS_MAX,
    ),
    DayTable(
        names.USAGE_MINUTE,
        "minute",
        is_partitioned=True,
        is_archivable=False,
        retention_days=FIGURE_DAYS,
        retention_days_max=FIGURE_DAYS,
    ),
    DayTable(
        names.BACKLOG_MINUTE,
        "minute",
        is_partitioned=True,
        is_archivable=False,
        retention_days=FIGURE_DAYS,
        retention_days_max=FIGURE_DAYS,
    ),
)

DAY_TABLES: Final[Mapping[str, DayTable]] = MappingProxyType({table.name: table for table in _ALL})
PARTITIONED: Final = tuple(table for table in _ALL if table.is_partitioned)
ARCHIVABLE_NAMES: Final = tuple(table.name for table in _ALL if table.is_archivable)


def retentions(chosen: Mapping[str, int]) -> dict[str, int]:
    """Return for how many days each table is kept: as *chosen* by its name, or as it says itself.

    Raises InvalidSettingError where that is not possible.
    """
    if unknown := chosen.keys() - DAY_TABLES.keys():
        raise InvalidSettingError("retention", f"{', '.join(sorted(unknown))}: no tables that are kept by days")
    days_of = {name: chosen.get(name, table.retention_days) for name, table in DAY_TABLES.items()}
    for name, table in DAY_TABLES.items():
        table.check_retention(days_of[name])
        other = table.is_kept_as_long_as
        if other and days_of[name] < days_of[other]:
            why = f"is {days_of[name]} days: not less than that of {other}, which is {days_of[other]}"
            raise InvalidSettingError(f"retention of {name}", why)
    return days_of
