"""What documents list is all there is: a module, an alarm or a count that is added is named where people look."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from msgbroker.contract import limits, machine_errors
from msgbroker.contract.error_families import FAMILIES, MessageCenterError
from msgbroker.contract.facts import declared_facts
from msgbroker.server.deliver.counters import BrokerCounters
from msgbroker.server.publish.committer import CommitterCounters
from msgdb.reports.alarms import AlarmKind
from tests.support.error_kinds import leaves_of

ROOT = Path(__file__).parents[2]
OPERATING = (ROOT / "docs" / "operating.md").read_text()


def modules_named(readme: Path) -> set[str]:
    """Return the modules that the README's table of rooms names, as paths below its package."""
    rows = re.findall(r"^\| `([a-z_./]+)/` \|.*\|([^|]+)\|$", readme.read_text(), re.MULTILINE)
    return {(Path(room) / name).as_posix() for room, names in rows for name in re.findall(r"`([a-z_]+)`", names)}


PACKAGES = (
    "msgbroker/contract",
    "msgbroker/client",
    "msgbroker/server",
    "msgbroker/engine",
    "msgdb",
    "confdb",
    "spark_etl",
    "msgconsole",
)


@pytest.mark.parametrize("package", PACKAGES)
def test_the_readme_of_a_package_names_each_of_its_modules_in_its_room(package: str) -> None:
    home = ROOT / package
    paths = (path.relative_to(home).with_suffix("") for path in home.rglob("*.py") if path.name != "__init__.py")

    assert modules_named(home / "README.md") == {path.as_posix() for path in paths}


def test_each_page_can_be_found_from_the_readme() -> None:
    readme = (ROOT / "README.md").read_text()

    assert [path.name for path in (ROOT / "docs").glob("*.md") if f"](docs/{path.name})" not in readme] == []


@pytest.mark.parametrize(
    "path", [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))], ids=lambda path: path.name
)
def test_links_of_a_page_lead_somewhere(path: Path) -> None:
    links = re.findall(r"\]\((?!https?:)([^)#\s]+)(?:#[^)]*)?\)", path.read_text())

    assert [link for link in links if not (path.parent / link).exists()] == []


def test_what_the_style_says_checks_a_rule_is_there() -> None:
    checks = re.findall(r"`(tests/[^`]+)`", (ROOT / "docs" / "style.md").read_text())

    assert len(checks) > 5
    assert [check for check in checks if not (ROOT / check).exists()] == []


def test_operators_are_told_what_each_alarm_means() -> None:
    assert [kind.value for kind in AlarmKind if f"| `{kind.value}` |" not in OPERATING] == []


def test_operators_are_told_what_each_count_is() -> None:
    committed = dataclasses.asdict(CommitterCounters())
    counted = BrokerCounters().totals([], committed).keys()

    assert [name for name in sorted(counted) if f"`{name}`" not in OPERATING] == []


@pytest.mark.parametrize(
    "path", [ROOT / "docs/limits.md", *sorted(ROOT.glob("msgbroker/proto/**/*.proto"))], ids=lambda path: path.name
)
def test_bytes_that_people_are_told_of_are_limits(path: Path) -> None:
    told = {int(number.replace(",", "")) for number in re.findall(r"\b(\d+(?:,\d{3})+) bytes", path.read_text())}
    meant = {value for name, value in vars(limits).items() if "BYTES" in name}

    assert told - meant == set()


# --- the protocol -----------------------------------------------------------------------------------------------------

PROTOCOL = (ROOT / "docs" / "protocol.md").read_text()
TYPES = {bool: "bool", int: "int", float: "float"}


def facts_of(leaf: type[MessageCenterError], family: type[MessageCenterError]) -> dict[str, str]:
    """Return the facts that *leaf* has beside those of its family, each with what its text is to be read as."""
    own = declared_facts(leaf).keys() - declared_facts(family).keys()
    return {name: TYPES.get(declared_facts(leaf)[name]._kind, "text") for name in own}


def told_of_reasons() -> dict[str, tuple[str, dict[str, str], bool]]:
    """Return what the page says: status, facts with their types, and whether to try again, by reason."""
    rows = re.findall(r"^\| `([A-Z_]+)` \| ([A-Z_]+) \| (yes|no)[^|]*\| ([^|]*) \|", PROTOCOL, re.MULTILINE)
    return {
        reason: (status, dict(re.findall(r"`([a-z_]+)` (\w+)", facts)), retry == "yes")
        for reason, status, retry, facts in rows
    }


def test_writers_of_clients_are_told_each_reason_with_its_status_and_facts_and_whether_to_retry() -> None:
    meant = {
        leaf.reason: (leaf.status, facts_of(leaf, family), leaf.retryable)
        for family in FAMILIES
        for leaf in leaves_of(family)
        if "reason" in vars(leaf) and leaf.__module__ != machine_errors.__name__
    }

    assert told_of_reasons() == meant


def test_the_example_client_has_a_place_for_each_line_of_the_checklist() -> None:
    lines = set(re.findall(r"^\| ([MS]\d+) \|", PROTOCOL, re.MULTILINE))
    modules = [path.read_text() for path in (ROOT / "tests" / "polyglot").glob("*.mjs")]
    comments = re.findall(r"(?://|\*).*", "\n".join(modules))

    assert lines
    assert lines == set(re.findall(r"\b[MS]\d+\b", "\n".join(comments)))
