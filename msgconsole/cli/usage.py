"""What commands print of who uses a thing that is to be deleted."""

from __future__ import annotations

from msgconsole.cli.options import require_reason
from msgconsole.cli.output import plain, print_json, print_line
from msgconsole.cli.service import actor
from msgconsole.operations.deletions import DeletedBy, Usage


def tell_usage(usage: Usage, *, as_json: bool) -> None:
    """Print what deleting it would mean."""
    if as_json:
        print_json(plain(usage) | {"is_in_use": usage.is_in_use})
        return
    letters = f" Open dead letters, which could not be redriven: {usage.dead_letters:,}." if usage.dead_letters else ""
    print_line(f"It is {'' if usage.is_in_use else 'not '}in use: {usage.text}.{letters} Nothing was changed.")


def deleted_by(reason: str | None, *, force: bool) -> DeletedBy:
    """Return who is at the keyboard and why, as a deletion takes it; refuse one by force without a reason."""
    return DeletedBy(actor(), require_reason(reason) if force else reason or "", force)
