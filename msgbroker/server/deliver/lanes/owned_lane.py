"""A lane that this broker owns, with what the driver of the pure lane has to know beside it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from confdb.routes import TopicRoute
from msgbroker.engine.lane.lane import Lane
from msgbroker.engine.matching import Matcher
from msgbroker.server import clock
from msgbroker.server.log.message import LogMessage
from msgbroker.server.trace.lane_trace import LaneTrace
from msgdb.lanes.records import LaneReset


@dataclass(slots=True, eq=False)
class OwnedLane:
    """The pure `Lane`, by what it selects and may hand out, until when it is owned, and which reads are under way."""

    lane: Lane[LogMessage]
    topic: TopicRoute
    matcher: Matcher
    may_hand_out: Callable[[LogMessage], bool]
    lease_until: float
    """The time, by `clock.now`, from which on nothing of it is handed out."""
    reset: LaneReset | None = None
    """Where it was put by hand: whatever it selects by, from there on it selects."""
    opened_at: float = field(default_factory=clock.now)
    ready_bytes: int = 0
    """How many bytes its messages that wait for an instance had when they were last counted."""
    fetching_bytes: int = 0
    """How many bytes the bodies may have that are being fetched again."""
    is_reading: bool = False
    """Its next block is being read."""
    is_read_failed: bool = False
    """Whether a read of msgdb failed: the next tick tries again."""
    earlier_failed_evaluations: int = 0
    """How often expressions failed in the matchers before this one."""
    trace: LaneTrace = field(default_factory=LaneTrace)
    """Notes what happens to its messages."""
    is_dear: bool = False
    """Its expressions take so long that it is behind by its own doing."""

    def __post_init__(self) -> None:
        self.lane.ask(self.matcher.asked)

    def match_by(self, matcher: Matcher) -> None:
        """Select by another matcher from now on."""
        self.lane.ask(matcher.asked)
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
