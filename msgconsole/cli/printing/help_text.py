"""How help is shown: its prose in lines of the terminal, not of the source; and of a flag no type."""

from __future__ import annotations

import inspect
import re
from typing import Any, Final

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption

_WRAPPED: Final = re.compile(r"(?<![.:\n])\n(?![\n\s-])")
"""A line's end that no sentence has, and that no list, example or paragraph follows."""


class CommandShown(TyperCommand):
    """A command, with its help."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return all that it takes."""
        return _without_types_of_flags(super().get_params(ctx))


class CommandsShown(TyperGroup):
    """Several commands below one word, with their help."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return all that it takes itself."""
        return _without_types_of_flags(super().get_params(ctx))


def _without_types_of_flags(parameters: list[Any]) -> list[Any]:
    for option in parameters:
        if isinstance(option, TyperOption) and option.is_bool_flag:
            # It takes no value: a type beside it reads as if it did.
            option.metavar = ""
    return parameters


def explain(app: typer.Typer) -> None:
    """Let all commands of *app* show their help so."""
    for command in app.registered_commands:
        command.cls = CommandShown
        command.help = as_prose(command.help or inspect.getdoc(command.callback) or "")
    for group in app.registered_groups:
        group.cls = CommandsShown
        if group.typer_instance is not None:
            explain(group.typer_instance)


def as_prose(text: str) -> str:
    """Return *text* without the line ends in the middle of its sentences: a terminal breaks lines where it is full."""
    return _WRAPPED.sub(" ", text)
