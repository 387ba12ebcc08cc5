"""Who is connected: the instances of subscriber groups and the publishers, by what all live brokers say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID

from confdb.snapshot import load_snapshot
from msgbroker.client.connect.inspection import ConnectedInstance, ConnectedPublisher, WhichInstances
from msgconsole.operations.brokers.asking import ASK_SECONDS_MAX, Answer, Unanswered, ask_brokers
from msgconsole.operations.stores import Stores
from msgconsole.operations.subscribed import check_registered

COUNT_MAX: Final = 10_000
"""So many are told of at most."""


@dataclass(frozen=True, slots=True)
class InstanceRow:
    """A connected instance, as people see it. Times are by the clock of the broker's machine."""

    namespace: str
    group: str
    instance_id: str
    host: str
    client_version: str
    broker: str
    """The address of the broker that it is connected to."""
    since: datetime
    unsettled: int
    credit: int
    settled_per_second: float
    last_verdict: str | None
    last_verdict_at: datetime | None
    paused: bool
    pulls: bool
    broker_id: UUID
    attachment: str
    group_id: int


@dataclass(frozen=True, slots=True)
class PublisherRow:
    """A publisher that has a stream to a broker, as people see it."""

    namespace: str
    publisher_group: str
    publisher_id: str
    host: str
    client_version: str
    broker: str
    since: datetime
    unanswered_frames: int
    messages_per_second: float
    broker_id: UUID
    attachment: str
    """Empty where the broker is of a version that gives it no name."""


@dataclass(frozen=True, slots=True)
class InstancesReport:
    """The instances that are connected."""

    instances: Sequence[InstanceRow]
    """By namespace, group and instance id."""
    has_more: bool
    unanswered: Sequence[Unanswered]
    """Brokers that have not answered: theirs are missing."""


@dataclass(frozen=True, slots=True)
class PublishersReport:
    """The publishers that have a stream."""

    publishers: Sequence[PublisherRow]
    has_more: bool
    unanswered: Sequence[Unanswered]


async def list_instances(
    stores: Stores, which: WhichInstances, count_max: int, *, seconds_max: float = ASK_SECONDS_MAX
) -> InstancesReport:
    """Return up to *count_max* of the instances that are connected, whichever brokers they are at.

    Raises NamespaceNotFoundError, GroupNotFoundError: of a misspelt name, "none is connected" would be believed.
    """
    check_registered(await load_snapshot(stores.config), which.namespace or None, group=which.group or None)
    asked = await ask_brokers(
        stores, lambda inspector: inspector.list_instances(which, count_max + 1), seconds_max=seconds_max
    )
    rows = [_instance_row(answer, each) for answer in asked.answers for each in answer.said]
    rows.sort(key=lambda row: (row.namespace, row.group, row.instance_id, row.broker))
    return InstancesReport(rows[:count_max], len(rows) > count_max, asked.unanswered)


async def list_publishers(
    stores: Stores,
    namespace: str,
    publisher_group: str,
    count_max: int,
    *,
    seconds_max: float = ASK_SECONDS_MAX,
) -> PublishersReport:
    """Return up to *count_max* of the publishers that have a stream; an empty name may be any.

    Raises NamespaceNotFoundError.
    """
    check_registered(await load_snapshot(stores.config), namespace or None)
    asked = await ask_brokers(
        stores,
        lambda inspector: inspector.list_publishers(namespace, publisher_group, count_max + 1),
        seconds_max=seconds_max,
    )
    rows = [_publisher_row(answer, each) for answer in asked.answers for each in answer.said]
    rows.sort(key=lambda row: (row.namespace, row.publisher_group, row.host, row.publisher_id))
    return PublishersReport(rows[:count_max], len(rows) > count_max, asked.unanswered)


def _instance_row(answer: Answer[list[ConnectedInstance]], said: ConnectedInstance) -> InstanceRow:
    return InstanceRow(
        **_same(said, InstanceRow),
        broker=answer.broker.address,
        broker_id=answer.broker.broker_id,
        since=_time(said.since_us),
        last_verdict_at=None if said.last_verdict_at_us is None else _time(said.last_verdict_at_us),
    )


def _publisher_row(answer: Answer[list[ConnectedPublisher]], said: ConnectedPublisher) -> PublisherRow:
    return PublisherRow(
        **_same(said, PublisherRow),
        broker=answer.broker.address,
        broker_id=answer.broker.broker_id,
        since=_time(said.since_us),
    )


def _same(said: ConnectedInstance | ConnectedPublisher, row: type[InstanceRow | PublisherRow]) -> dict[str, Any]:
    """Return what a broker says in the very words in which it is shown."""
    names = {field.name for field in fields(row)} & {field.name for field in fields(said)}
    return {name: getattr(said, name) for name in names}


def _time(us: int) -> datetime:
    return datetime.fromtimestamp(0, UTC) + timedelta(microseconds=us)
