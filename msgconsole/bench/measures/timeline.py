"""Counters over time, as workers report them, and rates between two moments. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any, TypeAlias

Point: TypeAlias = tuple[float, float]
"""A moment, and how many messages there were by then."""
History: TypeAlias = Sequence[tuple[float, dict[str, Any]]]


def series(histories: Iterable[History], count: Callable[[dict[str, Any]], float]) -> list[Point]:
    """Return the sum over several workers of what *count* finds in their reports, in the order of time."""
    steps: list[Point] = []
    for history in histories:
        before = 0.0
        for at, progress in history:
            now = count(progress)
            steps.append((at, now - before))
            before = now
    total = 0.0
    points: list[Point] = []
    for at, step in sorted(steps):
        total += step
        points.append((at, total))
    return points


def count_at(points: Sequence[Point], at: float) -> float:
    """Return how many there were at that moment, between two reports in proportion."""
    place = bisect_right(points, at, key=lambda point: point[0])
    if place == 0:
        return 0.0
    if place == len(points):
        return points[-1][1]
    (start, before), (end, after) = points[place - 1], points[place]
    return before + (after - before) * (at - start) / (end - start)


def rate(points: Sequence[Point], start: float, end: float) -> float:
    """Return how many a second there were between two moments; 0 where there is no time between them."""
    return (count_at(points, end) - count_at(points, start)) / (end - start) if end > start else 0.0


def reached_at(points: Sequence[Point], count: float) -> float | None:
    """Return when there were so many, between two reports in proportion; None: never."""
    if points and points[0][1] >= count:
        return points[0][0]
    for (start, before), (end, after) in pairwise(points):
        if after >= count:
            return start + (end - start) * (count - before) / (after - before)
    return None
