"""Removing what earlier runs have left: of those that another replaced, that failed, or that died."""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, date, datetime, timedelta
from uuid import UUID

import structlog

from msgdb import ids
from spark_etl.files.places import Place, day_directory, find_manifest, list_days, list_runs, run_directory

log = structlog.get_logger(__name__)


def sweep(place: Place, table: str, *, grace: timedelta, in_use: Collection[UUID]) -> list[str]:
    """Remove the directories of a table's runs that no reader goes by, and return them.

    A run is kept while it is younger than *grace*: readers may still be at its files. So are those *in_use*: the runs
    that days of the store point to, and those that are running.
    """
    removed = []
    for day in list_days(place, table):
        for run_id in _left_behind(place, table, day, in_use):
            begun_at = datetime.fromtimestamp(ids.time_us_of(run_id.bytes) / 1_000_000, UTC)
            if datetime.now(UTC) - begun_at < grace:
                continue
            directory = run_directory(table, day, run_id)
            place.remove_directory(directory)
            log.info("archive.run_removed", directory=directory)
            removed.append(directory)
    return removed


def _left_behind(place: Place, table: str, day: date, in_use: Collection[UUID]) -> list[UUID]:
    current = find_manifest(place, table, day)
    if current is None:
        return [run_id for run_id in list_runs(place, table, day) if run_id not in in_use]
    # A supplement lists files of other runs.
    above = f"{day_directory(table, day)}/run="
    needed = {file.path.removeprefix(above).partition("/")[0] for file in current.files}
    return [
        run_id
        for run_id in list_runs(place, table, day)
        if run_id not in in_use and run_id != current.run_id and str(run_id) not in needed
    ]
