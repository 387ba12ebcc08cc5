"""`msgcenter etl archive`, `daily`, `verify` and `live`: jobs of Spark's, in processes of their own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import date, timedelta
from typing import Annotated, Any, Final

import typer

from msgconsole.cli.carrying_out.store import read_store
from msgconsole.cli.commands.etl.options import DEFAULT_TABLE, LOCAL, Day, FileMib, Master, Place, Table, read_day
from msgconsole.cli.exit_status import EXIT_INTERRUPTED, EXIT_REFUSED
from msgconsole.cli.printing.output import print_json, print_line, print_rows
from msgconsole.cli.printing.progress import SparkJobProgress
from msgconsole.cli.typed.options import AsJson
from msgconsole.local import places
from msgconsole.local.spark_job import JobCommand, Record, check_installed, run_job
from msgdb.log.partitions import today

_COLUMNS: Final = ("table", "day", "rows", "files", "bytes", "run_id")


def archive(
    day: Annotated[
        date | None,
        typer.Option("--day", parser=read_day, metavar="DAY", help="In UTC, as 2026-11-17. Default: yesterday."),
    ] = None,
    table: Table = DEFAULT_TABLE,
    place: Place = None,
    again: Annotated[bool, typer.Option("--again", help="Though it is archived: readers go by the new files.")] = False,
    file_mib: FileMib = None,
    master: Master = LOCAL,
    as_json: AsJson = False,
) -> None:
    """Archive a day: write it as Parquet files, read them back, hold them against the store, and mark the day.

    Needs pip install 'msgcenter[spark]', and Java. What Spark says goes to a log, which is named where the job fails.
    Ctrl-C ends it in good order: the day stays as it was, and can be archived at once.

    Example: msgcenter etl archive --day 2026-11-17 --place s3://bucket/archive
    """
    check_installed()
    day = _yesterday() if day is None else day
    arguments = [
        "--day",
        f"{day}",
        "--table",
        table,
        *_if_given("--file-mib", file_mib),
        *(["--again"] if again else []),
    ]
    stays = "is as it was archived before" if again else "stays pending"
    _run(
        _job("archive", arguments, place, master),
        f"{table} of {day}",
        said=lambda done: f"Archived {_sentence(done['archived'][0])}",
        interrupted=f"Interrupted: {day} of {table} {stays}.",
        as_json=as_json,
    )


def daily(
    place: Place = None,
    file_mib: FileMib = None,
    master: Master = LOCAL,
    as_json: AsJson = False,
) -> None:
    """Archive all days that are over and not archived, the oldest first, and remove what runs left behind. For cron.

    A day that cannot be archived now does not keep the others from it; the exit status is 1 then.

    Example: msgcenter etl daily --place s3://bucket/archive
    """
    check_installed()
    _run(
        _job("daily", _if_given("--file-mib", file_mib), place, master),
        "days that wait",
        said=_say_daily,
        interrupted="Interrupted: days that are not archived yet stay pending.",
        as_json=as_json,
    )


def verify(
    day: Day,
    table: Table = DEFAULT_TABLE,
    place: Place = None,
    master: Master = LOCAL,
    as_json: AsJson = False,
) -> None:
    """Read an archived day again, and hold it against its manifest: each file's checksum, and each queue's digest.

    The store is not asked, so it also works when the day is long gone there.

    Example: msgcenter etl verify --day 2026-11-17
    """
    check_installed()
    _run(
        _job("verify", ["--day", f"{day}", "--table", table], place, master, reads_store=False),
        f"{table} of {day}",
        said=lambda done: f"As it was archived: {_sentence(done['verified'][0])}",
        interrupted="Interrupted: nothing was found wrong so far.",
        as_json=as_json,
    )


def live(
    place: Place = None,
    once: Annotated[bool, typer.Option("--once", help="Write what is there, and end.")] = False,
    master: Master = LOCAL,
    as_json: AsJson = False,
) -> None:
    """Write the open day's messages as they come, for readers who cannot wait for midnight, until Ctrl-C.

    It is no archive: what is required is that the day is archived as a whole, once it is over.

    Example: msgcenter etl live --place s3://bucket/archive
    """
    check_installed()
    _run(
        _job("live", ["--once"] if once else [], place, master),
        "live",
        said=lambda done: f"Written: {done['live']['rows']:,} rows.",
        interrupted=None,
        as_json=as_json,
    )


def _job(
    name: str, arguments: Sequence[str], place: str | None, master: str, *, reads_store: bool = True
) -> JobCommand:
    url = places.msgdb_url() if reads_store else None
    return JobCommand(name, [*arguments, "--place", places.archive_place(place)], master, url)


def _run(
    job: JobCommand,
    what: str,
    *,
    said: Callable[[Record], str],
    interrupted: str | None,
    as_json: bool,
) -> None:
    """Run *job*, and print what came of it. Without *interrupted*, Ctrl-C is how it ends."""
    with SparkJobProgress(what, is_quiet=as_json) as progress:
        done = run_job(job, progress.show)
    if done is None:
        if interrupted is None:
            return
        typer.echo(interrupted, err=True)
        raise typer.Exit(EXIT_INTERRUPTED)
    if as_json:
        print_json(done)
    else:
        print_line(said(done))
    if done.get("failed"):
        raise typer.Exit(EXIT_REFUSED)


def _say_daily(done: Record) -> str:
    if done["archived"]:
        print_rows(done["archived"], _COLUMNS, as_json=False, empty="")
    for each in done["failed"]:
        typer.echo(f"{each['message']} ({each['reason']})", err=True)
    counted = [f"Archived: {len(done['archived'])}", f"failed: {len(done['failed'])}"]
    if done["removed"]:
        counted.append(f"directories of earlier runs removed: {len(done['removed'])}")
    return ", ".join(counted) + "."


def _sentence(day: Mapping[str, Any]) -> str:
    files = "1 file" if day["files"] == 1 else f"{day['files']:,} files"
    size = f"{day['rows']:,} rows in {files}, {day['bytes']:,} bytes"
    return f"{day['table']} of {day['day']}: {size} (run {day['run_id']})."


def _yesterday() -> date:
    """Return the day before today, by the database's clock."""
    return read_store(today) - timedelta(days=1)


def _if_given(option: str, value: object) -> list[str]:
    return [] if value is None else [option, f"{value}"]
