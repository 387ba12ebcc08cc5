"""How fast a backlog goes down, or up: told from how far a group was behind minute by minute. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from msgdb.figures.pace import BacklogChange

PACE_MINUTES: Final = 10
"""Of so many minutes the pace is told."""
_MINUTE: Final = timedelta(minutes=1)
_SECONDS: Final = 60


def pace_between(looked_at: Sequence[datetime], now: datetime) -> tuple[datetime, datetime] | None:
    """Return the first and the last of these minutes that are over; None where there are no two."""
    over = [minute for minute in looked_at if minute + _MINUTE <= now]
    return (over[0], over[-1]) if len(over) > 1 else None


class Pace(NamedTuple):
    """By how many messages a minute a group came further behind on a topic; negative: it catches up."""

    per_minute: float
    matching_per_minute: float | None
    """By how many that match, about. None: nobody knows."""


def paces(changes: Iterable[BacklogChange], first: datetime, last: datetime) -> Mapping[tuple[int, int], Pace]:
    """Return the pace of each group on each topic, by what changed between the first minute and the last."""
    minutes = (last - first) / _MINUTE
    return {
        (each.group_id, each.topic_id): Pace(
            each.behind / minutes, None if each.matching is None else round(each.matching / minutes, 3)
        )
        for each in changes
    }


def drain_seconds(
    behind: int, per_minute: float | None, matching: int | None = None, matching_per_minute: float | None = None
) -> float | None:
    """Return in how many seconds nothing is behind any more, should it go on as it does; None: not at this pace.

    What matches takes time, and the rest is read past: so it is told by what is *matching*, where that is known. Where
    all queues match alike that makes no difference.
    """
    if behind == 0:
        return 0.0
    left, pace = (matching, matching_per_minute) if matching and matching_per_minute else (behind, per_minute)
    return None if pace is None or pace >= 0 else round(left / -pace * _SECONDS, 1)
