"""Say on standard error that what was printed is not all there is."""

from __future__ import annotations

import typer


def tell_incomplete(what: str) -> None:
    """Say what an answer lacks: *what* is a sentence without its end."""
    typer.echo(f"Incomplete: {what}.", err=True)


def tell_cut(count: int) -> None:
    """Say that there is more than the *count* that was asked for."""
    typer.echo(f"Only the first {count}: there are more (--limit).", err=True)
