"""How far groups were behind, minute by minute, by name; and which minutes nobody looked at."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from msgconsole.operations.figures.names import read_names
from msgconsole.operations.figures.wanted import WantedFigures, check_times
from msgconsole.operations.stores import Stores
from msgdb.figures.backlog import ROWS_MAX, Backlog, list_backlog, list_looked_at

_MINUTE: Final = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class BacklogAt:
    """How far a group was behind on a topic at the end of a stretch of time."""

    begins_at: datetime
    namespace: str
    group: str
    topic: str
    behind: int
    behind_max: int
    """The most that was found in that time."""
    redeliveries: int
    oldest_at: datetime | None
    """When the oldest message was stored that was not settled."""
    late_since: datetime | None
    """When the message was stored with which it began to be late."""
    matching: int | None
    """How many of `behind` it will get, about: on the queues of which that is known. None: it is of none."""
    matching_unknown: int
    """How many of `behind` lie on the other queues."""


@dataclass(frozen=True, slots=True)
class BacklogReport:
    """How far groups were behind in some time."""

    rows: Sequence[BacklogAt]
    """In the order of time. A group that is not there for a time was not behind then, but for `not_looked_at`."""
    not_looked_at: Sequence[tuple[datetime, datetime]]
    """From when until when nobody looked how far groups are behind."""
    is_cut: bool
    """Whether there are more rows, of earlier times."""
    knows_all_deleted: bool
    """Whether topics and groups that were deleted since are among them, as far as they are asked for."""


async def read_backlog(
    stores: Stores, wanted: WantedFigures, since: datetime, until: datetime, step: timedelta
) -> BacklogReport:
    """Return how far groups were behind from *since* to *until*, once for each *step*.

    Raises NotFoundError where *wanted* names what is not registered, nor was then, InvalidSettingError for times
    nothing is kept of.
    """
    check_times(since, until)
    names = await read_names(stores, wanted, since)
    async with stores.messages.looking() as connection:
        rows = await list_backlog(
            connection, since, until, group_ids=names.group_ids(wanted), topic_ids=names.topic_ids(wanted)
        )
        looked_at = await list_looked_at(connection, since, until)
    found = [
        BacklogAt(
            row.minute,
            names.namespace_of(row.topic_id),
            names.group(row.group_id),
            names.topic(row.topic_id),
            *row[3:],
        )
        for row in in_steps(rows, step)
    ]
    not_looked_at = gaps(looked_at, since, min(until, datetime.now(UTC)))
    return BacklogReport(found, not_looked_at, len(rows) >= ROWS_MAX, names.knows_all_deleted)


def in_steps(minutes: Iterable[Backlog], step: timedelta) -> list[Backlog]:
    """Return *minutes*, which come with the last one first, as one for each *step*, in the order of time.

    What was found last in it holds; of the most that was found, the most.
    """
    found: dict[tuple[datetime, int, int], Backlog] = {}
    for row in minutes:
        begins_at = _step_of(row.minute, step)
        name = (begins_at, row.group_id, row.topic_id)
        later = found.get(name)
        if later is None:
            found[name] = row._replace(minute=begins_at)
        else:
            found[name] = later._replace(behind_max=max(later.behind_max, row.behind_max))
    return [found[name] for name in sorted(found)]


def _step_of(at: datetime, step: timedelta) -> datetime:
    zero = datetime(1970, 1, 1, tzinfo=UTC)
    return at - (at - zero) % step


def gaps(looked_at: Iterable[datetime], since: datetime, until: datetime) -> list[tuple[datetime, datetime]]:
    """Return from when until when nobody looked, of whole minutes between *since* and *until*."""
    first = since.replace(second=0, microsecond=0)
    expected = first if first == since else first + _MINUTE
    found: list[tuple[datetime, datetime]] = []
    # The minute that goes on may yet be looked at.
    end = until.replace(second=0, microsecond=0)
    for minute in [*(each for each in looked_at if expected <= each < end), end]:
        if minute > expected:
            found.append((expected, minute))
        expected = minute + _MINUTE
    return found
