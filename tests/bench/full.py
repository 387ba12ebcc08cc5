"""The standard scenario with a backlog of five million messages and a snapshot held for ten minutes.

Takes about an hour, and 50 GB of disk at its peak.
"""

from __future__ import annotations

from msgconsole.bench.scenario import Scenario
from tests.bench.standard import steps

SCENARIO = Scenario("full", steps(messages=500_000, backlog=5_000_000, held_seconds=600))
