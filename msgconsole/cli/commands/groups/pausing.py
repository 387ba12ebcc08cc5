"""What is told of a change that may pause something."""

from __future__ import annotations

import typer

from msgconsole.cli.typed.given import changes_given


def told_change(what: str, context: typer.Context, *, paused: bool | None) -> str:
    """Return the sentence for a change of *what*: of a pause, how it is now, whether or not it was so before."""
    if paused is None:
        return f"{what} is changed."
    now = "is paused" if paused else "is not paused"
    return f"{what} is changed, and {now}." if changes_given(context) > {"paused"} else f"{what} {now}."
