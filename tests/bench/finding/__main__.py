"""`python -m tests.bench.finding`: fill a store, look for messages, print a page, and write the report."""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import psycopg

from msgconsole.bench.measures import surroundings
from tests.bench.finding.filled_store import filled
from tests.bench.finding.looks import look_all
from tests.bench.finding.publisher import publishing
from tests.bench.finding.report import ALONE, BESIDE, document

_SAMPLE: Final = "SELECT message_id, key, stored_at FROM message TABLESAMPLE SYSTEM (0.1) REPEATABLE (%s) LIMIT %s"


def main() -> None:
    """Measure what the command line asks for."""
    options = _options()
    with tempfile.TemporaryDirectory(prefix="msgcenter-finding-") as directory:
        measured = asyncio.run(_measure(Path(directory), options))
    page = document(measured)
    if options.report is not None:
        (options.report / "finding.json").write_text(json.dumps(measured, indent=2) + "\n")
        (options.report / "finding.md").write_text(page)
    sys.stdout.write(page)


async def _measure(directory: Path, options: argparse.Namespace) -> dict[str, Any]:
    began = time.monotonic()
    commit, dirty = surroundings.commit()
    measured: dict[str, Any] = {
        "started_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit,
        "dirty": dirty,
        "machine": surroundings.machine(),
        "sizes": {name: value for name, value in vars(options).items() if name != "report"},
    }
    async with filled(directory, options.messages, options.days, options.body_bytes) as (stores, url):
        measured["filled_in_seconds"] = round(time.monotonic() - began, 1)
        with psycopg.connect(url) as connection:
            rows = connection.execute(_SAMPLE, (random.randrange(1 << 20), 10 * options.looks)).fetchall()
        random.shuffle(rows)
        measured[ALONE] = await look_all(stores, rows, options.looks)
        with publishing(url) as stored:
            measured[BESIDE] = await look_all(stores, rows[::-1], options.looks)
            measured["published meanwhile"] = stored[0]
    return measured


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.finding", description=__doc__)
    parser.add_argument("--messages", type=int, default=10_000_000)
    parser.add_argument("--days", type=int, default=6)
    parser.add_argument("--body-bytes", type=int, default=1_000)
    parser.add_argument("--looks", type=int, default=200, help="how often each is looked for")
    parser.add_argument("--report", type=Path, help="write finding.md and finding.json to this directory")
    options = parser.parse_args()
    # A thousandth of them is a sample, of which each is looked for twice.
    if options.messages < 2_000 * options.looks:
        parser.error(f"of fewer than {2_000 * options.looks:,} messages {options.looks} cannot be looked for")
    return options


if __name__ == "__main__":
    main()
