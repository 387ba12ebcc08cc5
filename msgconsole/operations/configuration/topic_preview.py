"""What a change of a topic would mean for what is published to it: its dry run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Final, TypedDict, Unpack
from uuid import UUID

from confdb.routes import Snapshot
from confdb.services.changes import Rehearsed
from msgbroker.contract.names import ANY_EVENT_CODE
from msgbroker.engine.stress import StressGate, is_stress
from msgconsole.operations.brokers.asking import Unanswered
from msgconsole.operations.brokers.connected import COUNT_MAX, list_publishers
from msgconsole.operations.configuration.foretelling import EXAMPLES_MAX, span_of
from msgconsole.operations.configuration.newest import read_newest
from msgconsole.operations.configuration.rehearsing import FieldChange, changed_fields, rehearse
from msgconsole.operations.figures.usage import read_usage
from msgconsole.operations.figures.wanted import WantedFigures
from msgconsole.operations.stores import Stores
from msgconsole.operations.subscribed import get_topic
from msgdb.log.found import FoundMessage

PUBLISHED_MINUTES: Final = 15
"""Of so many minutes it is told how much is published."""


class TopicSettings(TypedDict, total=False):
    """What is to be changed; what is None, or not given, stays."""

    queue_count: int | None
    body_bytes_max: int | None
    is_open: bool | None
    is_closed: bool | None
    stress_refused: bool | None
    trace_rate: float | None
    description: str | None


@dataclass(frozen=True, slots=True)
class Refused:
    """How much of the newest messages would be refused, were it published now."""

    looked_at: int
    """How many messages, those of all event codes; what was redriven or replayed is left out."""
    oldest_at: datetime | None
    newest_at: datetime | None
    is_all: bool
    """Whether the log has no others."""
    messages: int
    """How many would be refused, that are not now, ..."""
    examples: tuple[UUID, ...]
    """... and some of them."""


@dataclass(frozen=True, slots=True)
class Publishing:
    """Who publishes, and how much."""

    publishers: int
    """How many have a stream in the namespace: to which topics they publish is not known of a stream; ..."""
    has_more_publishers: bool
    """... and whether there are more than are looked at."""
    published: int
    """How many messages were published to the topic in the last minutes, ..."""
    minutes: int
    """... and in how many."""
    is_complete: bool
    """Whether these figures lack nothing."""
    unanswered: Sequence[Unanswered]
    """Brokers that have not answered: their publishers are missing."""


@dataclass(frozen=True, slots=True)
class TopicPreview:
    """What would be different."""

    changes: tuple[FieldChange, ...]
    """Nothing: all is so already."""
    refused: Refused | None = None
    """Where less would be taken than now."""
    publishing: Publishing | None = None
    """Where the topic would be closed."""
    stays_closed: bool = False
    """Whether it would be open to event codes that are not registered, and takes no message all the same."""
    stress_groups: tuple[str, ...] | None = None
    """Where stress traffic would be refused: the groups that are given it now. What they have not settled they are not
    given any more."""
    queues_sealed: int | None = None
    """Where there would be more queues: how many are read to their end, while all that comes goes to others."""


async def preview_topic_update(
    stores: Stores, namespace: str, topic: str, *, reason: str = "", **settings: Unpack[TopicSettings]
) -> TopicPreview:
    """Return what changing a topic would mean. Changes nothing.

    Raises as `Topics.update` does, and LookTooLongError.
    """
    _, rehearsed = await rehearse(
        stores, lambda service: service.topics.update(namespace, topic, **settings), reason=reason
    )
    before, after = get_topic(rehearsed.before, namespace, topic), get_topic(rehearsed.after, namespace, topic)
    stays_closed = after.is_open > before.is_open and after.is_closed
    preview = TopicPreview(changed_fields(rehearsed), stays_closed=stays_closed)
    if after.body_bytes_max < before.body_bytes_max or after.stress_refused > before.stress_refused:
        newest = await read_newest(stores, after.topic_id, ANY_EVENT_CODE)
        refused = tell_refused(newest.messages, rehearsed, (namespace, topic), is_all=newest.is_all)
        preview = replace(preview, refused=refused)
    if after.stress_refused > before.stress_refused:
        preview = replace(preview, stress_groups=_given_stress(rehearsed.before, before.topic_id))
    if after.is_closed > before.is_closed:
        preview = replace(preview, publishing=await _find_publishing(stores, namespace, topic))
    if after.queue_count > before.queue_count:
        preview = replace(preview, queues_sealed=before.queue_count)
    return preview


def tell_refused(
    newest: Sequence[FoundMessage], rehearsed: Rehearsed, name: tuple[str, str], *, is_all: bool
) -> Refused:
    """Return how much of the *newest* messages of the topic of that *name* would be refused from now on. Pure."""
    messages = [message for message in newest if message.target_group is None]
    refused = [
        message
        for message in messages
        if _is_refused(message, rehearsed.after, name) and not _is_refused(message, rehearsed.before, name)
    ]
    examples = tuple(message.id for message in refused[:EXAMPLES_MAX])
    return Refused(len(messages), *span_of(messages), is_all, len(refused), examples)


def _is_refused(message: FoundMessage, snapshot: Snapshot, name: tuple[str, str]) -> bool:
    """Return whether a topic takes no such message: it is too large, or stress traffic that is refused."""
    route = snapshot.topics[name]
    if message.body_bytes > route.body_bytes_max:
        return True
    return route.stress_refused and is_stress(message.headers or {}, snapshot.stress_rules.get(route.namespace, ()))


def _given_stress(snapshot: Snapshot, topic_id: int) -> tuple[str, ...]:
    """Return the groups that are given stress messages of some type of a topic."""
    gate = StressGate(snapshot)
    allowed = {
        group_id
        for group_id, of_topic, event_code in snapshot.stress_whitelist
        if of_topic == topic_id and gate.allows(group_id, topic_id, event_code)
    }
    return tuple(sorted(group.name for group in snapshot.groups.values() if group.group_id in allowed))


async def _find_publishing(stores: Stores, namespace: str, topic: str) -> Publishing:
    report = await list_publishers(stores, namespace, "", COUNT_MAX)
    now = datetime.now(UTC)
    since = now - timedelta(minutes=PUBLISHED_MINUTES)
    usage = await read_usage(stores, WantedFigures(namespace, topic=topic), since, now)
    return Publishing(
        publishers=len(report.publishers),
        has_more_publishers=report.has_more,
        published=sum(row.published for row in usage.rows if row.group is None),
        minutes=PUBLISHED_MINUTES,
        is_complete=usage.is_complete,
        unanswered=report.unanswered,
    )
