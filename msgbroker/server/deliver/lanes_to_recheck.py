"""Lanes that were given up because their queue lost its end, until they are claimed again."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Final

from msgbroker.server import clock
from msgdb.lanes.records import LaneKey

_KEPT_SECONDS: Final = 60.0
"""A lane that another broker has by then is that one's to put right; here it must not begin anew months later."""


class Suspects:
    """Lanes whose cursors may lie beyond what was lost, though the log may reach beyond them again by now."""

    def __init__(self, now: Callable[[], float] = clock.now) -> None:
        self._now = now
        self._since: dict[LaneKey, float] = {}

    def add(self, key: LaneKey) -> None:
        """Suspect a lane."""
        self._since[key] = self._now()

    def names(self) -> Collection[LaneKey]:
        """Return those that are suspected at the moment."""
        oldest = self._now() - _KEPT_SECONDS
        self._since = {key: since for key, since in self._since.items() if since >= oldest}
        return self._since.keys()

    def clear(self, keys: Iterable[LaneKey]) -> None:
        """Suspect these no longer."""
        for key in keys:
            self._since.pop(key, None)
