"""What an instance has said of its messages lately, for people who look at it."""

from __future__ import annotations

from msgbroker.engine.verdicts import Verdict
from msgbroker.server.rates import Rate


class Heard:
    """The last verdict of an instance, and how many messages a second its verdicts decide."""

    __slots__ = ("last_verdict", "last_verdict_at", "settled")

    def __init__(self, now: float) -> None:
        self.last_verdict: Verdict | None = None
        """None: none has decided anything yet."""
        self.last_verdict_at = now
        self.settled = Rate(now)

    def note(self, verdict: Verdict, count: int, now: float) -> None:
        """Note a verdict that has decided so many messages."""
        self.last_verdict = verdict
        self.last_verdict_at = now
        self.settled.add(count, now)
