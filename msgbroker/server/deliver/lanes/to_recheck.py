"""Lanes that were given up because their queue lost its end, until they are claimed again."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Final

from msgbroker.server import clock
from msgdb.lanes.records import LaneKey

_KEPT_SECONDS: Final = 60.0
"""A lane that another broker has by then is that one's to put right; here it must not begin anew months later."""


class LanesToRecheck:
    """Lanes whose cursors may lie beyond what was lost, though the log may reach beyond them again by now."""

    def __init__(self, now: Callable[[], float] = clock.now) -> None:
        self._now = now
        self._since: dict[LaneKey, float] = {}

    def add(self, key: LaneKey) -> None:
        """Have a lane compared with its log when it is claimed again."""
        self._since[key] = self._now()

    def keys(self) -> Collection[LaneKey]:
        """Return those that are to be compared."""
        oldest = self._now() - _KEPT_SECONDS
        self._since = {key: since for key, since in self._since.items() if since >= oldest}
        return self._since.keys()

    def checked(self, keys: Iterable[LaneKey]) -> None:
        """Note that these were compared."""
        for key in keys:
            self._since.pop(key, None)
