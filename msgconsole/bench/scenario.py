"""What a bench run does: phases, each with the groups that listen and the load that is sent."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class Publishing(StrEnum):
    """How a publisher publishes."""

    STREAM = "STREAM"
    """The client's stream, as fast as it takes messages; it batches by itself."""
    AWAIT = "AWAIT"
    """`concurrency` callers that each await every single publish."""
    UNARY = "UNARY"
    """Plain unary gRPC calls, as another language would make them: `concurrency` at once."""
    RATE = "RATE"
    """`rate` messages a second, awaited by nobody."""


@dataclass(frozen=True, slots=True)
class Groups:
    """Subscriber groups that listen during a phase."""

    direct: int = 1
    header: int = 0
    expression: str = 'headers.region == "hz" && int(headers.amount) > 100 && headers.channel != "test"'
    """Of the HEADER groups. The messages of the bench satisfy it."""


@dataclass(frozen=True, slots=True)
class Phase:
    """One measurement: *messages* are published and must all arrive, at every group."""

    name: str
    messages: int
    groups: Groups = field(default_factory=Groups)
    publishing: Publishing = Publishing.STREAM
    concurrency: int = 64
    rate: float = 1_000.0
    body_bytes: int = 1_024
    keyed_share: float = 0.5
    """Of the messages; the others go to any queue."""
    with_headers: bool = False
    seconds_max: float = 300.0
    """The phase fails if it has not ended by then."""
    is_warm_up: bool = False
    """Carried out and left out of the report."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """A run."""

    name: str
    phases: tuple[Phase, ...]
    bare_copy_rows: int = 60_000
    """Rows of the bare COPY loop that the rates are compared with."""
    workers: int = 1
    """Broker processes."""


def baseline(scale: float = 1.0) -> Scenario:
    """Return the scenario that `msgcenter bench` runs unless it is given another: 1 group, 5 groups, latency."""

    def scaled(messages: int) -> int:
        return max(1_000, int(messages * scale))

    return Scenario(
        "baseline",
        (
            Phase("warm-up", scaled(20_000), is_warm_up=True),
            Phase("one group", scaled(200_000)),
            Phase("five groups", scaled(100_000), Groups(direct=5)),
            Phase("latency at 1,000/s", scaled(8_000), publishing=Publishing.RATE),
        ),
        bare_copy_rows=scaled(60_000),
    )
