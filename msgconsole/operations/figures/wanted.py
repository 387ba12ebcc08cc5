"""Whose figures somebody asks for, by name: how far they are behind, or were, and what was counted of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from confdb.routes import Snapshot
from msgbroker.contract.errors import GroupNotFoundError, NamespaceNotFoundError, TopicNotFoundError

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
