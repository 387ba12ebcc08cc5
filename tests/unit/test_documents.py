"""What documents list is all there is: a module, an alarm or a count that is added is named where people look."""

from __future__ import annotations

import re
from fnmatch import fnmatch
from pathlib import Path

import pytest

from msgbroker.contract import limits
from msgbroker.server.counters import HubCounters
from msgdb.alarms import AlarmKind

ROOT = Path(__file__).parents[2]
OPERATING = (ROOT / "docs" / "operating.md").read_text()
# Said in other words: messages, frames and commits; hand-outs and what became of them.
IN_WORDS = {"handed_out", "settled", "redelivered", "dead_lettered"}


@pytest.mark.parametrize("package", ["msgbroker/server", "msgbroker/engine", "msgdb"])
def test_the_readme_of_a_package_names_each_of_its_modules(package: str) -> None:
    rows = [line for line in (ROOT / package / "README.md").read_text().splitlines() if line.startswith("| `")]
    named = re.findall(r"`([a-z_*]+\.py)`", "".join(rows))
    modules = [path.name for path in (ROOT / package).glob("*.py") if path.name != "__init__.py"]

    assert [module for module in modules if not any(fnmatch(module, pattern) for pattern in named)] == []
    assert [name for name in named if "*" not in name and name not in modules] == []


def test_operators_are_told_what_each_alarm_means() -> None:
    assert [kind.value for kind in AlarmKind if f"| `{kind.value}` |" not in OPERATING] == []


def test_operators_are_told_what_each_count_is() -> None:
    counted = HubCounters().totals([]).keys() - IN_WORDS

    assert [name for name in sorted(counted) if f"`{name}`" not in OPERATING] == []


@pytest.mark.parametrize(
    "path", [ROOT / "docs/limits.md", *sorted(ROOT.glob("msgbroker/proto/**/*.proto"))], ids=lambda path: path.name
)
def test_bytes_that_people_are_told_of_are_limits(path: Path) -> None:
    told = {int(number.replace(",", "")) for number in re.findall(r"\b(\d+(?:,\d{3})+) bytes", path.read_text())}
    meant = {value for name, value in vars(limits).items() if "BYTES" in name}

    assert told - meant == set()
