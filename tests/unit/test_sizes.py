"""Nothing grows past what can be read in one go."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

_ROOT = Path(__file__).parents[2]
_PACKAGES = ("msgbroker", "confdb", "msgdb", "msgconsole", "spark_etl", "migrations")
_MODULE_LINES_MAX = 400
_FUNCTION_LINES_MAX = 60
_PACKAGES_OF_ROOMS = ("msgbroker", "confdb", "msgdb", "msgconsole", "spark_etl")
_ROOM_MODULES_MAX = 15


def modules() -> Iterator[Path]:
    """All of ours: what is generated nobody reads."""
    generated = _ROOT / "msgbroker" / "v1"
    for package in _PACKAGES:
        yield from (path for path in (_ROOT / package).rglob("*.py") if generated not in path.parents)


def test_no_module_has_more_than_400_lines() -> None:
    sizes = {path.relative_to(_ROOT).as_posix(): len(path.read_text().splitlines()) for path in modules()}

    assert len(sizes) > 100
    assert {name: lines for name, lines in sizes.items() if lines > _MODULE_LINES_MAX} == {}


def test_no_function_has_more_than_60_lines() -> None:
    sizes = {
        f"{path.relative_to(_ROOT).as_posix()}:{node.name}": (node.end_lineno or 0) - node.lineno + 1
        for path in modules()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    }

    assert len(sizes) > 1_000
    assert {name: lines for name, lines in sizes.items() if lines > _FUNCTION_LINES_MAX} == {}


def test_no_room_has_more_than_15_modules_side_by_side() -> None:
    paths = [path.relative_to(_ROOT) for path in modules() if path.name != "__init__.py"]
    counts = Counter(path.parent.as_posix() for path in paths if path.parts[0] in _PACKAGES_OF_ROOMS)

    assert len(counts) > 20
    assert {room: count for room, count in counts.items() if count > _ROOM_MODULES_MAX} == {}
