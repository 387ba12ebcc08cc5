"""A lane on this broker, with what the driver knows around it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from confdb.routes import TopicRoute
from msgbroker.engine.lane.lane import Lane
from msgbroker.engine.matching import Matcher
from msgbroker.server import clock
from msgbroker.server.log.message import LogMessage


@dataclass(slots=True, eq=False)
class LaneSlot:
    """A lane this broker owns, and what the driver knows around it."""

    lane: Lane[LogMessage]
    topic: TopicRoute
    matcher: Matcher
    may_hand_out: Callable[[LogMessage], bool]
    lease_until: float
    """By `clock.now`: nothing is handed out afterwards."""
    opened_at: float = field(default_factory=clock.now)
    ready_bytes: int = 0
    """What its messages that wait for an instance were counted with, when they were last counted."""
    fetching_bytes: int = 0
    """What is expected of the bodies that are being fetched again."""
    is_reading: bool = False
    is_read_failed: bool = False
    """A read of msgdb failed: the next tick tries again."""
    earlier_failed_evaluations: int = 0
    """Of the matchers before this one."""
    is_dear: bool = False
    """Its expressions take so long that it is behind by its own doing."""

    def match_by(self, matcher: Matcher) -> None:
        """Select by another matcher from now on."""
        self.earlier_failed_evaluations = self.failed_evaluations
        self.matcher = matcher
        self.is_dear = False

    @property
    def reader(self) -> tuple[int, int]:
        """Who takes turns at reading: a group, with each of its topics."""
        return self.lane.key.group_id, self.topic.topic_id

    @property
    def is_fetching(self) -> bool:
        """Whether bodies are being fetched again."""
        return self.fetching_bytes > 0

    @property
    def failed_evaluations(self) -> int:
        """How often an expression failed on a message."""
        return self.earlier_failed_evaluations + self.matcher.failed_evaluations
