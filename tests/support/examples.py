"""The examples that commands give in their help, as they are typed."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from importlib import import_module

import typer

from msgconsole.cli.main import COMMANDS


def examples_of(*names: str) -> list[list[str]]:
    """Return the example of each command below these names, as arguments of `msgcenter`."""
    found = [
        shlex.split(typed)
        for entry in COMMANDS
        if entry.name in names
        for doc in _docs_of(import_module(entry.module))
        for typed in re.findall(r"^\s*Example: msgcenter (.*)$", doc, flags=re.MULTILINE)
    ]
    assert found, names
    return found


def _docs_of(module: object) -> Iterator[str]:
    app = getattr(module, "app", None)
    if not isinstance(app, typer.Typer):
        yield module.command.__doc__ or ""  # type: ignore[attr-defined]
        return
    for command in app.registered_commands:
        assert command.callback is not None
        yield command.callback.__doc__ or ""
