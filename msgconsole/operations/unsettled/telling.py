"""An unsettled message as people read it: by where it is, and by what is stored of it. Pure."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from msgbroker.client.connect.inspection import MessageStand
from msgconsole.operations.status.answers import State
from msgconsole.operations.status.facts import NOT_ASKED
from msgconsole.operations.unsettled.answers import NextRow, UnsettledRow
from msgconsole.operations.unsettled.joining import Heard, Line
from msgdb.log.found import FoundMessage
from msgdb.looking.unsettled import Known, LaneStanding
from msgdb.postgres.binary_rows import datetime_of

_MICROSECONDS: Final = 1_000_000
_SHELVED: Final = "only paused subscriptions want it: it waits for them"
_UNSERVED: Final = "no broker serves its lane: no instance of the group is connected that could take it"
_READY: Final = "it is ready for the next instance that has room"


def row_of(
    line: Line, known: Known | None, topic: str, read_at_us: int, *, is_served: bool, handle_seconds_max: float
) -> UnsettledRow:
    """Return a message as it is told. *is_served*: a broker serves its lane, whether or not that has answered.

    *handle_seconds_max*: for how long an instance may have a message that it asks more time for; 0: it may not ask.
    """
    message = None if known is None else known.message
    # What is written down of an earlier attempt, before the last one's end is, would be taken for that of this one.
    written = known if known is not None and known.attempt == line.attempt else None
    due_at = _due_at(line, written)
    return UnsettledRow(
        age_seconds=_age(line.position.stored_at_us, read_at_us),
        stored_at=datetime_of(line.position.stored_at_us),
        topic=topic,
        event_code=None if message is None else message.event_code,
        message_id=None if message is None else message.id,
        key=None if message is None else message.key,
        queue_id=line.position.queue_id,
        queue_offset=line.position.queue_offset,
        state=line.state,
        attempt=line.attempt,
        detail=_detail(line, due_at, read_at_us, is_served=is_served, handle_seconds_max=handle_seconds_max),
        due_at=due_at,
        last_error=None if written is None else written.last_error or None,
        broker=line.broker,
        is_served=is_served,
        **_with_whom(line, read_at_us, handle_seconds_max),
    )


def next_row(message: FoundMessage, standing: LaneStanding, heard: Heard | None, read_at_us: int) -> NextRow:
    """Return what comes next of a queue, as it is told."""
    return NextRow(
        age_seconds=_age(message.stored_at_us, read_at_us),
        stored_at=datetime_of(message.stored_at_us),
        topic=message.topic,
        event_code=message.event_code,
        message_id=message.id,
        key=message.key,
        queue_id=message.queue_id,
        queue_offset=message.queue_offset,
        broker=None if heard is None else heard.address,
        is_served=standing.owner is not None,
        detail=_why_next(standing, heard),
    )


def _with_whom(line: Line, read_at_us: int, handle_seconds_max: float) -> dict[str, Any]:
    stand = line.stand
    if stand is None or line.state is not State.IN_FLIGHT:
        return {}
    return {
        "instance_id": stand.instance_id or None,
        "host": stand.host or None,
        "since": _time(stand.handed_at_us),
        "until": _time(stand.deadline_at_us),
        "latest": _latest(stand, handle_seconds_max),
        "held_seconds": None if stand.handed_at_us is None else _age(stand.handed_at_us, read_at_us),
        "has_begun": stand.has_begun,
    }


def _why_next(standing: LaneStanding, heard: Heard | None) -> str:
    if heard is not None:
        return f"broker {heard.address} has not read it yet: whether the group asks for it is decided then"
    if standing.owner is None:
        return _UNSERVED
    return f"it is the first that the last checkpoint has not settled; an instance may have it: {NOT_ASKED}"


def _latest(stand: MessageStand, handle_seconds_max: float) -> datetime | None:
    if stand.handed_at_us is None or stand.deadline_at_us is None:
        return None
    latest_us = stand.handed_at_us + round(handle_seconds_max * _MICROSECONDS)
    return _time(latest_us) if latest_us > stand.deadline_at_us else None


def _detail(line: Line, due_at: datetime | None, read_at_us: int, *, is_served: bool, handle_seconds_max: float) -> str:
    if line.state is State.IN_FLIGHT and line.stand is not None:
        return _in_flight(line.stand, line.broker, _latest(line.stand, handle_seconds_max))
    if line.state is State.RETRYING:
        return _retrying(line, due_at, read_at_us, is_served=is_served)
    return _SHELVED if line.state is State.SHELVED else _READY


def _retrying(line: Line, due_at: datetime | None, read_at_us: int, *, is_served: bool) -> str:
    due = f"attempt {line.attempt} is due"
    if line.stand is not None and due_at is not None and due_at <= datetime_of(read_at_us):
        return f"{due}: {_READY}"
    if due_at is not None:
        due += f" at {due_at:%H:%M:%S}"
    if line.stand is not None:
        return due
    return f"{due}, or an instance has it: {NOT_ASKED}" if is_served else f"{due}; {_UNSERVED}"


def _in_flight(stand: MessageStand, broker: str | None, latest: datetime | None) -> str:
    host = f" (on {stand.host})" if stand.host else ""
    who = f"instance {stand.instance_id}{host}" if stand.instance_id else "an instance that goes"
    since, until = _time(stand.handed_at_us), _time(stand.deadline_at_us)
    text = f"{who} at broker {broker} has it, as attempt {stand.attempt}"
    if since is not None:
        text += f", since {since:%H:%M:%S}"
    if until is None:
        return text
    text += f", until {until:%H:%M:%S}"
    return text if latest is None else f"{text}, or as long as it asks for more time, {latest:%H:%M:%S} at the latest"


def _due_at(line: Line, written: Known | None) -> datetime | None:
    if line.state is not State.RETRYING:
        return None
    if written is not None:
        # By the clock of the store, as its status has it.
        return _time(written.due_at_us)
    if line.stand is not None:
        return _time(line.stand.due_at_us)
    return None if line.row is None else datetime_of(line.row.due_at_us)


def _time(us: int | None) -> datetime | None:
    return None if us is None else datetime_of(us)


def _age(stored_at_us: int, read_at_us: int) -> float:
    return round(max(0, read_at_us - stored_at_us) / _MICROSECONDS, 3)
