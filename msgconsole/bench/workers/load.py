"""The messages of a load: which have a key, and which satisfy the HEADER groups."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

TOPIC: Final = "TP_BENCH"
EVENT_CODE: Final = "EC_BENCH"
MATCHING: Final = {"region": "hz", "amount": "250", "channel": "web"}
# Fails at the last of the three terms: all of them are evaluated.
NOT_MATCHING: Final = {"region": "hz", "amount": "250", "channel": "test"}
_KEYS: Final = 4_096


class Planned(NamedTuple):
    """The key and headers of one message of the load."""

    key: str
    headers: dict[str, str] | None


class Load:
    """Iterates over the messages of a task, and counts those that were taken."""

    def __init__(self, task: dict[str, Any]) -> None:
        self._messages: int = task["messages"]
        self._keyed_share: float = task["keyed_share"]
        self._matching_share: float = task["matching_share"] if task["with_headers"] else 1.0
        self._matching = MATCHING if task["with_headers"] else None
        self._not_matching = NOT_MATCHING if task["with_headers"] else None
        self.published = 0
        self.matching = 0
        self.stopped = False
        """Set to end a load that has no number of messages."""

    @property
    def first(self) -> Planned:
        """The message that is published before all others, so that everything is connected."""
        self.published += 1
        self.matching += 1
        return Planned("", self._matching)

    def __iter__(self) -> Iterator[Planned]:
        keyed = matched = 0.0
        number = 0
        while not self.stopped and (number < self._messages or not self._messages):
            number += 1
            self.published += 1
            keyed += self._keyed_share
            key = ""
            if keyed >= 1:
                keyed -= 1
                key = f"order-{number % _KEYS}"
            matched += self._matching_share
            if matched >= 1:
                matched -= 1
                self.matching += 1
                yield Planned(key, self._matching)
            else:
                yield Planned(key, self._not_matching)
