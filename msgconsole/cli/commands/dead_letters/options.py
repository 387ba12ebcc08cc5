"""By what people say which dead letters they mean: the options that the commands of `msgcenter dead-letters` share."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import typer

from msgbroker.engine.verdicts import DeadLetterReason
from msgconsole.cli.typed.times import FORMS, parse_time

OfReason = Annotated[
    str | None,
    typer.Option("--why", help=f"Only those that died of this: {', '.join(DeadLetterReason)}."),
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
Ids = Annotated[list[int] | None, typer.Argument(metavar="[ID]...", help="These ones, as listed.")]
AllOfThem = Annotated[bool, typer.Option("--all", help="All that there are of the namespace: no condition is given.")]
