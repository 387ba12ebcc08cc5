"""Acts are called by the command line and by others: what they say names no command and no option."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

_OPERATIONS = Path(__file__).parents[4] / "msgconsole" / "operations"
_OF_THE_COMMAND_LINE = re.compile(r"\bmsgcenter |(^|[\s(`])--[a-z]")


def texts_of(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Give the texts of a module that somebody may be told: all but docstrings."""
    docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
            yield node.lineno, node.value


def said() -> list[tuple[str, str]]:
    """Return each text of the acts, with its place."""
    return [
        (f"{path.relative_to(_OPERATIONS)}:{line}", text)
        for path in sorted(_OPERATIONS.rglob("*.py"))
        for line, text in texts_of(ast.parse(path.read_text()))
    ]


def test_no_act_names_a_command_or_an_option() -> None:
    found = said()

    assert len(found) > 100
    assert [place for place, text in found if _OF_THE_COMMAND_LINE.search(text)] == []


@pytest.mark.parametrize("text", ["`msgcenter job list`", "a replay (--force)", "--resume"])
def test_a_command_in_a_text_is_found(text: str) -> None:
    ((_, found),) = texts_of(ast.parse(f'"""Doc: msgcenter job."""\nWORDS = {text!r}'))

    assert _OF_THE_COMMAND_LINE.search(found)
