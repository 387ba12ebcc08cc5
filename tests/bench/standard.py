"""Every target, each phase long enough to be quoted, the important ones three times in turns: about 20 minutes."""

from __future__ import annotations

from msgconsole.bench import catalogue
from msgconsole.bench.scenario import BareCopy, FreshStart, LargeConfiguration, Scenario, Step


def steps(messages: int, backlog: int, held_seconds: float) -> tuple[Step, ...]:
    """Return the steps, with the sizes that make a run longer or shorter."""
    return (
        catalogue.warm_up(messages // 10),
        *(
            BareCopy(200_000),
            catalogue.one_group(messages),
            catalogue.five_groups(messages // 2),
        )
        * 3,
        catalogue.awaiting(messages // 5),
        catalogue.unary(messages // 10),
        catalogue.latency(30_000),
        *catalogue.rows_written(messages // 2),
        *(catalogue.with_headers(messages // 2), catalogue.header(messages // 2)) * 3,
        catalogue.header_100(messages // 20),
        *catalogue.traced(messages // 2),
        *catalogue.workers(messages // 2),
        FreshStart(),
        catalogue.warm_up(messages // 10),
        *catalogue.backlog(backlog, messages // 2),
        FreshStart(),
        catalogue.warm_up(messages // 10),
        catalogue.held_snapshot(held_seconds),
        FreshStart(),
        catalogue.warm_up(messages // 10),
        *catalogue.neighbour(messages // 160),
        FreshStart(),
        catalogue.warm_up(messages // 10),
        *catalogue.redrive(messages // 160),
        FreshStart(),
        LargeConfiguration(),
        catalogue.warm_up(messages // 10),
        *(catalogue.hot_topic(messages),) * 3,
    )


SCENARIO = Scenario("standard", steps(messages=800_000, backlog=2_000_000, held_seconds=60))
