"""What a bench run does: steps, each a load, a measurement of the machine, or a change of the configuration.

Declarative: nothing here runs anything. `driver` carries a scenario out.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

from msgbroker.contract import limits

EXPRESSION = 'headers.region == "hz" && int(headers.amount) > {threshold} && headers.channel != "test"'
"""The expression of the HEADER groups: three terms, each of which is evaluated on every message of the bench.
The threshold differs from group to group, so that no two groups share a compiled program."""


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


class LateGroup(StrEnum):
    """What becomes of a group that is behind the others."""

    NONE = "NONE"
    """There is none; one that an earlier phase left is deleted."""
    AWAY = "AWAY"
    """It is registered, if it was not, and has no instance: what is published is its backlog."""
    CATCHES_UP = "CATCHES_UP"
    """An instance of it connects, and publishing goes on until it has what was stored when the phase began."""


@dataclass(frozen=True, slots=True)
class Groups:
    """Subscriber groups that listen during a phase."""

    direct: int = 1
    header: int = 0
    """How many groups subscribe with an expression; needs `Phase.with_headers`."""


@dataclass(frozen=True, slots=True)
class Phase:
    """One load: messages are published and must all arrive, at every group that wants them."""

    name: str
    messages: int = 0
    """How many messages are published; 0: as many as go in `seconds`, or until the late group has caught up."""
    seconds: float = 0.0
    groups: Groups = field(default_factory=Groups)
    late: LateGroup = LateGroup.NONE
    publishing: Publishing = Publishing.STREAM
    concurrency: int = 64
    rate: float = 1_000.0
    publishers: int = 1
    """How many processes share the publishing."""
    subscribers: int = 1
    """How many processes subscribe, each with an instance of every group."""
    workers: int = 1
    """How many broker processes there are. The broker is started again where the phase before had another number."""
    body_bytes: int = 1_024
    keyed_share: float = 0.5
    """The share of the messages that have a key; the others go to any queue."""
    with_headers: bool = False
    trace_rate: float = limits.TRACE_RATE_DEFAULT
    """The share of the messages of which all that happens is traced."""
    matching_share: float = 1.0
    """The share of the messages that satisfy the expression of the HEADER groups."""
    counts_rows: bool = False
    """Whether the rows that were written per message are counted. Costs some seconds: the database is slow to tell."""
    probes: bool = False
    """A further process publishes ten messages a second, each awaited: how long a commit takes under this load."""
    holds_snapshot: bool = False
    """Another session keeps a transaction with a snapshot open while the phase lasts."""
    redriven: int = 0
    """So many dead letters of another group are being redriven meanwhile; they must last as long as the phase."""
    duplicates_allowed: bool = False
    """Whether a message may come twice, for phases with faults: without one, each message arrives once."""
    seconds_max: float = 600.0
    """The phase fails if it has not ended by then."""
    is_warm_up: bool = False
    """Whether it is carried out and left out of the report."""


@dataclass(frozen=True, slots=True)
class BareCopy:
    """The yardstick: a bare binary COPY loop into the same table with the same indexes."""

    rows: int = 60_000
    body_bytes: int = 1_024


@dataclass(frozen=True, slots=True)
class LargeConfiguration:
    """A configuration of realistic size stands from here on, with live instances of some of its groups.

    The broker is started again. Measured: how long that takes, how soon a change is seen, what an idle broker uses.
    """

    topics: int = 5_000
    queues_per_topic: int = 4
    groups: int = 2_000
    subscriptions_per_group: int = 5
    live_groups: int = 40
    changes: int = 5
    """Event codes that are added, one by one, to see when each can be published to."""
    settling_seconds: float = 5.0
    idle_seconds: float = 20.0


@dataclass(frozen=True, slots=True)
class DearNeighbour:
    """From here on another tenant's group reads a backlog by an expression that takes 40 ms a message.

    It is of before there was a limit on what an expression may cost. It is still at it when the run ends.
    """

    backlog: int = 2_000


@dataclass(frozen=True, slots=True)
class FreshStart:
    """What follows runs on a new, empty center; the one so far is gone, and its disk space free."""


Step: TypeAlias = Phase | BareCopy | LargeConfiguration | DearNeighbour | FreshStart


@dataclass(frozen=True, slots=True)
class Scenario:
    """The phases of one run of the bench, in order."""

    name: str
    steps: tuple[Step, ...]
