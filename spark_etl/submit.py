"""The archive's jobs as a program, for `spark-submit` and for `msgcenter etl`, which runs it beside itself.

    spark-submit spark_etl/submit.py archive --day 2026-11-17 --place s3://bucket/archive

Where the store is comes from MSGCENTER_MSGDB_URL (and its replica from MSGCENTER_MSGDB_REPLICA_URL), never from an
argument: arguments are seen by everybody on the machine, and are in Spark's event log.

It tells in lines of JSON: `progress` to whoever has given it a descriptor, and at the end what it has done, or the
`error` that it was refused with. What the libraries say goes to standard error.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import select
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict
from datetime import date
from pathlib import Path
from typing import Any, Final, TypeAlias
from uuid import UUID

import psycopg
import structlog
from psycopg import errors
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from msgbroker.contract.errors import (
    ArchivePlaceError,
    DatabaseRefusedError,
    InvalidSettingError,
    JobFailedError,
    MessageCenterError,
    NoDatabaseError,
    NotMigratedError,
)
from msgdb import ids, names
from msgdb.archive import claims
from msgdb.archive.policy import list_policies
from msgdb.day_tables import ARCHIVABLE_NAMES
from msgdb.store import MessageStore
from spark_etl.archive.config import FILE_MIB_DEFAULT, ArchiveConfig
from spark_etl.archive.daily import run_daily
from spark_etl.archive.job import check_owner, run
from spark_etl.archive.progress import Progress, Step, Tell, tell_nobody
from spark_etl.archive.task_errors import task_errors
from spark_etl.archive.verify import verify
from spark_etl.ending import EXIT_INTERRUPTED, end_with_listener, interrupt_by_signals
from spark_etl.files.manifest import Manifest
from spark_etl.files.places import Place
from spark_etl.sessions import check_java, open_session
from spark_etl.source.options import URL_VARIABLE

log = structlog.get_logger(__name__)

REPLICA_VARIABLE: Final = "MSGCENTER_MSGDB_REPLICA_URL"
PLACE_VARIABLE: Final = "MSGCENTER_ARCHIVE"
EXIT_REFUSED: Final = 1
_STORE: Final = "the message store"

OpenSpark: TypeAlias = Callable[[], SparkSession]
"""Starts Spark, which takes a while: a job that finds nothing to do does without."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one job, tell how far it is, and return the process's exit status."""
    given = _parser().parse_args(arguments)
    listener: int | None = given.tell_to
    # Standard output is for the result alone.
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    interrupt_by_signals()
    if listener is not None:
        end_with_listener(listener)
    try:
        done = _carry_out(given, tell_nobody if listener is None else _teller(listener))
    except MessageCenterError as error:
        # Its words go where the result would: Spark's own output is full of other things.
        _say(listener, {"error": {"reason": error.reason, "message": str(error)}})
        return EXIT_REFUSED
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    _say(listener, done)
    return EXIT_REFUSED if done.get("failed") else 0


def _carry_out(given: argparse.Namespace, tell: Tell) -> dict[str, Any]:
    # What is refused is refused before Spark starts, which takes a while.
    check_java()
    if not given.place:
        raise ArchivePlaceError("", f"give --place, or set {PLACE_VARIABLE}")
    Place.at(given.place)
    with _failures():
        if given.job != _VERIFY:
            asyncio.run(_check_store(_config(given), given))
        with ExitStack() as stack:

            def open_spark() -> SparkSession:
                spark = stack.enter_context(open_session(f"msgcenter {given.job}", given.master))
                interrupt_by_signals()
                return spark

            return _JOBS[given.job](open_spark, given, tell)


async def _check_store(config: ArchiveConfig, given: argparse.Namespace) -> None:
    """Raise what the job would be refused with at once."""
    async with MessageStore.open(config.url, pool_size=1) as store:
        await check_owner(store, Place.at(given.place))
        await _try(store, config, given)


async def _try(store: MessageStore, config: ArchiveConfig, given: argparse.Namespace) -> None:
    """Ask of the store what the job will ask first, and take it back."""
    async with store.transaction() as connection:
        await list_policies(connection)
        if given.job == _ARCHIVE:
            run_id = UUID(bytes=ids.to_bytes(ids.mint_run()))
            holder, lease_seconds = config.holder, config.lease_seconds
            await claims.claim(
                connection,
                given.table,
                given.day,
                run_id=run_id,
                holder=holder,
                lease_seconds=lease_seconds,
                again=given.again,
            )
        # It was a trial: nothing of it stays.
        raise psycopg.Rollback


@contextmanager
def _failures() -> Iterator[None]:
    """Raise one of our errors for what the store or Spark fail with; what is beyond that goes to the log."""
    try:
        yield
    except (errors.UndefinedTable, errors.UndefinedColumn) as error:
        raise NotMigratedError(_STORE) from error
    except psycopg.Error as error:
        # What libpq says of a URL that it cannot read quotes the URL.
        told = " ".join(str(error).split()) if error.sqlstate else type(error).__name__
        raise DatabaseRefusedError(_STORE, told) from error
    except (PySparkException, Py4JError) as error:
        log.exception("job.failed")
        first, *_ = str(error).strip().splitlines() or [type(error).__name__]
        raise JobFailedError(first) from error


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="spark_etl.submit", description="Archive days of the message store.")
    parser.add_argument("--tell-to", type=int, metavar="FD", help="tell progress as lines of JSON to this descriptor")
    parser.add_argument("--master", help="Spark's; spark-submit says it otherwise")
    jobs = parser.add_subparsers(dest="job", required=True)
    for name, about in (
        ("archive", "archive a day"),
        ("verify", "read an archived day again"),
        ("daily", "archive all days that wait"),
        ("live", "write the open day as it goes on"),
    ):
        job = jobs.add_parser(name, help=about)
        job.add_argument(
            "--place", default=os.environ.get(PLACE_VARIABLE), help=f"the archive's root (or {PLACE_VARIABLE})"
        )
        if name in {"archive", "verify"}:
            job.add_argument("--day", type=date.fromisoformat, required=True, help="in UTC, as 2026-11-17")
            job.add_argument("--table", default=names.MESSAGE, choices=ARCHIVABLE_NAMES)
        if name in {"archive", "daily"}:
            job.add_argument("--file-mib", type=int, default=FILE_MIB_DEFAULT, help="how large a file is, about")
        if name == "archive":
            job.add_argument("--again", action="store_true", help="though it is archived")
        if name == "live":
            job.add_argument("--once", action="store_true", help="end with what there is now")
            job.add_argument("--checkpoint", help="where Spark remembers how far it is (below a local place)")
            job.add_argument("--every-seconds", type=float, default=10.0, help="how long a batch gathers, at least")
    return parser


def _config(given: argparse.Namespace) -> ArchiveConfig:
    url = os.environ.get(URL_VARIABLE)
    if not url:
        raise NoDatabaseError(URL_VARIABLE, "start the job by `msgcenter etl`, which finds that of `msgcenter up`")
    return ArchiveConfig(
        url=url,
        place=given.place,
        replica_url=os.environ.get(REPLICA_VARIABLE) or None,
        file_mib=getattr(given, "file_mib", FILE_MIB_DEFAULT),
    )


def _archive(open_spark: OpenSpark, given: argparse.Namespace, tell: Tell) -> dict[str, Any]:
    done = run(open_spark(), _config(given), given.day, table=given.table, again=given.again, tell=tell)
    return {"archived": [_told(done.manifest)]}


def _verify(open_spark: OpenSpark, given: argparse.Namespace, _tell: Tell) -> dict[str, Any]:
    return {"verified": [_told(verify(open_spark(), given.place, given.day, table=given.table))]}


def _daily(open_spark: OpenSpark, given: argparse.Namespace, tell: Tell) -> dict[str, Any]:
    report = run_daily(open_spark, _config(given), tell=tell)
    return {
        "archived": [_told(done.manifest) for done in report.archived],
        "failed": [
            {"table": table, "day": f"{day}", "reason": error.reason, "message": str(error)}
            for (table, day), error in report.failed.items()
        ],
        "removed": report.removed,
    }


def _live(open_spark: OpenSpark, given: argparse.Namespace, tell: Tell) -> dict[str, Any]:
    # Of streams only this job knows.
    from spark_etl.archive.live import LiveConfig, run_live

    place = Place.at(given.place)
    if given.checkpoint is None and not place.is_local:
        raise InvalidSettingError("checkpoint", "must be given where the archive is not on this machine")
    config = LiveConfig(
        place=given.place,
        checkpoint=given.checkpoint or f"file://{place.below('_live')}",
        every_seconds=given.every_seconds,
        is_once=given.once,
    )
    written: list[int] = []
    query = run_live(open_spark(), config, {}, written.append)
    tell(Progress(Step.FOLLOWING))
    with task_errors():
        query.awaitTermination()
    return {"live": {"rows": sum(written)}}


_ARCHIVE: Final = "archive"
_VERIFY: Final = "verify"
_JOBS: Final[Mapping[str, Callable[[OpenSpark, argparse.Namespace, Tell], dict[str, Any]]]] = {
    _ARCHIVE: _archive,
    _VERIFY: _verify,
    "daily": _daily,
    "live": _live,
}


def _told(manifest: Manifest) -> dict[str, Any]:
    return {
        "table": manifest.table,
        "day": f"{manifest.day}",
        "run_id": f"{manifest.run_id}",
        "rows": manifest.rows,
        "files": len(manifest.files),
        "bytes": manifest.bytes,
    }


def _teller(listener: int) -> Tell:
    def tell(progress: Progress) -> None:
        # One that has stopped reading (by Ctrl-Z, say) holds up no lease: it is told again in a moment.
        if select.select([], [listener], [], 0)[1]:
            _say(listener, {"progress": asdict(progress)})

    return tell


def _say(listener: int | None, what: Mapping[str, Any]) -> None:
    line = json.dumps(what) + "\n"
    if listener is None:
        sys.stdout.write(line)
        sys.stdout.flush()
        return
    left = line.encode()
    # Who listened is gone: `end_with_listener` ends the job.
    with suppress(BrokenPipeError):
        while left:
            left = left[os.write(listener, left) :]


def script() -> Path:
    """Return this program's file, for `spark-submit`."""
    return Path(__file__)


if __name__ == "__main__":
    sys.exit(main())
