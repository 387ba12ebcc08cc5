"""What commands print of who uses a thing that is to be deleted."""

from __future__ import annotations

from msgconsole.cli.printing.output import plain, print_json, print_line
from msgconsole.operations.configuration.deletions import Usage


def tell_usage(usage: Usage, *, as_json: bool) -> None:
    """Print what deleting it would mean."""
    if as_json:
        print_json(plain(usage) | {"is_in_use": usage.is_in_use})
        return
    letters = f" Open dead letters, which could not be redriven: {usage.dead_letters:,}." if usage.dead_letters else ""
    print_line(f"It is {'' if usage.is_in_use else 'not '}in use: {usage.text}.{letters} Nothing was changed.")
