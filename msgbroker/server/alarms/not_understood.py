"""What this broker does not understand of the configuration: how publishers and instances hear of it, and operators.

Which things those are is decided as the snapshot is loaded (`confdb.route_rows`); here it is only said.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final

from confdb.routes import GroupRoute, NotUnderstood, Snapshot, TopicRoute, Unserved
from confdb.unserved import name_group, name_topic
from msgbroker.contract.errors import NotUnderstoodError
from msgdb.reports.alarms import Alarm, AlarmKind

ALARMS_MAX: Final = 100
"""One alarm for each thing up to here, and one for all the rest."""

WITHHELD_MAX: Final = 2_000
"""A heartbeat carries so many topics, over all groups."""


@lru_cache(maxsize=1)
def process_version() -> str:
    """Return the version of the software that this process runs."""
    return importlib.metadata.version("msgcenter")


def refusal(thing: str, why: NotUnderstood) -> NotUnderstoodError:
    """Return what is said to those who want *thing* served."""
    return NotUnderstoodError(thing, why.detail, why.features, process_version())


def check_group_served(route: GroupRoute) -> None:
    """Raise NotUnderstoodError if this broker does not serve the group."""
    if route.not_understood is not None:
        raise refusal(name_group(route), route.not_understood)


def check_topic_served(route: TopicRoute) -> None:
    """Raise NotUnderstoodError if this broker does not serve the topic."""
    if route.not_understood is not None:
        raise refusal(name_topic(route), route.not_understood)


def alarms_of(snapshot: Snapshot) -> Sequence[Alarm]:
    """Return the alarms for all that this broker does not serve of *snapshot*."""
    unserved = snapshot.unserved
    alarms = [_alarm(each) for each in unserved[:ALARMS_MAX]]
    if len(unserved) > ALARMS_MAX:
        more = len(unserved) - ALARMS_MAX
        alarms.append(Alarm(AlarmKind.NOT_UNDERSTOOD, "the rest", f"{more} more things are not understood"))
    return alarms


def withheld_to_tell(group_ids: Iterable[int], snapshot: Snapshot) -> dict[int, frozenset[int]]:
    """Return the topics that are withheld from these groups: as many as a heartbeat may carry.

    Of the rest others think that they may be served here; so nobody serves them, and nothing is passed over.
    """
    withheld: dict[int, frozenset[int]] = {}
    room = WITHHELD_MAX
    for group_id in sorted(snapshot.withheld.keys() & set(group_ids)):
        topic_ids = snapshot.withheld[group_id]
        room -= len(topic_ids)
        if room < 0:
            break
        withheld[group_id] = topic_ids
    return withheld


def _alarm(unserved: Unserved) -> Alarm:
    detail = f"{unserved.why.detail}: not understood by version {process_version()}, and not served here"
    return Alarm(AlarmKind.NOT_UNDERSTOOD, unserved.thing, detail, unserved.group_id, unserved.topic_id)
