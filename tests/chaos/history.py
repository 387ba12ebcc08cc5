"""What publishers were told and what subscribers saw, and whether both fit the promises.

Every message has a body of its own, `publisher:number`. Publishers send their numbers in order.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import psycopg

from msgbroker.client import Message, MessageCenterError, Receipt


class Place(NamedTuple):
    """Where a message is in the log."""

    queue_id: int
    queue_offset: int


class Sight(NamedTuple):
    """One call of a handler."""

    group: str
    body: str
    place: Place
    attempt: int
    at: float


@dataclass(slots=True)
class History:
    """See the module."""

    acknowledged: dict[str, Place] = field(default_factory=dict)
    failed: dict[str, MessageCenterError] = field(default_factory=dict)
    """Not acknowledged: stored or not, but once at most."""
    sights: list[Sight] = field(default_factory=list)
    seen: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    """By group, the bodies."""

    # --- recording ------------------------------------------------------------------------------------------------

    def told(self, body: str, answer: Receipt | MessageCenterError) -> None:
        """Record what a publisher heard of a message."""
        if isinstance(answer, Receipt):
            self.acknowledged[body] = Place(answer.queue_id, answer.queue_offset)
        else:
            self.failed[body] = answer

    def saw(self, group: str, message: Message) -> None:
        """Record that a handler of *group* was called with a message."""
        body = message.body.decode()
        place = Place(message.queue_id, message.queue_offset)
        self.sights.append(Sight(group, body, place, message.attempt, time.monotonic()))
        self.seen[group].add(body)

    def missing(self, groups: Iterable[str]) -> dict[str, int]:
        """Return how many acknowledged messages each group has not seen yet; nothing where it has seen all."""
        counts = {group: len(self.acknowledged.keys() - self.seen[group]) for group in groups}
        return {group: count for group, count in counts.items() if count}

    # --- checking -------------------------------------------------------------------------------------------------

    def check(self, log: Mapping[Place, str], groups: Sequence[str]) -> None:
        """Raise AssertionError where a promise was broken; *log* is what is stored."""
        self._check_log(log)
        self._check_acknowledged(log)
        self._check_seen(log, groups)

    def check_duplicates(self, faults: Sequence[float], window_seconds: float) -> int:
        """Raise unless every message seen twice by a group was first seen shortly before a fault; return how many were.

        Or after it: in the hands of instances that were cut off when they reconnected.
        """
        first: dict[tuple[str, str], float] = {}
        again: Counter[tuple[str, str]] = Counter()
        for sight in self.sights:
            name = (sight.group, sight.body)
            if name in first:
                again[name] += 1
            else:
                first[name] = sight.at
        early = [
            (name, [round(first[name] - fault, 2) for fault in faults])
            for name in again
            if not any(-window_seconds <= first[name] - fault <= window_seconds for fault in faults)
        ]
        assert not early, f"{len(early)} messages came again though they were settled long before: {early[:5]}"
        return sum(again.values())

    def _check_log(self, log: Mapping[Place, str]) -> None:
        """Offsets are gapless; a message is stored once; a publisher's messages are in order in each queue."""
        ends: Counter[int] = Counter()
        last: dict[tuple[int, str], int] = {}
        times = Counter(log.values())
        twice = [body for body, count in times.items() if count > 1]
        assert not twice, f"stored more than once: {twice[:5]}"
        for place in sorted(log):
            assert place.queue_offset == ends[place.queue_id], f"queue {place.queue_id} has a gap below {place}"
            ends[place.queue_id] += 1
            publisher, _, number = log[place].partition(":")
            before = last.get((place.queue_id, publisher), -1)
            assert before < int(number), f"{log[place]} is at {place}, behind number {before} of its publisher"
            last[place.queue_id, publisher] = int(number)

    def _check_acknowledged(self, log: Mapping[Place, str]) -> None:
        """What was acknowledged is where the receipt says."""
        wrong = [(body, place) for body, place in self.acknowledged.items() if log.get(place) != body]
        assert not wrong, f"{len(wrong)} acknowledged messages are not where they should be: {wrong[:5]}"

    def _check_seen(self, log: Mapping[Place, str], groups: Sequence[str]) -> None:
        """What was seen is what is stored there, and each group has seen all of the log."""
        for sight in self.sights:
            assert log.get(sight.place) == sight.body, f"seen, but not stored there: {sight}"
        stored = set(log.values())
        for group in groups:
            lost = stored - self.seen[group]
            assert not lost, f"{group} never saw {len(lost)} of {len(stored)} messages: {sorted(lost)[:5]}"


def read_log(url: str) -> dict[Place, str]:
    """Return the bodies of all that is stored, by place."""
    with psycopg.connect(url) as connection:
        rows = connection.execute("SELECT queue_id, queue_offset, convert_from(body, 'UTF8') FROM message").fetchall()
    return {Place(queue_id, queue_offset): body for queue_id, queue_offset, body in rows}
