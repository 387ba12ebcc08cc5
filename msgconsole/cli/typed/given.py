"""Which options were typed: a value that was given and one that is only a default are not the same wish."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import typer

_NO_CHANGES: Final = frozenset({"namespace", "no_wait", "as_json", "reason", "dry_run"})
"""The options of a change that do not change the thing itself."""


def is_given(context: typer.Context, parameter: str) -> bool:
    """Return whether *parameter* of the command was typed, or set in the environment."""
    source = context.get_parameter_source(parameter)
    return source is not None and not source.name.startswith("DEFAULT")


def require_a_change(context: typer.Context) -> None:
    """Refuse an update that was given nothing to change, with what it could be given."""
    if not changes_given(context):
        shown = ", ".join("/".join(_names(option.opts, option.secondary_opts)) for option in _changing(context))
        message = f"nothing to change: give at least one of {shown}"
        raise typer.BadParameter(message, ctx=context)


def changes_given(context: typer.Context) -> set[str]:
    """Return which options were given that change the thing itself, by their parameters."""
    return {option.name for option in _changing(context) if option.name and is_given(context, option.name)}


def _changing(context: typer.Context) -> list[Any]:
    options = [option for option in context.command.params if option.param_type_name == "option"]
    return [option for option in options if option.name and option.name not in _NO_CHANGES]


def _names(positive: Iterable[str], negative: Iterable[str]) -> list[str]:
    return [name for name in (*positive, *negative) if name.startswith("--")]
