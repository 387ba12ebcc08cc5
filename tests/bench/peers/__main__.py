"""`python -m tests.bench.peers`: measure, print a table, and write the report."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from msgconsole.bench.measures import surroundings
from msgconsole.bench.report.chart import draw_bars
from msgconsole.bench.report.markdown import table
from tests.bench.peers.catalogue import peers
from tests.bench.peers.comparison import BODY_BYTES, Compared, compare
from tests.bench.peers.servers import server_versions

_PACKAGES = ("msgcenter", "nats-py", "aio-pika", "pgmq", "psycopg", "pgqueuer", "asyncpg", "procrastinate")


def main() -> None:
    """Run the comparison that the command line describes."""
    options = _options()
    began_at = datetime.now(UTC)
    with tempfile.TemporaryDirectory(prefix="msgcenter-peers-") as directory:
        results = compare(options.only or [*peers()], options.rounds, options.scale, Path(directory), _say)
    about = _about(began_at, options.rounds)
    text = _document(results, about)
    _say(text)
    if options.report is not None:
        options.report.mkdir(parents=True, exist_ok=True)
        data = {
            **about,
            "systems": {key: {**asdict(result), "median": result.median} for key, result in results.items()},
        }
        (options.report / "peers.json").write_text(json.dumps(data, indent=2) + "\n")
        (options.report / "peers.md").write_text(text)
        medians = {result.name: result.median for result in results.values() if result.rates}
        draw_bars(medians, "messages per second, published to acknowledged", options.report / "peers.png")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.peers", description="Other systems beside ours.")
    parser.add_argument("--only", nargs="+", choices=[*peers()], help="these systems; default: all")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0, help="of the messages of each system")
    parser.add_argument("--report", type=Path, help="write peers.md and peers.json to this directory")
    return parser.parse_args()


def _about(began_at: datetime, rounds: int) -> dict[str, Any]:
    commit, dirty = surroundings.commit()
    return {
        "started_at": began_at.isoformat(timespec="seconds"),
        "commit": commit,
        "dirty": dirty,
        "rounds": rounds,
        "body_bytes": BODY_BYTES,
        "machine": surroundings.machine(),
        "versions": {name: found for name in _PACKAGES if (found := _find_version(name))},
        "servers": server_versions(),
    }


def _document(results: dict[str, Compared], about: dict[str, Any]) -> str:
    ours = results["ours"].median if "ours" in results else 0.0
    rows = [_row(result, ours) for result in results.values()]
    sources = f"commit {about['commit']}{' with local changes' if about['dirty'] else ''}"
    parts = [
        "# Benchmark: beside other systems",
        f"{about['started_at'][:16].replace('T', ' ')} UTC, {sources}.",
        (
            f"Messages a second with {BODY_BYTES:,} bytes of body, from the first publish until the last is confirmed,"
            " delivered and acknowledged; one publisher process, one consumer process, one server, all on this machine;"
            f" measured in turns, the median of {about['rounds']}."
        ),
        "![Messages per second by system](peers.png)",
        table(("system", "msg/s", "rounds", "ours is", "aim", "met", "how it is used"), rows),
        "\n".join(
            f"- {name}: {value}"
            for name, value in {**about["machine"], **about["versions"], **about["servers"]}.items()
        ),
    ]
    return "\n\n".join(parts) + "\n"


def _row(result: Compared, ours: float) -> tuple[str, ...]:
    if result.missing:
        return result.name, "skipped", "", "", "", "", result.missing
    ratio = ours / result.median
    aim = f"≥ {result.aim:g} ×" if result.aim else ""
    met = ("yes" if ratio >= result.aim else "**no**") if result.aim and ours else ""
    rates = ", ".join(f"{rate:,.0f}" for rate in result.rates)
    return result.name, f"{result.median:,.0f}", rates, f"{ratio:.2f} ×" if ours else "", aim, met, result.note


def _find_version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
