"""Finding messages of a topic by time, event code and headers: its queues are looked through as one log."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from msgbroker.contract.errors import InvalidSettingError
from msgconsole.operations.looking.answers import PAGE_MAX, Answer, PageToken
from msgconsole.operations.looking.merging import LogMerge
from msgconsole.operations.looking.where import Searched, say_what_is_gone
from msgdb.log.found import Position
from msgdb.looking.spans import Span, find_spans
from msgdb.looking.stretches import EVERY_MESSAGE, WantedMessages, read_stretches
from msgdb.postgres.binary_rows import datetime_of
from msgdb.postgres.connections import Connection

SECONDS_MAX: Final = 2.0
"""How long somebody waits for an answer, about: however slow the store is, each goes on where the one before ended."""
_QUICK_SECONDS: Final = 0.4
MORE: Final = "there may be more"
_MICROSECOND: Final = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSearch:
    """Which messages somebody looks for, and how they are to come."""

    namespace: str
    topic: str | None
    """None: of all topics, for those who look by a key."""
    wanted: WantedMessages = EVERY_MESSAGE
    stored_from: datetime | None = None
    stored_before: datetime | None = None
    newest_first: bool = True
    after: PageToken | None = None
    limit: int = 50

    def __post_init__(self) -> None:
        if not 1 <= self.limit <= PAGE_MAX:
            raise InvalidSettingError("limit", f"must be 1 to {PAGE_MAX:,}")

    @property
    def from_us(self) -> int | None:
        """The first moment that is asked for."""
        return None if self.stored_from is None else micros(self.stored_from)

    @property
    def before_us(self) -> int | None:
        """The moment before which it is asked for."""
        return None if self.stored_before is None else micros(self.stored_before)


async def look_through(conn: Connection, searched: Searched, search: LogSearch) -> Answer:
    """Return a page of what is looked for in these queues: so many of their messages are looked at, at most."""
    spans = await find_spans(
        conn,
        searched.queue_ids,
        from_us=search.from_us,
        before_us=search.before_us,
        after=None if search.after is None else search.after.position,
        newest_first=search.newest_first,
    )
    merge = await merge_spans(conn, spans, search.wanted, search.limit, newest_first=search.newest_first)
    gone = await say_what_is_gone(conn, searched, search.stored_from, search.stored_before)
    position = merge.position
    if merge.is_end or position is None:
        return Answer(merge.found, gone, looked_at=merge.looked_at)
    more = MORE if not merge.missing else far_said(merge.looked_at, position, newest_first=search.newest_first)
    return Answer(merge.found, gone, more, PageToken(position), merge.looked_at)


async def merge_spans(
    conn: Connection, spans: Sequence[Span], wanted: WantedMessages, limit: int, *, newest_first: bool
) -> LogMerge:
    """Look through these spans of queues, until there is enough or enough was looked at."""
    merge = LogMerge(spans, wanted=limit, newest_first=newest_first)
    began = time.monotonic()
    while stretches := merge.next_spans():
        asked = time.monotonic()
        read = await read_stretches(conn, stretches, wanted, merge.missing, newest_first=newest_first)
        # Four times as much must be within the limit of a statement, too.
        merge.take_in(read, may_grow=time.monotonic() - asked < _QUICK_SECONDS)
        if time.monotonic() - began > SECONDS_MAX:
            # Where the store is slow, what was seen so far is an answer, and the rest is another one.
            merge.stop()
    return merge


def far_said(looked_at: int, position: Position, *, newest_first: bool) -> str:
    """Say how far looking got that ended because enough was looked at."""
    through = f"{datetime_of(position.stored_at_us):%Y-%m-%d %H:%M:%S}"
    which = "since" if newest_first else "until"
    return f"only {looked_at:,} messages were looked at: those that were stored {which} {through}"


def micros(time: datetime) -> int:
    """Return a time in microseconds since 1970, exactly."""
    return (time - datetime_of(0)) // _MICROSECOND
