"""How far groups are behind, by name: confdb says who subscribes to what, msgdb how far they are; they meet here."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final
from uuid import UUID

from confdb.brokers import BrokerRegistry, LiveBroker
from confdb.routes import GroupRoute, Snapshot
from confdb.snapshot import load_snapshot
from msgbroker.engine.matching_share import asked_of
from msgconsole.operations.figures.pace import PACE_MINUTES, Pace, drain_seconds, pace_between, paces
from msgconsole.operations.figures.wanted import EVERYBODY, WantedFigures
from msgconsole.operations.stores import Stores
from msgdb.archive.listing import find_oldest_waiting
from msgdb.archive.records import WaitingDay
from msgdb.dead_letters.reading import DeadLetterCount, count_dead_letters
from msgdb.figures.backlog import ROWS_MAX, list_late, list_looked_at
from msgdb.figures.pace import list_changes
from msgdb.lanes.lag import LaneLag, list_lag
from msgdb.log.queues import QueueRow, list_queues
from msgdb.log.reads import first_stored_at, next_offsets
from msgdb.postgres.binary_rows import datetime_of
from msgdb.postgres.connections import Connection
from msgdb.reports.alarms import AlarmKind, AlarmRow, list_alarms
from msgdb.reports.expression_failures import ExpressionFailureRow, list_expression_failures

_MICROSECONDS: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class QueueLag:
    """How far one group is with one queue."""

    namespace: str
    group: str
    topic: str
    queue_id: int
    acked_offset: int
    next_offset: int
    behind: int
    redeliveries: int
    alarms: tuple[str, ...]
    """The kinds of the alarms that concern it (`msgdb.reports.alarms.AlarmKind`)."""
    oldest_seconds: float | None
    """How old the oldest message is that is not settled. None: all are."""
    broker: str | None
    """The address of the broker that owns the lane."""
    dead_letters: int
    """How many dead letters the whole group has that nobody has redriven."""
    instances: int
    """How many instances of the group are connected, as brokers have registered: no more than a heartbeat ago."""
    paused: bool
    """Whether the group is paused, or each of its subscriptions to the topic."""
    failures: int = 0
    """How often expressions of the group failed on messages of the topic; with the next two of the whole topic."""
    last_failed_header: str | None = None
    """The header that was missing the last time, if that was why."""
    last_failed_at: datetime | None = None
    since: datetime | None = None
    """Since when it is behind: when the message was stored with which it began to be late, or else the oldest that is
    not settled. None: it is not behind, or nobody knows since when."""
    per_minute: float | None = None
    """By how many messages a minute the whole topic came further behind lately; negative: it catches up."""
    matching: int | None = None
    """How many of `behind` the group will get, about. None: nobody knows."""
    matching_per_minute: float | None = None
    """By how many messages a minute that match the whole topic came further behind lately, about."""


@dataclass(frozen=True, slots=True)
class TopicLag:
    """How far one group is with one topic."""

    namespace: str
    group: str
    topic: str
    behind: int
    redeliveries: int
    alarms: tuple[str, ...]
    """The kinds of the alarms that concern one of its queues, at least."""
    oldest_seconds: float | None
    dead_letters: int
    instances: int
    paused: bool
    failures: int = 0
    last_failed_header: str | None = None
    last_failed_at: datetime | None = None
    since: datetime | None = None
    per_minute: float | None = None
    drain_seconds: float | None = None
    """In how many seconds nothing is behind any more, should it go on like that. None: not at this pace, or not before
    it is resumed or an instance connects."""
    matching: int | None = None
    """How many of `behind` the group will get, about: on the queues of which that is known. None: it is of none."""
    matching_unknown: int = 0
    """How many of `behind` lie on the other queues."""
    matching_per_minute: float | None = None


@dataclass(frozen=True, slots=True)
class LagReport:
    """How far groups are behind, and whether the archive is."""

    queues: Sequence[QueueLag]
    waiting: WaitingDay | None
    """The oldest day that must be archived before it is dropped, and is not yet."""


@dataclass(frozen=True, slots=True)
class _Found:
    """What was read of both databases to tell the lag of groups from."""

    lanes: Mapping[tuple[int, int], LaneLag]
    """Where each lane stands, by group_id and queue_id."""
    queues: Sequence[QueueRow]
    next_offsets: Mapping[int, int]
    dead_letters: Mapping[int, DeadLetterCount]
    alarms: Sequence[AlarmRow]
    failures: Mapping[int, ExpressionFailureRow]
    """How often expressions failed, by subscription_id."""
    late: Mapping[tuple[int, int], datetime]
    """Since when lanes are late, by group_id and queue_id."""
    paces: Mapping[tuple[int, int], Pace]
    """How fast groups came further behind, by group_id and topic_id."""
    brokers: Mapping[UUID, str]
    """Addresses of the live brokers, by the ids that lanes are owned by: of confdb, which has the registry."""
    instances: Mapping[int, int]
    """How many instances are connected to live brokers, by group_id: of confdb, too."""
    first_stored: Mapping[tuple[int, int], int]
    """When the first message was stored that groups want of which no instance was ever connected, by queue_id and the
    offset where they start."""


async def read_lag(stores: Stores, wanted: WantedFigures = EVERYBODY) -> LagReport:
    """Return the lag of every group on every queue of the topics it subscribes to, as far as it is *wanted*.

    Raises NotFoundError where *wanted* names what is not registered.
    """
    snapshot = await load_snapshot(stores.config)
    wanted.check_registered(snapshot)
    brokers = await BrokerRegistry(stores.config).list_live()
    async with stores.messages.looking() as connection:
        lanes = {(lane.group_id, lane.queue_id): lane for lane in await list_lag(connection)}
        queues = await list_queues(connection)
        next_by_queue = await next_offsets(connection, [queue.queue_id for queue in queues])
        never_served = {
            (queue.queue_id, start_offset)
            for group, _, queue, start_offset in _subscribed(snapshot, queues)
            if (group.group_id, queue.queue_id) not in lanes and start_offset < next_by_queue[queue.queue_id]
        }
        found = _Found(
            lanes,
            queues,
            next_by_queue,
            await count_dead_letters(connection),
            await list_alarms(connection),
            {row.subscription_id: row for row in await list_expression_failures(connection)},
            {(lane.group_id, lane.queue_id): lane.late_since for lane in await list_late(connection)},
            await _read_paces(connection),
            {live.broker_id: live.address for live in brokers},
            _instances_of(brokers),
            await first_stored_at(connection, never_served),
        )
        waiting = await find_oldest_waiting(connection)
    lags = (
        _lag_of(group, topic, queue, start_offset, found)
        for group, topic, queue, start_offset in _subscribed(snapshot, queues)
    )
    return LagReport(
        sorted((lag for lag in lags if wanted.includes(lag.namespace, lag.group, lag.topic)), key=_how_bad), waiting
    )


def _instances_of(brokers: Iterable[LiveBroker]) -> Mapping[int, int]:
    instances: Counter[int] = Counter()
    for broker in brokers:
        instances.update(broker.groups)
    return instances


async def _read_paces(connection: Connection) -> Mapping[tuple[int, int], Pace]:
    now = datetime.now(UTC)
    ends = pace_between(await list_looked_at(connection, now - timedelta(minutes=PACE_MINUTES + 1), now), now)
    if ends is None:
        return {}
    changes = await list_changes(connection, *ends)
    # Of more groups nobody could tell one that is not named from one that was not behind.
    return {} if len(changes) == ROWS_MAX else paces(changes, *ends)


def sum_by_topic(queues: Iterable[QueueLag]) -> list[TopicLag]:
    """Return the lag per group and topic, the worst first: the one that is furthest behind."""
    by_topic: dict[tuple[str, str, str], list[QueueLag]] = {}
    for lag in queues:
        by_topic.setdefault((lag.namespace, lag.group, lag.topic), []).append(lag)
    topics = [_topic_lag(names, lags) for names, lags in by_topic.items()]
    return sorted(topics, key=_how_bad)


def _topic_lag(names: tuple[str, str, str], lags: Sequence[QueueLag]) -> TopicLag:
    behind, unknown = sum(lag.behind for lag in lags), sum(lag.behind for lag in lags if lag.matching is None)
    matching = _sum_of([lag.matching for lag in lags if lag.behind])
    per_minute, matching_per_minute = lags[0].per_minute, lags[0].matching_per_minute
    # The pace is of the last ten minutes: since then the last instance may have gone.
    stands = behind > 0 and (lags[0].paused or not lags[0].instances)
    seconds = drain_seconds(behind, per_minute, None if unknown else matching, matching_per_minute)
    return TopicLag(
        *names,
        behind=behind,
        redeliveries=sum(lag.redeliveries for lag in lags),
        alarms=tuple(sorted({kind for lag in lags for kind in lag.alarms})),
        oldest_seconds=max((lag.oldest_seconds for lag in lags if lag.oldest_seconds is not None), default=None),
        dead_letters=lags[0].dead_letters,
        instances=lags[0].instances,
        paused=lags[0].paused,
        failures=lags[0].failures,
        last_failed_header=lags[0].last_failed_header,
        last_failed_at=lags[0].last_failed_at,
        since=min((lag.since for lag in lags if lag.since is not None), default=None),
        per_minute=per_minute,
        drain_seconds=None if stands else seconds,
        matching=matching,
        matching_unknown=unknown,
        matching_per_minute=matching_per_minute,
    )


def _sum_of(estimates: Sequence[int | None]) -> int | None:
    known = [each for each in estimates if each is not None]
    return sum(known) if known or not estimates else None


def _how_bad(lag: TopicLag | QueueLag) -> tuple[int, int, float]:
    return -lag.behind, -lag.redeliveries, -(lag.oldest_seconds or 0.0)


def _subscribed(snapshot: Snapshot, queues: Iterable[QueueRow]) -> Iterable[tuple[GroupRoute, str, QueueRow, int]]:
    """Give each group with each queue of its topics, and where it starts there."""
    by_topic: dict[int, list[QueueRow]] = {}
    for queue in queues:
        by_topic.setdefault(queue.topic_id, []).append(queue)
    topic_names = {topic.topic_id: topic.name for topic in snapshot.topics.values()}
    for _, group in sorted(snapshot.groups.items()):
        for topic_id in sorted({subscription.topic_id for subscription in group.subscriptions}):
            starts = [
                subscription.start_offsets for subscription in group.subscriptions if subscription.topic_id == topic_id
            ]
            for queue in by_topic.get(topic_id, ()):
                start_offset = min(start.get(queue.queue_id, 0) for start in starts)
                yield group, topic_names.get(topic_id, str(topic_id)), queue, max(start_offset, queue.start_offset)


def _lag_of(group: GroupRoute, topic: str, queue: QueueRow, start_offset: int, found: _Found) -> QueueLag:
    lane = found.lanes.get((group.group_id, queue.queue_id))
    next_offset = found.next_offsets[queue.queue_id]
    # Without a cursor no instance was ever connected: all since the subscription waits.
    acked_offset = lane.acked_offset if lane else start_offset
    oldest = lane.oldest_stored_at_us if lane else found.first_stored.get((queue.queue_id, start_offset))
    failed = [
        found.failures[subscription.subscription_id]
        for subscription in group.subscriptions
        if subscription.topic_id == queue.topic_id and subscription.subscription_id in found.failures
    ]
    buried = found.dead_letters.get(group.group_id)
    last = max(failed, key=lambda row: row.last_failed_at, default=None)
    behind = lane.behind if lane else max(0, next_offset - acked_offset)
    pace = found.paces.get((group.group_id, queue.topic_id))
    return QueueLag(
        namespace=group.namespace,
        group=group.name,
        topic=topic,
        queue_id=queue.queue_id,
        acked_offset=acked_offset,
        next_offset=next_offset,
        behind=behind,
        redeliveries=lane.redeliveries if lane else 0,
        alarms=_alarms_of(group.group_id, queue, lane, found.alarms),
        oldest_seconds=None if oldest is None else round(max(0.0, time.time() - oldest / _MICROSECONDS), 3),
        broker=found.brokers.get(lane.owner) if lane and lane.owner else None,
        dead_letters=buried.open if buried is not None else 0,
        instances=found.instances.get(group.group_id, 0),
        paused=group.paused or all(each.paused for each in group.subscriptions if each.topic_id == queue.topic_id),
        failures=sum(row.failures for row in failed),
        last_failed_header=last.last_header if last else None,
        last_failed_at=last.last_failed_at if last else None,
        since=_since(found.late.get((group.group_id, queue.queue_id)), lane, oldest) if behind else None,
        per_minute=pace and pace.per_minute,
        matching=_matching(group, queue, lane, behind),
        matching_per_minute=pace and pace.matching_per_minute,
    )


def _matching(group: GroupRoute, queue: QueueRow, lane: LaneLag | None, behind: int) -> int | None:
    if lane is None or not behind:
        return None if behind else 0
    return lane.matching_of(asked_of(group.subscriptions, queue.topic_id))


def _since(late_since: datetime | None, lane: LaneLag | None, oldest_us: int | None) -> datetime | None:
    # Where some of it waits for another attempt, the oldest may be one of these, and not what it is behind by.
    if late_since is not None or oldest_us is None or (lane is not None and lane.redeliveries):
        return late_since
    return datetime_of(oldest_us)


def _alarms_of(group_id: int, queue: QueueRow, lane: LaneLag | None, alarms: Iterable[AlarmRow]) -> tuple[str, ...]:
    """Return what is wrong with a group on a queue: what brokers say, and what the tables show without them."""
    kinds = {alarm.kind for alarm in alarms if _concerns(alarm, group_id, queue)}
    if lane is not None and lane.alarm:
        kinds.add(AlarmKind.REDELIVERIES_FULL.value)
    return tuple(sorted(kinds))


def _concerns(alarm: AlarmRow, group_id: int, queue: QueueRow) -> bool:
    named = ((alarm.group_id, group_id), (alarm.topic_id, queue.topic_id), (alarm.queue_id, queue.queue_id))
    # What names nothing of all that is about the broker or the store as a whole.
    return any(said is not None for said, _ in named) and all(said in {None, is_} for said, is_ in named)
