"""The options that the commands of `msgcenter etl` share."""

from __future__ import annotations

from datetime import date
from typing import Annotated, Final

import typer

from msgdb.day_tables import ARCHIVABLE_NAMES
from msgdb.names import MESSAGE

DEFAULT_TABLE: Final = MESSAGE
LOCAL: Final = "local[*]"


def read_day(text: str) -> date:
    """Return the day that was typed."""
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is no day like 2026-11-17") from None


def check_table(table: str | None) -> str | None:
    """Refuse what is no table with an archive."""
    if table is not None and table not in ARCHIVABLE_NAMES:
        raise typer.BadParameter(f"{table!r} is none of {', '.join(ARCHIVABLE_NAMES)}")
    return table


Day = Annotated[date, typer.Option("--day", parser=read_day, metavar="DAY", help="In UTC, as 2026-11-17.")]
Table = Annotated[str, typer.Option("--table", callback=check_table, help=f"One of {', '.join(ARCHIVABLE_NAMES)}.")]
OfTable = Annotated[
    str | None, typer.Option("--table", callback=check_table, help=f"Only of {' or '.join(ARCHIVABLE_NAMES)}.")
]
Reason = Annotated[str, typer.Option("--reason", help="Why: it is written down, with who you are.")]
Place = Annotated[
    str | None,
    typer.Option(
        "--place",
        help="Where the archive lies: a path, or s3://, hdfs://, gs://, abfs://. Default: $MSGCENTER_ARCHIVE, or"
        " .msgcenter/archive of the running `msgcenter up`.",
    ),
]
Master = Annotated[
    str,
    typer.Option(
        "--master", envvar="MSGCENTER_SPARK_MASTER", help="Where Spark runs: this machine, or spark://host:7077."
    ),
]
FileMib = Annotated[
    int | None,
    typer.Option("--file-mib", min=1, max=4_096, help="How many MiB of rows a file has, about. Default: 256."),
]
