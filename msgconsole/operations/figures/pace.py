"""How fast a backlog goes down, or up: told from how far a group was behind minute by minute. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from msgdb.figures.backlog import Backlog

PACE_MINUTES: Final = 10
"""Of so many minutes the pace is told."""
_MINUTE: Final = timedelta(minutes=1)
_SECONDS: Final = 60


def pace_between(looked_at: Sequence[datetime], now: datetime) -> tuple[datetime, datetime] | None:
    """Return the first and the last of these minutes that are over; None where there are no two."""
    over = [minute for minute in looked_at if minute + _MINUTE <= now]
    return (over[0], over[-1]) if len(over) > 1 else None


def paces(
    at_first: Iterable[Backlog], at_last: Iterable[Backlog], first: datetime, last: datetime
) -> Mapping[tuple[int, int], float]:
    """Return by how many messages a minute each group came further behind on each topic; negative: it catches up.

    A group that is not named in one of the two minutes was not behind then.
    """
    before = {(row.group_id, row.topic_id): row.behind for row in at_first}
    after = {(row.group_id, row.topic_id): row.behind for row in at_last}
    minutes = (last - first) / _MINUTE
    return {names: (after.get(names, 0) - before.get(names, 0)) / minutes for names in before.keys() | after.keys()}


def drain_seconds(behind: int, per_minute: float | None) -> float | None:
    """Return in how many seconds nothing is behind any more, should it go on as it does; None: not at this pace."""
    if behind == 0:
        return 0.0
    if per_minute is None or per_minute >= 0:
        return None
    return round(behind / -per_minute * _SECONDS, 1)
