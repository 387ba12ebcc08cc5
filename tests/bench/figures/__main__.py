"""`python -m tests.bench.figures`: measure what counting costs, print it as JSON."""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import tempfile
from pathlib import Path

from msgconsole.bench.measures import surroundings
from tests.bench.figures.comparison import loaded_in_turns, median_broker_cpu, median_rate


def main() -> None:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=300_000, help="messages of each load")
    parser.add_argument("--pairs", type=int, default=10, help="how often it is carried out on each of the two")
    options = parser.parse_args()
    commit, dirty = surroundings.commit()
    with (
        tempfile.TemporaryDirectory(prefix="msgcenter-figures-") as directory,
        loaded_in_turns(Path(directory), options.messages) as both,
    ):
        pairs = list(itertools.islice(both, options.pairs))
    measured = {
        "commit": commit,
        "changed": dirty,
        "messages": options.messages,
        "counted / not counted, messages per second": round(median_rate(pairs), 3),
        "counted / not counted, CPU of the broker": round(median_broker_cpu(pairs), 3),
        "each pair, messages per second": [round(pair.rate, 3) for pair in pairs],
        "each pair, CPU of the broker": [round(pair.broker_cpu, 3) for pair in pairs],
        "messages per second, counted": [pair.counted.messages_per_second for pair in pairs],
    }
    sys.stdout.write(json.dumps(measured, indent=2) + "\n")


if __name__ == "__main__":
    main()
