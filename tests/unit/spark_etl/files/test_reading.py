"""Which files a reader is given: those of manifests, each message once."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from pathlib import Path
from uuid import UUID

import pytest

from msgbroker.contract.errors import ArchiveDiffersError, DayNotFoundError
from spark_etl.files.manifest import ArchiveFile, Extent, FileRange, Manifest
from spark_etl.files.places import BatchName, Place, run_directory, write_manifest
from spark_etl.files.reading import list_files, list_manifests
from tests.support.manifests import make_manifest

FIRST, SECOND = date(2026, 11, 17), date(2026, 11, 18)
NOTHING = Extent(None, None)


def with_file(day: date, directory: str, first: int, last: int) -> Manifest:
    rows = last - first + 1
    ranges = (FileRange(1, first, last, rows),)
    file = ArchiveFile(f"{directory}/part.parquet", 1, "", rows, ranges, (), NOTHING, NOTHING, NOTHING)
    return replace(make_manifest(day), files=(file,))


def archive(place: Place, day: date, run_id: int) -> None:
    directory = run_directory("message", day, UUID(int=run_id))
    place.make_directory(directory)
    write_manifest(place, replace(with_file(day, directory, 0, 9), run_id=UUID(int=run_id)), directory)


def go_on(place: Place, day: date, name: BatchName, first: int, last: int) -> None:
    directory = name.directory("message", day)
    place.make_directory(directory)
    write_manifest(place, with_file(day, directory, first, last), directory)


def batch(number: int, run_id: int = 1, stream: str = "0123abcd") -> BatchName:
    return BatchName(stream, number, UUID(int=run_id))


def names_of(files: list[str]) -> list[str]:
    return [Path(file).parent.name for file in files]


def test_a_file_that_no_manifest_lists_is_not_read(tmp_path: Path) -> None:
    place = Place.at(str(tmp_path))
    archive(place, FIRST, 1)
    directory = tmp_path / run_directory("message", FIRST, UUID(int=1))
    (directory / "part.parquet").write_bytes(b"listed")
    (directory / "part-of-a-task-that-died.parquet").write_bytes(b"")

    assert list_files(str(tmp_path), "message", FIRST) == [str(directory / "part.parquet")]


def test_days_are_chosen_by_their_bounds(tmp_path: Path) -> None:
    place = Place.at(str(tmp_path))
    archive(place, FIRST, 1)
    archive(place, SECOND, 2)
    url = str(tmp_path)

    assert [each.day for each in list_manifests(url, "message")] == [FIRST, SECOND]
    assert [each.day for each in list_manifests(url, "message", "2026-11-18")] == [SECOND]
    assert [each.day for each in list_manifests(url, "message", FIRST, SECOND)] == [FIRST, SECOND]
    with pytest.raises(DayNotFoundError, match=r"2026-11-19 is not archived below"):
        list_files(url, "message", "2026-11-19")


def test_an_open_day_is_its_batches_until_it_is_archived(tmp_path: Path) -> None:
    place, url = Place.at(str(tmp_path)), str(tmp_path)
    go_on(place, FIRST, batch(0), 0, 4)
    go_on(place, FIRST, batch(1, run_id=1), 5, 9)
    go_on(place, FIRST, batch(1, run_id=2), 5, 9)

    assert names_of(list_files(url, "message", FIRST)) == [
        "live=0123abcd-00000000-00000000-0000-0000-0000-000000000001",
        "live=0123abcd-00000001-00000000-0000-0000-0000-000000000002",
    ]
    archive(place, FIRST, 3)
    assert names_of(list_files(url, "message", FIRST)) == ["run=00000000-0000-0000-0000-000000000003"]


def test_what_two_streams_have_written_is_refused(tmp_path: Path) -> None:
    place = Place.at(str(tmp_path))
    go_on(place, FIRST, batch(0), 0, 4)
    go_on(place, FIRST, batch(0, stream="ffffffff"), 4, 9)

    with pytest.raises(ArchiveDiffersError, match="two streams have written offset 4 of queue 1"):
        list_files(str(tmp_path), "message", FIRST)
