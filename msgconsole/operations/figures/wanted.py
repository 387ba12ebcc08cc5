"""Whose figures somebody asks for, by name, and of what time: how far they were behind, what was counted of them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from confdb.routes import Snapshot
from msgbroker.contract.errors import InvalidSettingError
from msgbroker.contract.limits import FIGURE_DAYS
from msgconsole.operations.subscribed import check_registered
from msgconsole.operations.times import check_order


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
        check_registered(snapshot, self.namespace, group=self.group, topic=self.topic)


EVERYBODY: Final = WantedFigures()
"""All that there are."""


def check_times(since: datetime, until: datetime) -> None:
    """Raise InvalidSettingError for times of which there are no figures."""
    check_order(since, until)
    if since < datetime.now(UTC) - timedelta(days=FIGURE_DAYS + 1):
        raise InvalidSettingError(
            "since", f"must not be more than {FIGURE_DAYS} days ago: figures are kept for so long"
        )
