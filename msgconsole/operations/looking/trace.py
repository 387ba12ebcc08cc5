"""The story of a message: who published it, stored it, got it, what they said of it; and what of that may be missing.

What is stored of a message (`msgdb/trace`) and what its topic's rate says meet here. A trace is a sample: it says what
happened, and never that nothing else did.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Final
from uuid import UUID

from confdb.routes import Snapshot
from msgbroker.contract.errors import ThingNotFoundError
from msgbroker.engine.tracing import ALWAYS_TRACED, draw_of, threshold_of
from msgconsole.operations.looking.where import load_checked
from msgconsole.operations.stores import Stores
from msgdb.log.copies import find_copies
from msgdb.log.found import FoundMessage
from msgdb.looking.deaths import Death, list_deaths
from msgdb.postgres.binary_rows import datetime_of
from msgdb.postgres.connections import Connection
from msgdb.trace.reading import (
    LeftOut,
    first_traced_day,
    list_events,
    list_ids_of_key,
    list_left_out,
)
from msgdb.trace.records import TraceEvent, TraceKind

COPIES_MAX: Final = 20
EVENTS_MAX: Final = 1_000
NOT_WRITTEN_YET: Final = "What happened less than 2 s ago may not be written yet."
_SAME_TIME_US: Final = 50_000
"""What a broker says of one moment at two times differs by less: it has asked the database for its clock in between."""
_RANKS: Final = {TraceKind.STORED.value: 0, TraceKind.HANDED_OUT.value: 1, TraceKind.DEAD_LETTERED.value: 3}
_RANK_OF_ENDINGS: Final = 2


@dataclass(frozen=True, slots=True)
class TraceLine:
    """Something that happened to a message."""

    at: datetime
    what: str
    """PUBLISHED, or one of `TraceKind`."""
    group: str | None = None
    attempt: int | None = None
    instance: str | None = None
    broker: str | None = None
    """The broker that noted it; None: nobody did, the row of the message says it."""
    seconds: float | None = None
    """For how long the instance had it."""
    detail: str | None = None


@dataclass(frozen=True, slots=True)
class TracedCopy:
    """A message at one of its places in the log, and what happened to it there."""

    message_id: UUID
    namespace: str
    topic: str
    event_code: str
    key: str | None
    queue_id: int
    queue_offset: int
    stored_at: datetime
    stress: bool
    only_for: str | None
    """The group that it was redriven or replayed to; None: it is what was published."""
    redrives: int
    trace_rate: float | None
    """The rate of its topic as it is now; None: there is no such topic any more."""
    is_traced: bool
    """Whether all that happens to it is traced, at that rate."""
    lines: tuple[TraceLine, ...]


@dataclass(frozen=True, slots=True)
class TraceStory:
    """What is known of what happened to a message."""

    message_id: UUID
    copies: tuple[TracedCopy, ...]
    missing: tuple[str, ...]
    """What may be missing, in sentences."""


async def trace_message(stores: Stores, namespace: str, message_id: UUID) -> TraceStory:
    """Return the story of a message.

    Raises NamespaceNotFoundError, ThingNotFoundError where the namespace's log does not have it, LookTooLongError.
    """
    snapshot = await load_checked(stores, namespace)
    async with stores.messages.looking() as connection:
        return await _story(connection, snapshot, namespace, message_id)


async def trace_key(stores: Stores, namespace: str, topic: str, key: str, limit: int) -> list[TraceStory]:
    """Return the stories of the newest messages of a key, the oldest of them first.

    Raises NamespaceNotFoundError, LookTooLongError.
    """
    snapshot = await load_checked(stores, namespace)
    async with stores.messages.looking() as connection:
        message_ids = await list_ids_of_key(connection, namespace, topic, key, limit)
        return [await _story(connection, snapshot, namespace, message_id) for message_id in reversed(message_ids)]


async def _story(connection: Connection, snapshot: Snapshot, namespace: str, message_id: UUID) -> TraceStory:
    stored, is_cut = await find_copies(connection, message_id, namespace)
    copies = sorted(stored, key=lambda each: each.position)[-COPIES_MAX:]
    if not copies:
        raise ThingNotFoundError("message in the log", str(message_id), namespace=namespace)
    groups = {group.group_id: group.name for group in snapshot.groups.values()}
    traced: list[TracedCopy] = []
    missing: list[str] = []
    for copy in copies:
        events = await list_events(connection, copy.queue_id, copy.queue_offset, copy.stored_at_us, EVENTS_MAX)
        if len(events) == EVENTS_MAX:
            missing.append(f"Only the first {EVENTS_MAX:,} events at offset {copy.queue_offset} are told.")
        events += untraced_deaths(copy, events, await list_deaths(connection, [copy.position]))
        traced.append(_traced(copy, events, snapshot, groups))
    if is_cut or len(stored) > len(copies):
        missing.append(f"Only its newest {len(copies)} places in the log are told.")
    stored_at = min(each.stored_at for each in traced)
    left_out = await list_left_out(connection, stored_at, datetime.max.replace(tzinfo=UTC))
    missing += what_is_missing(traced, await first_traced_day(connection), left_out)
    return TraceStory(message_id, tuple(traced), tuple(missing))


def _traced(
    copy: FoundMessage, events: Sequence[TraceEvent], snapshot: Snapshot, groups: Mapping[int, str]
) -> TracedCopy:
    topic = snapshot.topics.get((copy.namespace, copy.topic))
    rate = None if topic is None else topic.trace_rate
    draw = draw_of(copy.message_id) if copy.target_group is None else ALWAYS_TRACED
    return TracedCopy(
        message_id=UUID(bytes=copy.message_id),
        namespace=copy.namespace,
        topic=copy.topic,
        event_code=copy.event_code,
        key=copy.key,
        queue_id=copy.queue_id,
        queue_offset=copy.queue_offset,
        stored_at=datetime_of(copy.stored_at_us),
        stress=copy.stress,
        only_for=None if copy.target_group is None else _name_of(copy.target_group, groups),
        redrives=copy.redrives,
        trace_rate=rate,
        is_traced=rate is not None and draw < threshold_of(rate),
        lines=lines_of(copy, events, groups),
    )


def untraced_deaths(copy: FoundMessage, events: Sequence[TraceEvent], deaths: Iterable[Death]) -> list[TraceEvent]:
    """Return the dead letters of a message at one of its places that no broker has noted: skipped by hand, as a rule.

    Pure. What broker it was is empty, as it was none.
    """
    noted = {event.group_id for event in events if event.kind == TraceKind.DEAD_LETTERED}
    return [
        TraceEvent(
            at_us=death.died_at_us,
            kind=TraceKind.DEAD_LETTERED.value,
            broker="",
            queue_id=copy.queue_id,
            first_offset=copy.queue_offset,
            last_offset=copy.queue_offset,
            group_id=death.group_id,
            attempt=death.attempts,
            detail=death.reason,
        )
        for death in deaths
        if death.group_id not in noted
    ]


def lines_of(copy: FoundMessage, events: Iterable[TraceEvent], groups: Mapping[int, str]) -> tuple[TraceLine, ...]:
    """Return what happened to a message at one of its places, in order: from its row, and from what was traced."""
    told = list(events)
    handed = [event for event in told if event.kind == TraceKind.HANDED_OUT]
    for event in told[:]:
        if event.handed_at_us is not None and event.kind != TraceKind.HANDED_OUT:
            hand_out = event._replace(
                at_us=event.handed_at_us, kind=TraceKind.HANDED_OUT.value, handed_at_us=None, detail=None
            )
            if not any(_is_same_hand_out(hand_out, known) for known in handed):
                handed.append(hand_out)
                told.append(hand_out)
    told.sort(key=lambda event: (event.at_us, _RANKS.get(event.kind, _RANK_OF_ENDINGS)))
    # Nothing happens to it before, whatever a clock says.
    stored = [event for event in told if event.kind == TraceKind.STORED]
    others = [event for event in told if event.kind != TraceKind.STORED]
    return (
        *_first_lines(copy, stored[0].broker if stored else None),
        *(_line_of(event, groups) for event in others),
    )


def _is_same_hand_out(one: TraceEvent, other: TraceEvent) -> bool:
    same = (one.group_id, one.instance, one.attempt, one.broker) == (
        other.group_id,
        other.instance,
        other.attempt,
        other.broker,
    )
    return same and abs(one.at_us - other.at_us) <= _SAME_TIME_US


def _first_lines(copy: FoundMessage, broker: str | None) -> Iterable[TraceLine]:
    if copy.target_group is None:
        # By the publisher's clock; so it stands first, and not by its time.
        publisher = " ".join(part for part in (copy.publisher_group, copy.born_host) if part)
        yield TraceLine(datetime_of(copy.born_at_us), "PUBLISHED", detail=publisher or None)
    yield TraceLine(datetime_of(copy.stored_at_us), TraceKind.STORED.value, broker=broker)


def _line_of(event: TraceEvent, groups: Mapping[int, str]) -> TraceLine:
    is_ending = event.handed_at_us is not None and event.kind != TraceKind.HANDED_OUT
    return TraceLine(
        at=datetime_of(event.at_us),
        what=event.kind,
        group=None if event.group_id is None else _name_of(event.group_id, groups),
        attempt=event.attempt,
        instance=event.instance,
        broker=event.broker or None,
        seconds=(event.at_us - event.handed_at_us) / 1e6 if is_ending and event.handed_at_us is not None else None,
        detail=event.detail,
    )


def _name_of(group_id: int, groups: Mapping[int, str]) -> str:
    return groups.get(group_id, f"group {group_id} (deleted)")


def what_is_missing(copies: Sequence[TracedCopy], first_day: date | None, left_out: Iterable[LeftOut]) -> list[str]:
    """Return what may be missing of the story of a message, in sentences."""
    sentences = [NOT_WRITTEN_YET]
    if first_day is not None and any(copy.stored_at.date() < first_day for copy in copies):
        sentences.append(f"What happened before {first_day} is not kept.")
    sentences += dict.fromkeys(_of_rate(copy) for copy in copies if not copy.is_traced)
    if any(copy.is_traced for copy in copies):
        sentences.append("Where its topic had a lower trace rate than now, only what failed is here.")
    for each in left_out:
        first, last = (f"{datetime_of(at_us):%Y-%m-%d %H:%M:%S}" for at_us in (each.first_us, each.last_us))
        sentences.append(
            f"{each.broker} left out up to {each.events:,} events, of any messages, from {first} to {last}."
        )
    return sentences


def _of_rate(copy: TracedCopy) -> str:
    if copy.trace_rate is None:
        return f"Topic {copy.topic} is not registered any more: what failed is here, and what else nobody can tell."
    return (
        f"At trace rate {copy.trace_rate:g} of {copy.topic} this message is not among those of which all is traced:"
        " only what failed is here, and what came after that."
    )
