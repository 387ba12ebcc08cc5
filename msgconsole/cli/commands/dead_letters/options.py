"""By what people say which dead letters they mean: the options that the commands of `msgcenter dead-letters` share."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import typer

from msgbroker.engine.verdicts import DeadLetterReason
from msgconsole.cli.typed.times import FORMS, parse_time
from msgconsole.operations.dead_letters.meant import EarlierLetters

DiedOf = Annotated[
    DeadLetterReason | None,
    typer.Option("--why", case_sensitive=False, help="Only those that died of this."),
]
OfError = Annotated[
    str | None, typer.Option("--error", help="Only those whose last error says this somewhere, in whatever case.")
]
DiedSince = Annotated[
    datetime | None,
    typer.Option("--since", parser=parse_time, metavar="TIME", help=f"Only those that died since, in UTC: {FORMS}."),
]
DiedUntil = Annotated[
    datetime | None,
    typer.Option("--until", parser=parse_time, metavar="TIME", help="Only those that died before this time."),
]
Ids = Annotated[list[int] | None, typer.Argument(metavar="ID", help="These ones, as listed.")]
AllOfThem = Annotated[bool, typer.Option("--all", help="All that there are of the namespace: no condition is given.")]
Earlier = Annotated[
    bool, typer.Option("--earlier", help="Those of groups that had the name of --group before, and were deleted.")
]


def check_earlier(group: str | None, *, is_earlier: bool) -> None:
    """Refuse to say of no group that an earlier one is meant."""
    if is_earlier and group is None:
        raise typer.BadParameter("says which group of a name is meant: give it with --group", param_hint="--earlier")


def tell_earlier(group: str | None, found: EarlierLetters, what_of_them: str) -> None:
    """Say on standard error how many dead letters are not meant, because their group was deleted."""
    if found.letters or not found.is_all:
        number = f"{found.letters:,}" if found.is_all else f"{found.letters:,} or"
        typer.echo(f"{number} more are of an earlier group {group}, which was deleted: {what_of_them}.", err=True)
