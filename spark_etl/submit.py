"""The archive's jobs as a program, for `spark-submit` and for `msgcenter etl`, which runs it beside itself.

    spark-submit spark_etl/submit.py archive --day 2026-11-17 --place s3://bucket/archive

Where the store is comes from MSGCENTER_MSGDB_URL (and its replica from MSGCENTER_MSGDB_REPLICA_URL), never from an
argument: arguments are seen by everybody on the machine, and are in Spark's event log.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from datetime import date
from pathlib import Path
from typing import Any, Final, TextIO

from pyspark.sql import SparkSession

from msgbroker.contract.errors import ArchivePlaceError, InvalidSettingError, MessageCenterError, NoDatabaseError
from msgdb import names
from spark_etl.archive.config import FILE_MIB_DEFAULT, ArchiveConfig
from spark_etl.archive.daily import ARCHIVED_TABLES, run_daily
from spark_etl.archive.job import run
from spark_etl.archive.live import LiveConfig, run_live
from spark_etl.archive.progress import Progress, Tell
from spark_etl.archive.task_errors import task_errors
from spark_etl.archive.verify import verify
from spark_etl.files.manifest import Manifest
from spark_etl.files.places import Place
from spark_etl.sessions import open_session

URL_VARIABLE: Final = "MSGCENTER_MSGDB_URL"
REPLICA_VARIABLE: Final = "MSGCENTER_MSGDB_REPLICA_URL"
PLACE_VARIABLE: Final = "MSGCENTER_ARCHIVE"
EXIT_REFUSED: Final = 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one job, tell how far it is, and return the process's exit status."""
    given = _parser().parse_args(arguments)
    out = os.fdopen(given.tell_to, "w") if given.tell_to is not None else sys.stdout
    try:
        if not given.place:
            raise ArchivePlaceError("", f"give --place, or set {PLACE_VARIABLE}")
        with open_session(f"msgcenter {given.job}", given.master) as spark:
            done = _JOBS[given.job](spark, given, _teller(out, as_json=given.tell_to is not None))
    except MessageCenterError as error:
        # Their words go where the result would: Spark's own output is full of other things.
        _say(out, {"error": {"reason": error.reason, "message": str(error)}})
        return EXIT_REFUSED
    _say(out, done)
    return EXIT_REFUSED if done.get("failed") else 0


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
            job.add_argument("--table", default=names.MESSAGE, choices=ARCHIVED_TABLES)
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
        raise NoDatabaseError(URL_VARIABLE)
    return ArchiveConfig(
        url=url, place=given.place, replica_url=os.environ.get(REPLICA_VARIABLE) or None, file_mib=given.file_mib
    )


def _archive(spark: SparkSession, given: argparse.Namespace, tell: Tell) -> dict[str, Any]:
    done = run(spark, _config(given), given.day, table=given.table, again=given.again, tell=tell)
    return {"archived": [_told(done.manifest)]}


def _verify(spark: SparkSession, given: argparse.Namespace, _tell: Tell) -> dict[str, Any]:
    return {"verified": [_told(verify(spark, given.place, given.day, table=given.table))]}


def _daily(spark: SparkSession, given: argparse.Namespace, tell: Tell) -> dict[str, Any]:
    report = run_daily(spark, _config(given), tell=tell)
    return {
        "archived": [_told(done.manifest) for done in report.archived],
        "failed": [
            {"table": table, "day": f"{day}", "reason": error.reason, "message": str(error)}
            for (table, day), error in report.failed.items()
        ],
        "removed": report.removed,
    }


def _live(spark: SparkSession, given: argparse.Namespace, _tell: Tell) -> dict[str, Any]:
    place = Place.at(given.place)
    if given.checkpoint is None and not place.is_local:
        raise InvalidSettingError("checkpoint", "must be given where the archive is not on this machine")
    config = LiveConfig(
        place=given.place,
        checkpoint=given.checkpoint or f"file://{place.below('_live')}",
        every_seconds=given.every_seconds,
        is_once=given.once,
    )
    query = run_live(spark, config, {})
    with task_errors():
        query.awaitTermination()
    return {"live": {"rows": sum(each.numInputRows for each in query.recentProgress)}}


_JOBS: Final[Mapping[str, Callable[[SparkSession, argparse.Namespace, Tell], dict[str, Any]]]] = {
    "archive": _archive,
    "verify": _verify,
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


def _teller(out: TextIO, *, as_json: bool) -> Tell:
    def tell(progress: Progress) -> None:
        if as_json:
            _say(out, {"progress": asdict(progress)})

    return tell


def _say(out: TextIO, what: Mapping[str, Any]) -> None:
    out.write(json.dumps(what) + "\n")
    out.flush()


def script() -> Path:
    """Return this program's file, for `spark-submit`."""
    return Path(__file__)


if __name__ == "__main__":
    sys.exit(main())
