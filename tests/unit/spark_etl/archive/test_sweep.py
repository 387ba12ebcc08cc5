"""What earlier runs left is removed, and nothing that a reader may go by."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path
from uuid import UUID

import pytest

from msgdb import ids
from spark_etl.archive.sweep import sweep
from spark_etl.files.manifest import ArchiveFile, Extent
from spark_etl.files.places import BatchName, Place, list_batches, list_runs, run_directory, write_manifest
from tests.support.manifests import make_manifest

DAY = date(2026, 11, 17)
WEEK = timedelta(days=7)
OLD_US = 1_700_000_000_000_000


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place.at(str(tmp_path / "archive"))


def old_run(number: int) -> UUID:
    return UUID(bytes=ids.to_bytes(ids.mint_run(OLD_US + number * 1_000_000)))


def begin(place: Place, run_id: UUID) -> str:
    directory = run_directory("message", DAY, run_id)
    place.make_directory(directory)
    return directory


def finish(place: Place, run_id: UUID, files_of: Collection[UUID] = ()) -> None:
    nothing = Extent(None, None)
    files = tuple(
        ArchiveFile(f"{run_directory('message', DAY, each)}/part", 1, "", 0, (), (), nothing, nothing, nothing)
        for each in files_of
    )
    write_manifest(place, replace(make_manifest(DAY), run_id=run_id, files=files), begin(place, run_id))


def test_a_run_that_another_replaced_is_removed_after_the_grace_time(place: Place) -> None:
    first, second, young = old_run(1), old_run(2), UUID(bytes=ids.to_bytes(ids.mint_run()))
    finish(place, first)
    finish(place, second)
    begin(place, young)

    removed = sweep(place, "message", grace=WEEK, in_use=())

    assert removed == [run_directory("message", DAY, first)]
    assert list_runs(place, "message", DAY) == [second, young]
    assert sweep(place, "message", grace=timedelta(), in_use=()) == [run_directory("message", DAY, young)]


def test_a_run_that_died_is_removed_though_the_day_has_no_manifest(place: Place) -> None:
    begin(place, old_run(1))

    assert len(sweep(place, "message", grace=WEEK, in_use=())) == 1


def test_what_the_store_points_to_or_is_running_stays(place: Place) -> None:
    pointed_to, running, current = old_run(1), old_run(2), old_run(3)
    finish(place, pointed_to)
    begin(place, running)
    finish(place, current)

    assert sweep(place, "message", grace=WEEK, in_use={pointed_to, running}) == []


def test_the_runs_whose_files_a_supplement_lists_stay(place: Place) -> None:
    base, replaced, supplement = old_run(1), old_run(2), old_run(3)
    for run_id in (base, replaced):
        finish(place, run_id)
    finish(place, supplement, files_of=[base, supplement])

    assert sweep(place, "message", grace=WEEK, in_use=()) == [run_directory("message", DAY, replaced)]
    assert list_runs(place, "message", DAY) == [base, supplement]


def test_what_a_stream_wrote_of_a_day_goes_once_the_day_is_archived(place: Place) -> None:
    old, young = old_run(1), UUID(bytes=ids.to_bytes(ids.mint_run()))
    batches = [BatchName("0123abcd", number, run_id) for number, run_id in ((1, old), (2, young))]
    for batch in batches:
        place.make_directory(batch.directory("message", DAY))
        write_manifest(place, replace(make_manifest(DAY), run_id=batch.run_id), batch.directory("message", DAY))
    assert sweep(place, "message", grace=WEEK, in_use=()) == []

    finish(place, old_run(2))

    assert sweep(place, "message", grace=WEEK, in_use=()) == [batches[0].directory("message", DAY)]
    assert list_batches(place, "message", DAY) == batches[1:]


def test_a_day_that_cannot_be_read_is_left_alone_and_the_others_are_swept(place: Place) -> None:
    left = begin(place, old_run(1))
    directory = run_directory("message", date(2026, 11, 16), old_run(1))
    place.make_directory(directory)
    Path(place.below(f"{directory}/_manifest.json")).write_text("{")

    assert sweep(place, "message", grace=WEEK, in_use=()) == [left]
    assert list_runs(place, "message", date(2026, 11, 16)) != []


def test_what_is_swept_is_of_one_table(place: Place) -> None:
    begin(place, old_run(1))

    assert sweep(place, "dead_letter", grace=WEEK, in_use=()) == []


def test_the_base_of_a_supplement_stays_though_it_has_no_files(place: Place) -> None:
    empty, supplement = old_run(1), old_run(2)
    finish(place, empty)
    manifest = replace(make_manifest(DAY), run_id=supplement, base_run_id=empty)
    write_manifest(place, manifest, begin(place, supplement))

    # A further run of the day lists what the base lists, and is refused where that has no manifest any more.
    assert sweep(place, "message", grace=WEEK, in_use={supplement}) == []
