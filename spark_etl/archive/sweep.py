"""Removing what earlier runs have left: of those that another replaced, that failed, or that died.

And what a stream has written of a day while it was open, once the day is archived.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from datetime import UTC, date, datetime, timedelta
from uuid import UUID

import structlog

from msgbroker.contract.errors import ArchivePlaceError, ManifestUnreadableError
from msgdb import ids
from spark_etl.files.manifest import Manifest
from spark_etl.files.places import (
    Place,
    day_directory,
    find_manifest,
    list_batches,
    list_days,
    list_runs,
    run_directory,
)

log = structlog.get_logger(__name__)


def sweep(place: Place, table: str, *, grace: timedelta, in_use: Collection[UUID]) -> list[str]:
    """Remove the directories of a table's runs that no reader goes by, and return them.

    A run is kept while it is younger than *grace*: readers may still be at its files. So are those *in_use*: the runs
    that days of the store point to, and those that are running. A day with a manifest that cannot be read stays as it
    is, and the others are swept.
    """
    removed: list[str] = []
    for day in list_days(place, table):
        try:
            for directory in _left_behind(place, table, day, datetime.now(UTC) - grace, in_use):
                place.remove_directory(directory)
                log.info("archive.run_removed", directory=directory)
                removed.append(directory)
        except (ArchivePlaceError, ManifestUnreadableError) as error:
            log.error("archive.day_not_swept", table=table, day=f"{day}", problem=str(error))  # noqa: TRY400 - one line
    return removed


def _left_behind(
    place: Place, table: str, day: date, begun_before: datetime, in_use: Collection[UUID]
) -> Iterator[str]:
    current = find_manifest(place, table, day)
    needed = set() if current is None else _runs_of(current)
    for run_id in list_runs(place, table, day):
        if run_id not in in_use and run_id not in needed and _begun_at(run_id) <= begun_before:
            yield run_directory(table, day, run_id)
    if current is not None:
        for batch in list_batches(place, table, day):
            if _begun_at(batch.run_id) <= begun_before:
                yield batch.directory(table, day)


def _runs_of(manifest: Manifest) -> set[UUID]:
    """Return whose files are read: a supplement lists those of other runs, too, and a further one asks for its base."""
    above = f"{day_directory(manifest.table, manifest.day)}/run="
    of_files = {UUID(file.path.removeprefix(above).partition("/")[0]) for file in manifest.files}
    of_base = set() if manifest.base_run_id is None else {manifest.base_run_id}
    return {manifest.run_id} | of_base | of_files


def _begun_at(run_id: UUID) -> datetime:
    return datetime.fromtimestamp(ids.time_us_of(run_id.bytes) / 1_000_000, UTC)
