"""Which minutes are counted to their end. Pure: by how far each broker has counted.

A broker writes every ten seconds all that it has counted until then. One that is killed takes the rest with it, and
nobody knows how much that was: the minutes into which it falls are incomplete. Nobody tells that a broker was killed:
it has not said that it ended, and has not gone on.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Final

from msgdb.figures.usage import UsageBroker

WRITE_SECONDS: Final = 10.0
"""How often brokers write what they have counted."""
SILENT_SECONDS: Final = 15.0
"""A broker that has not written for so long has died, or is cut off from the store."""
MINUTE: Final = timedelta(minutes=1)


def open_from(brokers: Sequence[UsageBroker], now: datetime) -> datetime:
    """Return from when on brokers that are alive have not written yet what they have counted."""
    heard_since = now - timedelta(seconds=SILENT_SECONDS)
    alive = [each.counted_until for each in brokers if not each.has_ended and each.counted_until >= heard_since]
    return min([now, *alive])


def incomplete_minutes(
    brokers: Iterable[UsageBroker], lacking: Iterable[datetime], since: datetime, until: datetime, now: datetime
) -> list[datetime]:
    """Return the minutes from *since* to below *until* that may lack something and will not get it, in their order.

    *lacking*: those of which a broker said so itself.
    """
    heard_since = now - timedelta(seconds=SILENT_SECONDS)
    found = {minute for minute in lacking if since <= minute < until}
    for broker in brokers:
        if broker.has_ended or broker.counted_until >= heard_since:
            continue
        minute = _minute_of(broker.counted_until)
        while minute < broker.counted_until + timedelta(seconds=SILENT_SECONDS):
            if since <= minute < until:
                found.add(minute)
            minute += MINUTE
    return sorted(found)


def _minute_of(at: datetime) -> datetime:
    return at.replace(second=0, microsecond=0)
