"""How many messages this broker stored and delivered in each minute, by their types: added up, until it is written.

What is written of a minute are its totals, so writing it again does no harm; they are kept here until nothing more can
come for it. Counting costs a batch some microseconds, and a message of it next to nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeAlias

from msgbroker.engine.tally import Counted
from msgbroker.server.figures.store_clock import StoreClock
from msgbroker.server.log.message import LogMessage, TargetedMessage
from msgdb.append.outcome import FrameOutcome
from msgdb.figures.latency import CLASSES, add_latencies
from msgdb.figures.usage import MINUTE_US, NO_GROUP, UsageRow

KEYS_MAX: Final = 50_000
"""So many counts are kept at a time. What is over it is not counted, and its minute says so."""
_SEEN_BEFORE_US: Final = MINUTE_US
"""A frame that was stored before may be one that this broker stored, and did not hear of, so long ago."""
_OF_THE_MINUTE: Final = (0, NO_GROUP, "", False)

UsageKey: TypeAlias = tuple[int, int, str, bool]
"""What is counted apart in a minute: topic_id, group_id, event code, whether it is stress traffic."""


class Counts:
    """What was counted in a minute of one type of messages, for one group or of publishing."""

    __slots__ = (
        "dead_lettered",
        "delivered",
        "is_changed",
        "lacks",
        "latency",
        "published",
        "redriven",
        "replayed",
        "retried",
        "size_bytes",
    )

    def __init__(self) -> None:
        self.published = self.redriven = self.replayed = 0
        self.delivered = self.retried = self.dead_lettered = self.size_bytes = 0
        self.latency: list[int] = []
        self.lacks = False
        self.is_changed = True

    def add_delivered(self, sizes_bytes: int, stored_at_us: Sequence[int], now_us: int) -> None:
        """Count messages, stored at these times, as acknowledged now."""
        self.delivered += len(stored_at_us)
        self.size_bytes += sizes_bytes
        if not self.latency:
            self.latency = [0] * CLASSES
        add_latencies(self.latency, stored_at_us, now_us)
        self.is_changed = True

    def row(self, minute: int, key: UsageKey) -> UsageRow:
        """Return it as it is written."""
        topic_id, group_id, event_code, stress = key
        return UsageRow(
            minute * MINUTE_US,
            topic_id,
            group_id,
            event_code,
            stress,
            published=self.published,
            redriven=self.redriven,
            replayed=self.replayed,
            delivered=self.delivered,
            retried=self.retried,
            dead_lettered=self.dead_lettered,
            size_bytes=self.size_bytes,
            latency=self.latency,
            lacks=self.lacks,
        )


class UsageCounts:
    """The counts of the minutes that are not over, or not written."""

    def __init__(self, store_clock: StoreClock | None = None, *, keys_max: int = KEYS_MAX) -> None:
        self.clock = store_clock or StoreClock()
        """The clock that minutes are told by."""
        self.now_us = self.clock.now_us
        self._keys_max = keys_max
        self._minutes: dict[int, dict[UsageKey, Counts]] = {}
        self._first_open = 0
        """The first minute that was not given up: what comes for an earlier one counts here."""
        self._keys = 0

    # --- counting ---------------------------------------------------------------------------------------------------

    def at(self, time_us: int, key: UsageKey) -> Counts:
        """Return the counts of the minute in which *time_us* lies."""
        minute = max(time_us // MINUTE_US, self._first_open)
        of_minute = self._minutes.get(minute)
        if of_minute is None:
            of_minute = self._minutes[minute] = {}
        counts = of_minute.get(key)
        if counts is not None:
            return counts
        if self._keys >= self._keys_max and key != _OF_THE_MINUTE:
            self.doubt(time_us)
            return Counts()
        self._keys += 1
        counts = of_minute[key] = Counts()
        return counts

    def stored(self, by_queue: Mapping[int, list[LogMessage]]) -> None:
        """Count what a commit has stored, in the minute that it was stored at."""
        for messages in by_queue.values():
            first = messages[0]
            if first.route is None:
                continue
            topic_id, stored_at_us = first.route.topic_id, first.stored_at_us
            codes = [message.event_code for message in messages]
            apart = [message.stress or message.target_group is not None for message in messages]
            if True in apart:
                self._stored_apart(topic_id, stored_at_us, messages)
                continue
            if codes.count(codes[0]) == len(codes):
                sizes = {codes[0]: sum([message.size_bytes for message in messages])}
            else:
                sizes = dict.fromkeys(codes, 0)
                for message in messages:
                    sizes[message.event_code] += message.size_bytes
            for event_code, size_bytes in sizes.items():
                counts = self.at(stored_at_us, (topic_id, NO_GROUP, event_code, False))
                counts.published += codes.count(event_code)
                counts.size_bytes += size_bytes
                counts.is_changed = True

    def _stored_apart(self, topic_id: int, stored_at_us: int, messages: Iterable[LogMessage]) -> None:
        """Count messages of which some are redriven or replayed, or stress traffic."""
        for message in messages:
            group_id = NO_GROUP if message.target_group is None else message.target_group
            counts = self.at(stored_at_us, (topic_id, group_id, message.event_code, message.stress))
            if not isinstance(message, TargetedMessage):
                counts.published += 1
                counts.size_bytes += message.size_bytes
            elif message.redrives:
                counts.redriven += 1
            else:
                counts.replayed += 1
            counts.is_changed = True

    def stored_before(self, outcome: FrameOutcome) -> None:
        """Take note of a frame that is stored, though not by a commit that this broker saw succeed.

        Where that was long ago, whoever stored it has counted it, or has not said that it ended.
        """
        if outcome.stored_at_us > self.now_us() - _SEEN_BEFORE_US:
            self.doubt(outcome.stored_at_us)

    def doubt(self, time_us: int) -> None:
        """Say of a minute that something that belongs to it may not be counted."""
        counts = self.at(time_us, _OF_THE_MINUTE)
        counts.is_changed = counts.is_changed or not counts.lacks
        counts.lacks = True

    def doubt_lately(self) -> None:
        """Say so of this minute and the one before: what was under way may have been of either."""
        now_us = self.now_us()
        self.doubt(now_us)
        self.doubt(now_us - MINUTE_US)

    # --- what is written --------------------------------------------------------------------------------------------

    def changed(self) -> list[tuple[int, UsageKey]]:
        """Return what is to be written, the oldest minute first."""
        return [
            (minute, key)
            for minute, of_minute in sorted(self._minutes.items())
            for key, counts in of_minute.items()
            if counts.is_changed
        ]

    def take(self, names: Iterable[tuple[int, UsageKey]]) -> list[UsageRow]:
        """Return the totals of *names*, to be written now."""
        rows = []
        for minute, key in names:
            counts = self._minutes[minute][key]
            counts.is_changed = False
            rows.append(counts.row(minute, key))
        return rows

    def give_back(self, names: Iterable[tuple[int, UsageKey]]) -> None:
        """Note that these may not have been written."""
        for minute, key in names:
            self._minutes[minute][key].is_changed = True

    def give_up(self, until_us: int) -> None:
        """Keep the minutes no longer that were over at *until_us*: all of them is written, and nothing more comes."""
        self._first_open = max(self._first_open, until_us // MINUTE_US)
        for minute in [minute for minute in self._minutes if minute < self._first_open]:
            of_minute = self._minutes[minute]
            if not any(counts.is_changed for counts in of_minute.values()):
                self._keys -= len(of_minute)
                del self._minutes[minute]


class LaneTally:
    """What becomes of the messages of a group's lanes on one topic."""

    __slots__ = ("_group_id", "_topic_id", "_usage")

    def __init__(self, usage: UsageCounts, group_id: int, topic_id: int) -> None:
        self._usage = usage
        self._group_id = group_id
        self._topic_id = topic_id

    def delivered(self, counted: Counted, stored_at_us: Sequence[int]) -> None:
        """Count messages that were acknowledged."""
        now_us = self._usage.now_us()
        codes, sizes, stress = counted
        if not stress and codes.count(codes[0]) == len(codes):
            self._at(now_us, codes[0], stress=False).add_delivered(sum(sizes), stored_at_us, now_us)
            return
        for (code, is_stress), places in _by_type(counted).items():
            counts = self._at(now_us, code, stress=is_stress)
            counts.add_delivered(
                sum([sizes[place] for place in places]), [stored_at_us[place] for place in places], now_us
            )

    def retried(self, counted: Counted) -> None:
        """Count messages whose attempt failed, and that come again."""
        now_us = self._usage.now_us()
        for (code, is_stress), places in _by_type(counted).items():
            counts = self._at(now_us, code, stress=is_stress)
            counts.retried += len(places)
            counts.is_changed = True

    def dead_lettered(self, counted: Counted) -> None:
        """Count messages that became dead letters."""
        now_us = self._usage.now_us()
        for (code, is_stress), places in _by_type(counted).items():
            counts = self._at(now_us, code, stress=is_stress)
            counts.dead_lettered += len(places)
            counts.is_changed = True

    def _at(self, now_us: int, event_code: str, *, stress: bool) -> Counts:
        return self._usage.at(now_us, (self._topic_id, self._group_id, event_code, stress))


def _by_type(counted: Counted) -> dict[tuple[str, bool], list[int]]:
    """Return the places of the messages of each type, stress traffic apart."""
    stress = counted.stress or [False] * len(counted.event_codes)
    places: dict[tuple[str, bool], list[int]] = {}
    for place, name in enumerate(zip(counted.event_codes, stress, strict=True)):
        of_type = places.get(name)
        if of_type is None:
            places[name] = [place]
        else:
            of_type.append(place)
    return places
