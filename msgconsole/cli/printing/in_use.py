"""What commands print of who uses a thing that is to be deleted."""

from __future__ import annotations

from msgconsole.cli.printing.output import plain, print_json, print_line
from msgconsole.operations.configuration.deletions import Use


def tell_use(use: Use, *, as_json: bool, **more: object) -> None:
    """Print what deleting it would mean; as JSON with *more* of it."""
    if as_json:
        print_json(plain(use) | {"is_in_use": use.is_in_use} | more)
        return
    letters = f" Open dead letters, which could not be redriven: {use.dead_letters:,}." if use.dead_letters else ""
    print_line(f"It is {'' if use.is_in_use else 'not '}in use: {use.text}.{letters} Nothing was changed.")
