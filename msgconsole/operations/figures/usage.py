"""How many messages were published and delivered, by name, and whether that is all of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import zip_longest
from typing import Final

from msgconsole.operations.figures.names import FigureNames, read_names
from msgconsole.operations.figures.wanted import WantedFigures, check_times
from msgconsole.operations.stores import Stores
from msgdb.figures.completeness import incomplete_minutes, open_from
from msgdb.figures.latency import within_seconds
from msgdb.figures.usage import (
    NO_GROUP,
    ROWS_MAX,
    Usage,
    UsageOf,
    list_lacking,
    list_usage,
    list_usage_brokers,
)

_ALL_TIME_SECONDS: Final = 1_000_000_000_000
"""A step that is longer than any time: all of it is added up."""


@dataclass(frozen=True, slots=True)
class UsageOfType:
    """What was counted of a type of messages, for a group or of publishing."""

    begins_at: datetime | None
    """When the stretch of time began; None: it is all that was asked for."""
    namespace: str
    topic: str
    event_code: str
    group: str | None
    """The group that it was counted for; None: it is of publishing."""
    stress: bool
    published: int
    redriven: int
    replayed: int
    delivered: int
    retried: int
    dead_lettered: int
    bytes: int
    p50_seconds: float | None
    """Within how many seconds half of it was acknowledged after it was stored, at most."""
    p99_seconds: float | None
    latency: Sequence[int]
    """How many took how long: by the classes of `msgdb.figures.latency`."""


@dataclass(frozen=True, slots=True)
class UsageOfTopic:
    """What was counted of a topic: of all its event codes, and for all groups together."""

    begins_at: datetime | None
    namespace: str
    topic: str
    stress: bool
    published: int
    redriven: int
    replayed: int
    delivered: int
    """Once for each group that acknowledged it."""
    retried: int
    dead_lettered: int
    bytes: int
    """Of what was published."""
    p50_seconds: float | None
    p99_seconds: float | None


@dataclass(frozen=True, slots=True)
class UsageReport:
    """What was counted in some time."""

    since: datetime
    until: datetime
    rows: Sequence[UsageOfType]
    is_complete: bool
    """Whether it is all: nothing is lost that brokers counted until `open_from`, and no row is left out."""
    incomplete: Sequence[datetime]
    """The minutes that lack something, or may."""
    open_from: datetime | None
    """From when on not all brokers have written yet what they counted; None: it is over for all of them."""
    is_cut: bool
    """Whether there are more rows than are returned."""
    knows_all_deleted: bool
    """Whether topics and groups that were deleted since are among them, as far as they are asked for."""


async def read_usage(
    stores: Stores, wanted: WantedFigures, since: datetime, until: datetime, step: timedelta | None = None
) -> UsageReport:
    """Return what was counted from *since* to *until*, in whole minutes: for each *step*, or added up.

    Raises NotFoundError where *wanted* names what is not registered, nor was then, InvalidSettingError for times
    nothing is kept of.
    """
    check_times(since, until)
    since = since.replace(second=0, microsecond=0)
    names = await read_names(stores, wanted, since)
    asked = UsageOf(
        since,
        until,
        _ALL_TIME_SECONDS if step is None else round(step.total_seconds()),
        names.topic_ids(wanted),
        names.group_ids(wanted),
    )
    async with stores.messages.looking() as connection:
        usages = await list_usage(connection, asked)
        lacking = await list_lacking(connection, since, until)
        brokers = await list_usage_brokers(connection)
    now = datetime.now(UTC)
    incomplete = incomplete_minutes(brokers, lacking, since, until, now)
    open_at = open_from(brokers, now)
    is_cut = len(usages) >= ROWS_MAX
    return UsageReport(
        since=since,
        until=until,
        rows=[_row(usage, names, is_step=step is not None) for usage in usages],
        is_complete=not incomplete and not is_cut and names.knows_all_deleted,
        incomplete=incomplete,
        open_from=open_at if open_at < until else None,
        is_cut=is_cut,
        knows_all_deleted=names.knows_all_deleted,
    )


def sum_by_topic(rows: Iterable[UsageOfType]) -> list[UsageOfTopic]:
    """Return the rows added up by topic, in their order; stress traffic apart, as in them. Pure."""
    by_topic: dict[tuple[datetime | None, str, str, bool], list[UsageOfType]] = {}
    for row in rows:
        by_topic.setdefault((row.begins_at, row.namespace, row.topic, row.stress), []).append(row)
    return [_topic_row(key, of_topic) for key, of_topic in by_topic.items()]


def _topic_row(key: tuple[datetime | None, str, str, bool], rows: Sequence[UsageOfType]) -> UsageOfTopic:
    latency = [sum(counts) for counts in zip_longest(*(row.latency for row in rows), fillvalue=0)]
    return UsageOfTopic(
        *key,
        published=sum(row.published for row in rows),
        redriven=sum(row.redriven for row in rows),
        replayed=sum(row.replayed for row in rows),
        delivered=sum(row.delivered for row in rows),
        retried=sum(row.retried for row in rows),
        dead_lettered=sum(row.dead_lettered for row in rows),
        bytes=sum(row.bytes for row in rows if row.group is None),
        p50_seconds=within_seconds(latency, 0.5),
        p99_seconds=within_seconds(latency, 0.99),
    )


def _row(usage: Usage, names: FigureNames, *, is_step: bool) -> UsageOfType:
    return UsageOfType(
        begins_at=usage.begins_at if is_step else None,
        namespace=names.namespace_of(usage.topic_id),
        topic=names.topic(usage.topic_id),
        event_code=usage.event_code,
        group=None if usage.group_id == NO_GROUP else names.group(usage.group_id),
        stress=usage.stress,
        published=usage.published,
        redriven=usage.redriven,
        replayed=usage.replayed,
        delivered=usage.delivered,
        retried=usage.retried,
        dead_lettered=usage.dead_lettered,
        bytes=usage.size_bytes,
        p50_seconds=within_seconds(usage.latency, 0.5),
        p99_seconds=within_seconds(usage.latency, 0.99),
        latency=usage.latency,
    )
