"""Whose figures somebody asks for, by name, and of what time: how far they were behind, what was counted of them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from confdb.routes import Snapshot
from msgbroker.contract.errors import (
    GroupNotFoundError,
    InvalidSettingError,
    NamespaceNotFoundError,
    TopicNotFoundError,
)
from msgbroker.contract.limits import FIGURE_DAYS

_SHOWN_NAMESPACES_MAX: Final = 3


@dataclass(frozen=True, slots=True)
class WantedFigures:
    """Whose figures are asked for; None: everybody's."""

    namespace: str | None = None
    group: str | None = None
    topic: str | None = None

    def includes(self, namespace: str, group: str, topic: str) -> bool:
        """Return whether the figures of this group on this topic are asked for."""
        pairs = ((self.namespace, namespace), (self.group, group), (self.topic, topic))
        return all(wanted in {None, given} for wanted, given in pairs)

    def check_registered(self, snapshot: Snapshot) -> None:
        """Raise NamespaceNotFoundError, GroupNotFoundError or TopicNotFoundError where there is no such thing."""
        if self.namespace is not None and self.namespace not in snapshot.namespaces:
            raise NamespaceNotFoundError(self.namespace)
        namespaces = sorted(snapshot.namespaces) if self.namespace is None else [self.namespace]
        where = ", ".join(
            [*namespaces[:_SHOWN_NAMESPACES_MAX], *(["..."] if namespaces[_SHOWN_NAMESPACES_MAX:] else [])]
        )
        if self.group is not None and not any((each, self.group) in snapshot.groups for each in namespaces):
            raise GroupNotFoundError(where, self.group)
        if self.topic is not None and not any((each, self.topic) in snapshot.topics for each in namespaces):
            raise TopicNotFoundError(where, self.topic)


EVERYBODY: Final = WantedFigures()
"""All that there are."""


def check_times(since: datetime, until: datetime) -> None:
    """Raise InvalidSettingError for times of which there are no figures."""
    if since >= until:
        raise InvalidSettingError("since", "must be before the end of the time that is asked for")
    if since < datetime.now(UTC) - timedelta(days=FIGURE_DAYS + 1):
        raise InvalidSettingError(
            "since", f"must not be more than {FIGURE_DAYS} days ago: figures are kept for so long"
        )
