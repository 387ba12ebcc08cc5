"""Where archives lie: which run a day is read by, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from pathlib import Path
from uuid import UUID

import pytest

from msgbroker.contract.errors import ArchiveDiffersError, ArchivePlaceError, ManifestUnreadableError
from spark_etl.files.manifest import ArchiveFile, Extent
from spark_etl.files.places import (
    BatchName,
    Place,
    check_store,
    check_there,
    find_manifest,
    list_batches,
    list_days,
    list_live_manifests,
    list_runs,
    run_directory,
    write_manifest,
)
from tests.support.manifests import make_manifest

DAY = date(2026, 11, 17)
FIRST, SECOND, THIRD = (UUID(int=number) for number in (1, 2, 3))


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place.at(str(tmp_path / "archive"))


def write(place: Place, run_id: UUID, day: date = DAY) -> str:
    directory = run_directory("message", day, run_id)
    place.make_directory(directory)
    return write_manifest(place, replace(make_manifest(day), run_id=run_id), directory)


def test_a_day_is_read_by_its_newest_run_that_came_to_its_end(place: Place) -> None:
    write(place, FIRST)
    write(place, SECOND)
    place.make_directory(run_directory("message", DAY, THIRD))

    found = find_manifest(place, "message", DAY)

    assert found is not None
    assert found.run_id == SECOND
    assert list_runs(place, "message", DAY) == [FIRST, SECOND, THIRD]


def test_a_day_without_a_manifest_is_not_there(place: Place) -> None:
    place.make_directory(run_directory("message", DAY, FIRST))

    assert find_manifest(place, "message", DAY) is None
    assert find_manifest(place, "message", date(2026, 11, 18)) is None


def test_a_manifest_that_is_not_whole_is_none(place: Place) -> None:
    path = Path(place.below(write(place, FIRST)))
    path.rename(path.with_name("_manifest.json.unfinished"))

    assert find_manifest(place, "message", DAY) is None


def test_a_damaged_manifest_is_not_passed_over(place: Place) -> None:
    write(place, FIRST)
    Path(place.below(write(place, SECOND))).write_text("{")

    with pytest.raises(ManifestUnreadableError):
        find_manifest(place, "message", DAY)


def test_an_open_day_is_read_by_the_newest_try_at_each_of_its_batches(place: Place) -> None:
    tries = [
        BatchName("0123abcd", number, run_id) for number, run_id in ((1, FIRST), (1, SECOND), (2, FIRST), (10, THIRD))
    ]
    for name in tries:
        directory = name.directory("message", DAY)
        place.make_directory(directory)
        if name.number != 2:
            write_manifest(place, replace(make_manifest(DAY), run_id=name.run_id), directory)

    assert list_batches(place, "message", DAY) == tries
    assert [each.run_id for each in list_live_manifests(place, "message", DAY)] == [SECOND, THIRD]
    assert find_manifest(place, "message", DAY) is None


def test_days_are_listed_in_order_and_what_is_none_is_left_out(place: Place) -> None:
    for day in (date(2026, 11, 18), DAY, date(2025, 1, 1)):
        write(place, FIRST, day)
    place.make_directory("message/day=soon")
    place.make_directory("message/other")

    assert list_days(place, "message") == [date(2025, 1, 1), DAY, date(2026, 11, 18)]
    assert list_days(place, "dead_letter") == []


@pytest.mark.parametrize(
    "url, problem",
    [
        ("ftp://host/archive", "no archive at 'ftp://host/archive': Unrecognized filesystem"),
        ("s3:/bucket/archive", "Missing bucket name"),
        ("s3:bucket", "Missing bucket name"),
        ("s3://", "it names a file system, and no place in it"),
    ],
)
def test_what_names_no_place_is_refused(url: str, problem: str) -> None:
    with pytest.raises(ArchivePlaceError, match=problem):
        Place.at(url)


@pytest.mark.parametrize("path", ["hdfs", "archive of 12:30", "a:b/archive"])
def test_what_has_no_scheme_is_a_directory(path: str) -> None:
    assert Place.at(path).path == str(Path(path).absolute())


def test_a_place_is_the_same_one_in_whatever_directory_a_process_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    named = Place.at("archive").url
    (tmp_path / "elsewhere").mkdir()

    monkeypatch.chdir(tmp_path / "elsewhere")

    assert Place.at(named).path == str(tmp_path / "archive")


def test_a_file_url_is_no_path_of_that_name(tmp_path: Path) -> None:
    assert Place.at(f"file:{tmp_path}").path == Place.at(f"file://{tmp_path}").path == str(tmp_path)


def test_a_file_that_is_not_there_as_it_was_written_is_found(place: Place) -> None:
    nothing = Extent(None, None)
    place.make_directory("message")
    Path(place.below("message/whole")).write_bytes(b"12345")
    Path(place.below("message/short")).write_bytes(b"1234")
    whole, short, missing = (
        ArchiveFile(f"message/{name}", 5, "", 0, (), (), nothing, nothing, nothing)
        for name in ("whole", "short", "missing")
    )

    check_there(place, [whole])

    for file in (short, missing):
        with pytest.raises(ArchiveDiffersError, match=f"{file.path} is not there as it was written"):
            check_there(place, [whole, file])


def test_whatever_a_place_refuses_is_told_with_its_name(place: Place) -> None:
    place.make_directory("message")
    Path(place.below("message/day=2026-11-17")).write_text("")

    with pytest.raises(ArchivePlaceError, match="archive"):
        list_runs(place, "message", DAY)
    with pytest.raises(ArchivePlaceError, match="archive"):
        write_manifest(place, make_manifest(DAY), "message/day=2026-11-17")
    with pytest.raises(ArchivePlaceError, match="archive"):
        place.read("message")
    with pytest.raises(ArchivePlaceError, match="archive"):
        place.remove_directory("message/day=2026-11-17")


def test_no_key_of_a_place_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    place = Place.at("s3://AKIA:hush@bucket/archive/?region=eu-central-1&endpoint_override=127.0.0.1:1&scheme=http")

    assert place.shown == "s3://bucket/archive"
    assert place.url_of("message/part.parquet") == "s3://bucket/archive/message/part.parquet"
    assert place.below("message/part.parquet") == "bucket/archive/message/part.parquet"
    with pytest.raises(ArchivePlaceError) as raised:
        Place.at("s3://AKIA:hush@bucket/archive?no_such_setting=1")
    assert "hush" not in str(raised.value)


def test_a_directory_that_cannot_be_made_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    place = Place.at(str(tmp_path / "file"))

    with pytest.raises(ArchivePlaceError, match="file"):
        place.make_directory("message")


@pytest.mark.parametrize(
    "name",
    [
        "day=2026-02-30",
        "day=2026-13-01",
        "day=\u0662\u0660\u0662\u0666-11-17",
        "day=2026-11-17/run=" + 36 * "-",
        "day=2026-11-17/run=" + 36 * "a",
        "day=2026-11-17/live=9c2e41d7-00000012-" + 36 * "a",
    ],
)
def test_a_directory_with_an_odd_name_keeps_no_day_from_being_read(place: Place, name: str) -> None:
    place.make_directory(f"message/{name}")

    for day in list_days(place, "message"):
        assert find_manifest(place, "message", day) is None
        assert list_live_manifests(place, "message", day) == []


def test_a_place_is_that_of_the_store_that_came_first(place: Place) -> None:
    check_store(place, FIRST)
    check_store(place, FIRST)

    with pytest.raises(ArchivePlaceError, match="another message store") as raised:
        check_store(place, SECOND)
    assert str(FIRST) in str(raised.value)


@pytest.mark.parametrize("content", ["", "[]", "{}", "{"])
def test_a_place_that_does_not_say_whose_it_is_is_refused(place: Place, content: str) -> None:
    check_store(place, FIRST)
    Path(place.below("_store.json")).write_text(content)

    with pytest.raises(ArchivePlaceError, match="cannot be read"):
        check_store(place, FIRST)
