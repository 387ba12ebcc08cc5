"""Disconnecting an instance or a publisher: its connections, and asking their brokers to end them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from msgbroker.client.connect.inspection import WhichInstances
from msgbroker.contract.errors import FeatureNotEverywhereError, InvalidSettingError
from msgconsole.operations.brokers.asking import Unanswered
from msgconsole.operations.brokers.connected import (
    COUNT_MAX,
    InstanceRow,
    PublisherRow,
    list_instances,
    list_publishers,
)
from msgconsole.operations.brokers.requesting import ANSWER_SECONDS, carry_out
from msgconsole.operations.stores import Stores
from msgdb.requests import ASKED_AT_ONCE_MAX, NewRequest, RequestOutcome

_NAMED_MAX: Final = 10
ID_DIGITS_MIN: Final = 4
"""So much of a publisher's id has to be given."""


@dataclass(frozen=True, slots=True)
class DisconnectPlan:
    """What would be ended of an instance."""

    connections: Sequence[InstanceRow]
    """One for each group that the instance is connected for."""
    unanswered: Sequence[Unanswered]
    """Brokers that have not answered: it may be connected there, too, and would stay so."""


@dataclass(frozen=True, slots=True)
class PublisherDisconnectPlan:
    """What would be ended of a publisher."""

    connections: Sequence[PublisherRow]
    """Mostly one. A publisher that just went to another broker may have two."""
    unanswered: Sequence[Unanswered]
    """Brokers that have not answered: it may be connected there, too, and would stay so."""


@dataclass(frozen=True, slots=True)
class Disconnected:
    """What came of one connection of an instance."""

    namespace: str
    group: str
    instance_id: str
    broker: str
    outcome: RequestOutcome


@dataclass(frozen=True, slots=True)
class PublisherDisconnected:
    """What came of one connection of a publisher."""

    namespace: str
    publisher_group: str
    publisher_id: str
    broker: str
    outcome: RequestOutcome


async def plan_disconnect(stores: Stores, which: WhichInstances) -> DisconnectPlan:
    """Return the connections of an instance, whichever brokers they are at. Changes nothing.

    Raises NamespaceNotFoundError, GroupNotFoundError, InvalidSettingError where it is not said whose instance is meant.
    """
    report = await list_instances(stores, which, ASKED_AT_ONCE_MAX)
    if report.has_more:
        # Not one instance, but a name that many groups' instances have.
        raise InvalidSettingError("group", f"must be given: there are over {ASKED_AT_ONCE_MAX} such connections")
    namespaces = sorted({each.namespace for each in report.instances})
    if len(namespaces) > 1:
        # Each tenant gives its instances what names it likes.
        raise InvalidSettingError("namespace", f"must be given: {_some(namespaces)} have an instance of that id")
    return DisconnectPlan(report.instances, report.unanswered)


async def plan_publisher_disconnect(stores: Stores, namespace: str, publisher_id: str) -> PublisherDisconnectPlan:
    """Return the connections of a publisher of *namespace* whose id begins so. Changes nothing.

    Raises NamespaceNotFoundError, InvalidSettingError where it is not an id, or the ids of several begin so,
    FeatureNotEverywhereError where a broker of an earlier version has one of its connections.
    """
    wanted = publisher_id.lower()
    if len(wanted) < ID_DIGITS_MIN or not set(wanted) <= set("0123456789abcdef"):
        raise InvalidSettingError("id", f"must be the hexadecimal digits of an id, the first {ID_DIGITS_MIN} at least")
    report = await list_publishers(stores, namespace, "", COUNT_MAX)
    if report.has_more:
        raise InvalidSettingError("namespace", f"has over {COUNT_MAX:,} publishers: which one is meant cannot be told")
    found = [each for each in report.publishers if each.publisher_id.startswith(wanted)]
    ids = sorted({each.publisher_id for each in found})
    if len(ids) > 1:
        raise InvalidSettingError("id", f"must be one publisher's: {_some(ids)} begin so")
    if earlier := sorted({each.broker for each in found if not each.attachment}):
        raise FeatureNotEverywhereError("disconnecting a publisher", earlier)
    return PublisherDisconnectPlan(found, report.unanswered)


async def disconnect(
    stores: Stores,
    connections: Sequence[InstanceRow],
    *,
    actor: str,
    reason: str,
    on_waiting: Callable[[Sequence[str]], None],
    seconds: float = ANSWER_SECONDS,
) -> list[Disconnected]:
    """Have the brokers end just these connections, and return what came of each: it is done, or nobody will do it.

    Each connection is ended once: one that the instance makes afterwards is another. *on_waiting* is told the brokers
    that have not said anything yet. Raises InvalidSettingError where it is not said who asks, or why.
    """
    new = {
        each: NewRequest(each.broker_id, each.group_id, each.attachment, f"instance {each.instance_id} of {each.group}")
        for each in connections
    }
    outcomes = await carry_out(stores, new, actor=actor, reason=reason, on_waiting=on_waiting, seconds=seconds)
    return [
        Disconnected(each.namespace, each.group, each.instance_id, each.broker, outcome)
        for each, outcome in outcomes.items()
    ]


async def disconnect_publisher(
    stores: Stores,
    connections: Sequence[PublisherRow],
    *,
    actor: str,
    reason: str,
    on_waiting: Callable[[Sequence[str]], None],
    seconds: float = ANSWER_SECONDS,
) -> list[PublisherDisconnected]:
    """Have the brokers end just these streams, as `disconnect` does with those of instances.

    What was taken in is stored and answered; the publisher sends the rest by another stream, and all is stored once.
    """
    new = {
        each: NewRequest(each.broker_id, None, each.attachment, f"publisher {each.publisher_id} of {_group(each)}")
        for each in connections
    }
    outcomes = await carry_out(stores, new, actor=actor, reason=reason, on_waiting=on_waiting, seconds=seconds)
    return [
        PublisherDisconnected(each.namespace, each.publisher_group, each.publisher_id, each.broker, outcome)
        for each, outcome in outcomes.items()
    ]


def _group(row: PublisherRow) -> str:
    return row.publisher_group or "no group"


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:_NAMED_MAX]) + (", ..." if names[_NAMED_MAX:] else "")
