"""docs/architecture.md says what is so: its rooms, its lists of layers, its walk and its proofs are looked up."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text()
PACKAGES = (
    "msgbroker/contract",
    "msgbroker/server",
    "msgbroker/engine",
    "msgbroker/client",
    "msgdb",
    "confdb",
    "spark_etl",
    "msgconsole",
)
CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
LAYERED = [contract for contract in CONTRACTS if contract["type"] == "layers"]


def table_rows(column_count: int) -> list[list[str]]:
    """Return the cells of each row of the page's tables that have so many columns."""
    rows = [line.strip("|").split(" | ") for line in PAGE.splitlines() if line.startswith("| ")]
    return [[cell.strip(" |") for cell in row] for row in rows if len(row) == column_count]


def test_each_room_is_explained() -> None:
    modules = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py") if path.name != "__init__.py"]
    rooms = {str(path.parent.relative_to(ROOT)).removeprefix("msgbroker/") for path in modules}
    told = re.findall(r"^\| `((?:\w+/)+\w*)` \|", PAGE.partition("## Rooms")[2].partition("## Tests")[0], re.MULTILINE)

    assert sorted(name.rstrip("/") for name in told) == sorted(rooms)


@pytest.mark.parametrize("contract", LAYERED, ids=lambda contract: contract["name"])
def test_the_lists_of_layers_are_those_that_are_checked(contract: dict[str, Any]) -> None:
    listed = "\n".join(["```text", *contract["layers"], "```"])

    assert listed in PAGE


@pytest.mark.parametrize("contract", LAYERED, ids=lambda contract: contract["name"])
def test_each_module_has_a_place_in_the_layers(contract: dict[str, Any]) -> None:
    # The packages as a whole are few, and listed by hand.
    assert contract.get("exhaustive") or "containers" not in contract


def names_of(path: Path) -> set[str]:
    """Return the functions and methods of a module, as they are named in the walk."""
    tree = ast.parse(path.read_text())
    functions = {node.name for node in tree.body if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))}
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    return functions | {
        f"{each.name}.{node.name}"
        for each in classes
        for node in each.body
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    }


def test_the_walk_of_a_message_names_functions_that_are_there() -> None:
    steps = re.findall(r"^\|[\w ]*\| `([\w/]+\.py)` `([\w.]+)` \|", PAGE, re.MULTILINE)
    missing = []
    for module, function in steps:
        path = next((ROOT / top / module for top in ("msgbroker", ".") if (ROOT / top / module).is_file()), None)
        if path is None or function not in names_of(path):
            missing.append(f"{module} {function}")

    assert len(steps) > 20
    assert missing == []


def test_the_proofs_of_the_promises_are_there() -> None:
    proofs = {
        name for row in table_rows(4) for name in re.findall(r"`((?:unit|integration|chaos)/[\w/]+\.py)`", row[3])
    }

    assert len(proofs) > 15
    assert [name for name in sorted(proofs) if not (ROOT / "tests" / name).is_file()] == []


def test_what_contributors_are_sent_to_is_there() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    named = re.findall(r"`((?:[\w.]+/)+[\w.*]*|[A-Z]+\.md)`", text)
    tops = (ROOT, ROOT / "msgbroker")

    assert len(named) > 30
    assert [name for name in named if not any([*top.glob(name.rstrip("/"))] for top in tops)] == []


def test_the_commands_that_contributors_are_told_of_are_there() -> None:
    targets = set(re.findall(r"^([a-z-]+):.*##", (ROOT / "Makefile").read_text(), re.MULTILINE))

    assert set(re.findall(r"`make ([a-z-]+)`", (ROOT / "CONTRIBUTING.md").read_text())) <= targets
