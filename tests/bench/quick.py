"""Most of what the targets speak of, in less than a minute: to see where one is. Too short to be quoted."""

from __future__ import annotations

from msgconsole.bench import catalogue
from msgconsole.bench.scenario import BareCopy, Scenario

SCENARIO = Scenario(
    "quick",
    (
        catalogue.warm_up(10_000),
        BareCopy(40_000),
        catalogue.one_group(80_000),
        BareCopy(40_000),
        catalogue.five_groups(40_000),
        catalogue.awaiting(20_000),
        catalogue.unary(5_000),
        catalogue.latency(3_000),
        catalogue.with_headers(30_000),
        catalogue.header(30_000),
        catalogue.header_100(3_000),
        *catalogue.backlog(60_000, 20_000, rounds=1),
        *catalogue.traced(40_000, rounds=2),
        *catalogue.redrive(2_500, rounds=1),
        *catalogue.neighbour(2_000),
    ),
)
