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


def paces(backlogs: Iterable[Backlog], looked_at: Sequence[datetime], now: datetime) -> Mapping[tuple[int, int], float]:
    """Return by how many messages a minute each group came further behind on each topic; negative: it catches up.

    Of minutes that are over and were looked at, the first and the last count: a group that is not named in one was not
    behind then. Groups that were behind in neither are left out, and all are where there are no two such minutes.
    """
    over = [minute for minute in looked_at if minute + _MINUTE <= now]
    if len(over) < 2:
        return {}
    first, last = over[0], over[-1]
    minutes = (last - first) / _MINUTE
    behind: dict[tuple[int, int], dict[datetime, int]] = {}
    for backlog in backlogs:
        if backlog.minute in {first, last}:
            behind.setdefault((backlog.group_id, backlog.topic_id), {})[backlog.minute] = backlog.behind
    return {names: (at.get(last, 0) - at.get(first, 0)) / minutes for names, at in behind.items()}


def drain_seconds(behind: int, per_minute: float | None) -> float | None:
    """Return in how many seconds nothing is behind any more, should it go on as it does; None: not at this pace."""
    if behind == 0:
        return 0.0
    if per_minute is None or per_minute >= 0:
        return None
    return round(behind / -per_minute * _SECONDS, 1)
