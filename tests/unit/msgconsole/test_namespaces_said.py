"""What reads or changes acts and jobs says of which namespace they may be: left out, it would be any."""

from __future__ import annotations

import ast
from pathlib import Path

_CONSOLE = Path(__file__).parents[3] / "msgconsole"
_FUNCTIONS = {
    "get_act",
    "get_job",
    "get_spec",
    "get_trial",
    "list_acts",
    "list_failures",
    "list_jobs",
    "set_rate",
    "set_state",
}


def calls() -> list[tuple[str, bool]]:
    """Return each call of such a function, and whether it says the namespace."""
    return [
        (f"{path.relative_to(_CONSOLE)}:{node.lineno}", any(word.arg == "namespace" for word in node.keywords))
        for path in sorted(_CONSOLE.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and _name_of(node.func) in _FUNCTIONS
    ]


def _name_of(function: ast.expr) -> str | None:
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else None


def test_each_call_says_the_namespace() -> None:
    found = calls()

    assert len(found) > 10
    assert [place for place, is_said in found if not is_said] == []
