"""The phases that the targets speak of, by name; scenarios choose their sizes.

A name may occur several times in a scenario: its median counts.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from msgbroker.contract import limits
from msgconsole.bench.scenario import BareCopy, DearNeighbour, Groups, LateGroup, Phase, Publishing, Scenario, Step
from msgdb.jobs.records import RATE_DEFAULT

ONE_GROUP: Final = "one group"
FIVE_GROUPS: Final = "five groups"
AWAITING: Final = "64 awaiting callers"
UNARY: Final = "64 unary callers"
ROWS_ONE_GROUP: Final = "rows written, one group"
ROWS_FIVE_GROUPS: Final = "rows written, five groups"
LATENCY: Final = "latency at 1,000/s"
ONE_GROUP_HEADERS: Final = "one group, messages with headers"
HEADER: Final = "one HEADER group"
HEADER_100: Final = "100 HEADER groups"
BACKLOG_EMPTY: Final = "no backlog"
BACKLOG_BUILDING: Final = "building a backlog"
BACKLOG_THERE: Final = "backlog there"
BACKLOG_CATCH_UP: Final = "late group catches up"
HELD_SNAPSHOT: Final = "held snapshot"
WORKERS_1: Final = "2 publishers, 1 worker"
WORKERS_2: Final = "2 publishers, 2 workers"
HOT_TOPIC: Final = "hot topic, large configuration"
TRACED_NOT: Final = "one group, trace rate 0"
TRACED_AS_USUAL: Final = "one group, trace rate 0.01"
TRACED_ALL: Final = "one group, trace rate 1"
LIVE: Final = "live traffic at 500/s"
LIVE_BESIDE: Final = "live traffic at 500/s, redrive"
ONE_CALLER: Final = "one awaiting caller"
ONE_CALLER_BESIDE: Final = "one awaiting caller, dear neighbour"


def warm_up(messages: int) -> Phase:
    """Return a phase that has everything connected and allocated once."""
    return Phase("warm-up", messages, is_warm_up=True)


def one_group(messages: int) -> Phase:
    """End to end: one publisher, one group."""
    return Phase(ONE_GROUP, messages)


def five_groups(messages: int) -> Phase:
    """Return a phase in which each message goes to five groups."""
    return Phase(FIVE_GROUPS, messages, groups=Groups(direct=5))


def awaiting(messages: int) -> Phase:
    """Callers without any batching of their own."""
    return Phase(AWAITING, messages, publishing=Publishing.AWAIT)


def unary(messages: int) -> Phase:
    """Return a phase that publishes by plain calls, as another language makes them."""
    return Phase(UNARY, messages, publishing=Publishing.UNARY)


def latency(messages: int) -> Phase:
    """Return a phase far from saturation, for the time from publish to handler."""
    return Phase(LATENCY, messages, publishing=Publishing.RATE)


def rows_written(messages: int) -> tuple[Phase, Phase]:
    """Rows per message, with one group and with five."""
    one = Phase(ROWS_ONE_GROUP, messages, counts_rows=True)
    return one, replace(one, name=ROWS_FIVE_GROUPS, groups=Groups(direct=5))


def with_headers(messages: int) -> Phase:
    """What the HEADER group is compared with: the same messages, a DIRECT group."""
    return Phase(ONE_GROUP_HEADERS, messages, with_headers=True)


def header(messages: int) -> Phase:
    """A three-term expression that every message satisfies."""
    return Phase(HEADER, messages, groups=Groups(direct=0, header=1), with_headers=True)


def header_100(messages: int) -> Phase:
    """A hundred expressions on one topic; few messages satisfy them, so that evaluating is the work."""
    return Phase(HEADER_100, messages, groups=Groups(direct=0, header=100), with_headers=True, matching_share=0.01)


def backlog(backlog_messages: int, messages: int, rounds: int = 3) -> tuple[Phase, ...]:
    """The same load without and with a group that is far behind; then it catches up while publishing goes on."""
    return (
        *[Phase(BACKLOG_EMPTY, messages)] * rounds,
        Phase(BACKLOG_BUILDING, backlog_messages, late=LateGroup.AWAY, seconds_max=1_800),
        *[Phase(BACKLOG_THERE, messages, late=LateGroup.AWAY)] * rounds,
        Phase(BACKLOG_CATCH_UP, late=LateGroup.CATCHES_UP, seconds_max=1_800),
    )


def held_snapshot(seconds: float) -> Phase:
    """Load under a transaction that another session keeps open; its start is compared with its end."""
    return Phase(HELD_SNAPSHOT, seconds=seconds, holds_snapshot=True, probes=True, seconds_max=seconds + 120)


def workers(messages: int, rounds: int = 3) -> tuple[Phase, ...]:
    """The same load on one broker process and on two, in turns."""
    one = Phase(WORKERS_1, messages, publishers=2, subscribers=2)
    again = replace(one, is_warm_up=True, messages=max(1_000, messages // 10))
    two = replace(one, name=WORKERS_2, workers=2)
    return (again, one, replace(again, workers=2), two) * rounds


def hot_topic(messages: int) -> Phase:
    """The load of `one_group`, beside a large configuration."""
    return Phase(HOT_TOPIC, messages)


def traced(messages: int, rounds: int = 3) -> tuple[Phase, ...]:
    """The same load with nothing traced that goes well, with as much as unless one says otherwise, and with all."""
    none = Phase(TRACED_NOT, messages, trace_rate=0.0)
    usual = Phase(TRACED_AS_USUAL, messages, trace_rate=limits.TRACE_RATE_DEFAULT)
    everything = Phase(TRACED_ALL, messages, trace_rate=1.0)
    # Whoever comes first meets a colder machine: so in another order each time.
    orders = ((none, usual, everything), (usual, everything, none), (everything, none, usual))
    return tuple(phase for number in range(rounds) for phase in orders[number % len(orders)])


def redrive(messages: int, rounds: int = 3) -> tuple[Phase, ...]:
    """The same even load alone, and while another group's dead letters are redriven as fast as unless one says else."""
    alone = Phase(LIVE, messages, publishing=Publishing.RATE, rate=500.0)
    # They last twice as long as the load.
    redriven = round(2 * messages / alone.rate * RATE_DEFAULT)
    return (alone, replace(alone, name=LIVE_BESIDE, redriven=redriven)) * rounds


def neighbour(messages: int) -> tuple[Step, ...]:
    """Return steps for one caller that awaits each publish: alone, and beside a tenant whose expression takes long."""
    alone = Phase(ONE_CALLER, messages, publishing=Publishing.AWAIT, concurrency=1)
    warm = replace(alone, messages=messages // 10, is_warm_up=True)
    return warm, alone, DearNeighbour(), warm, replace(alone, name=ONE_CALLER_BESIDE)


def baseline(scale: float = 1.0) -> Scenario:
    """Return the scenario that `msgcenter bench` runs unless it is given another."""

    def scaled(messages: int) -> int:
        return max(1_000, int(messages * scale))

    return Scenario(
        "baseline",
        (
            warm_up(scaled(20_000)),
            BareCopy(scaled(60_000)),
            one_group(scaled(200_000)),
            five_groups(scaled(100_000)),
            latency(scaled(8_000)),
        ),
    )
