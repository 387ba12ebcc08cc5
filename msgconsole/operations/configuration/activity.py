"""What a group is at while its configuration is to be changed: its instances, what they hold, what is behind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from msgbroker.client.connect.inspection import WhichInstances
from msgconsole.operations.brokers.asking import Unanswered
from msgconsole.operations.brokers.connected import COUNT_MAX, InstanceRow, list_instances
from msgconsole.operations.figures.lag import read_lag
from msgconsole.operations.figures.wanted import WantedFigures
from msgconsole.operations.stores import Stores


@dataclass(frozen=True, slots=True)
class Activity:
    """What a group is at."""

    instances: int
    """How many of its instances are connected, ..."""
    has_more_instances: bool
    """... and whether there are more than are looked at."""
    in_flight: int
    """How many messages those that were looked at hold, of all its topics."""
    behind: int
    """How many messages it has not settled, those that wait for another attempt apart, ..."""
    waiting: int
    """... and how many of those wait."""
    unanswered: Sequence[Unanswered]
    """Brokers that have not answered: their instances are missing."""


async def find_activity(
    stores: Stores, namespace: str, group: str, topic: str | None = None
) -> tuple[Activity, Sequence[InstanceRow]]:
    """Return what a group is at, and its instances; of one *topic*, what is behind and waits there.

    Raises GroupNotFoundError, TopicNotFoundError, LookTooLongError.
    """
    report = await list_instances(stores, WhichInstances(namespace, group), COUNT_MAX)
    queues = (await read_lag(stores, WantedFigures(namespace, group, topic))).queues
    activity = Activity(
        instances=len(report.instances),
        has_more_instances=report.has_more,
        in_flight=sum(each.unsettled for each in report.instances),
        behind=sum(lag.behind for lag in queues),
        waiting=sum(lag.redeliveries for lag in queues),
        unanswered=report.unanswered,
    )
    return activity, report.instances
