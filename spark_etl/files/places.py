"""Where an archive lies: a directory here, in S3 or in HDFS, by pyarrow's file systems.

    <root>/message/day=2026-11-17/run=0198…/part-00000-5f2c….parquet
    <root>/message/day=2026-11-17/run=0198…/_manifest.json
    <root>/message/day=2026-11-18/live=9c2e41d7-00000012-0198…/part-….parquet, _manifest.json

What is written is there for good once a function here has returned: after it a day may be dropped.
"""

from __future__ import annotations

import json
import os
import re
import secrets
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Final, NamedTuple, Self
from urllib.parse import urlsplit
from uuid import UUID

from pyarrow import fs

from msgbroker.contract.errors import ArchiveDiffersError, ArchivePlaceError
from spark_etl.files.manifest import FILE_NAME, FORMAT, ArchiveFile, Manifest, from_json, to_json

_SCHEMES: Final = ("file:", "s3:", "hdfs:", "viewfs:", "gs:", "gcs:", "abfs:", "abfss:")
"""What begins a URL however it goes on: one with a slash too few is no directory of that name."""
_UUID: Final = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_DAY: Final = re.compile(r"day=([0-9]{4}-[0-9]{2}-[0-9]{2})")
_RUN: Final = re.compile(rf"run=({_UUID})")
_BATCH: Final = re.compile(rf"live=([0-9a-f]{{8}})-([0-9]{{8,}})-({_UUID})")
_STORE_FILE: Final = "_store.json"


@dataclass(frozen=True, slots=True)
class Place:
    """An archive's root. It can be sent to where tasks run."""

    filesystem: fs.FileSystem
    path: str
    url: str = field(repr=False)
    """Names the same place in every process, whatever directory that works in."""

    @classmethod
    def at(cls, url: str) -> Self:
        """Return the place that *url* names: a path, or one of `file:`, `s3:`, `hdfs:`, `gs:`, `abfs:`.

        Raises ArchivePlaceError where it names none.
        """
        try:
            if "://" in url or url.startswith(_SCHEMES):
                filesystem, path = fs.FileSystem.from_uri(url)
            else:
                filesystem, path = fs.LocalFileSystem(), str(Path(url).absolute())
        except (ValueError, OSError) as error:
            raise ArchivePlaceError(_without_keys(url), str(error)) from error
        if not path:
            raise ArchivePlaceError(_without_keys(url), "it names a file system, and no place in it")
        path = path.rstrip("/")
        return cls(filesystem, path, path if isinstance(filesystem, fs.LocalFileSystem) else url.rstrip("/"))

    @property
    def is_local(self) -> bool:
        """Whether it is a directory of this machine, or one that is mounted here."""
        return isinstance(self.filesystem, fs.LocalFileSystem)

    @property
    def has_names(self) -> bool:
        """Whether a file is seen while it is written, and can be renamed then; an object is there once it is whole."""
        return self.filesystem.type_name in {"local", "hdfs"}

    @property
    def shown(self) -> str:
        """The root as people may see it: without the keys and settings that its URL may have."""
        if self.is_local:
            return self.path
        return _without_keys(self.url)

    def below(self, path: str) -> str:
        """Return a file's path in the file system."""
        return f"{self.path}/{path}"

    def url_of(self, path: str) -> str:
        """Return a file's path as other programs find it: on this machine as it is, elsewhere with its scheme."""
        return f"{self.shown}/{path}"

    def make_directory(self, path: str) -> None:
        """Make a directory below the root, and those above it."""
        with place_errors(self):
            self.filesystem.create_dir(self.below(path), recursive=True)

    def settle(self, path: str) -> None:
        """See to it that a file that was closed outlives a power cut; elsewhere than here closing it did."""
        if not self.is_local:
            return
        inner = Path(self.below(path))
        with place_errors(self):
            for each in (inner, inner.parent, *self._directories_above(inner.parent)):
                number = os.open(each, os.O_RDONLY)
                try:
                    os.fsync(number)
                finally:
                    os.close(number)

    @contextmanager
    def settling(self, path: str) -> Iterator[None]:
        """Settle a file while the block lasts: the disk is waited for beside other work."""
        with ThreadPoolExecutor(1, thread_name_prefix="settling") as pool:
            settled = pool.submit(self.settle, path)
            yield
            settled.result()

    def _directories_above(self, directory: Path) -> list[Path]:
        root = Path(self.path)
        return [each for each in directory.parents if each == root or root in each.parents]

    def read(self, path: str) -> bytes | None:
        """Return a file's content; None if there is no such file."""
        with place_errors(self), suppress(FileNotFoundError), self.filesystem.open_input_file(self.below(path)) as file:
            content: bytes = file.read()
            return content
        return None

    def write_whole(self, path: str, text: str) -> None:
        """Write a small file, so that it is there as a whole and for good, or not at all."""
        # A reader that lists the directory at this moment knows nothing of a name like this, nor does another writer.
        unfinished = f"{path}.{secrets.token_hex(4)}.unfinished" if self.has_names else path
        with place_errors(self):
            with self.filesystem.open_output_stream(self.below(unfinished)) as file:
                file.write(text.encode())
            if self.has_names:
                self.settle(unfinished)
                self.filesystem.move(self.below(unfinished), self.below(path))
            self.settle(path)

    def list_directory(self, path: str) -> list[str]:
        """Return the names of what lies directly in a directory, in order; none where there is none."""
        with place_errors(self):
            found = self.filesystem.get_file_info(fs.FileSelector(self.below(path), allow_not_found=True))
        return sorted(info.base_name for info in found)

    def remove_directory(self, path: str) -> None:
        """Remove a directory with all that is in it; that it is gone already is as good."""
        with place_errors(self), suppress(FileNotFoundError):
            self.filesystem.delete_dir(self.below(path))


def _without_keys(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}".rstrip("/")


@contextmanager
def place_errors(place: Place) -> Iterator[None]:
    """Raise ArchivePlaceError for whatever *place* refuses in the block."""
    try:
        yield
    except OSError as error:
        raise ArchivePlaceError(place.shown, str(error)) from error


def check_there(place: Place, files: Iterable[ArchiveFile]) -> None:
    """See that files which tasks have written are where this process sees them. Raises ArchiveDiffersError.

    A task finds what it wrote wherever it runs: on a disk of its own machine, too, that nobody else reads.
    """
    files = list(files)
    with place_errors(place):
        found = place.filesystem.get_file_info([place.below(file.path) for file in files])
    for file, info in zip(files, found, strict=True):
        if info.type is not fs.FileType.File or info.size != file.bytes:
            raise ArchiveDiffersError(
                f"{file.path} is not there as it was written: is {place.shown} one place for all?"
            )


def check_store(place: Place, store_id: UUID) -> None:
    """See that the archive is that of this store, which its first run writes down. Raises ArchivePlaceError.

    Days of two stores beside each other would be taken for runs of one: readers would go by either, and what the other
    store's jobs find left behind they remove.
    """
    if place.read(_STORE_FILE) is None:
        place.make_directory("")
        place.write_whole(_STORE_FILE, json.dumps({"format": FORMAT, "store": str(store_id)}) + "\n")
    try:
        # Also what was written just now: another store may have done the same.
        found = json.loads(place.read(_STORE_FILE) or b"")["store"]
    except (ValueError, KeyError, TypeError) as error:
        raise ArchivePlaceError(place.shown, f"its {_STORE_FILE} cannot be read") from error
    if found != str(store_id):
        raise ArchivePlaceError(
            place.shown, f"it is the archive of another message store ({found}, and not {store_id})"
        )


def day_directory(table: str, day: date) -> str:
    """Return where the runs of a day lie."""
    return f"{table}/day={day.isoformat()}"


def run_directory(table: str, day: date, run_id: UUID) -> str:
    """Return where the files of a run lie."""
    return f"{day_directory(table, day)}/run={run_id}"


class BatchName(NamedTuple):
    """One try at a batch of a stream, as its directory is named."""

    stream: str
    number: int
    run_id: UUID

    def directory(self, table: str, day: date) -> str:
        """Return where the files of the batch that are of this day lie."""
        return f"{day_directory(table, day)}/live={self.stream}-{self.number:08}-{self.run_id}"


def write_manifest(place: Place, manifest: Manifest, directory: str) -> str:
    """Write the manifest of files that are all there; return its path. It is there as a whole, or not at all."""
    path = f"{directory}/{FILE_NAME}"
    place.write_whole(path, to_json(manifest))
    return path


def list_days(place: Place, table: str) -> list[date]:
    """Return the days that have a directory, in order."""
    matches = (_DAY.fullmatch(name) for name in place.list_directory(table))
    days = (_find_day(match[1]) for match in matches if match)
    return [day for day in days if day is not None]


def _find_day(name: str) -> date | None:
    try:
        return date.fromisoformat(name)
    except ValueError:
        # Somebody else has made it.
        return None


def list_runs(place: Place, table: str, day: date) -> list[UUID]:
    """Return the runs of a day that have a directory, whether or not they came to their end, in their order."""
    matches = (_RUN.fullmatch(name) for name in place.list_directory(day_directory(table, day)))
    return [UUID(match[1]) for match in matches if match]


def read_manifest(place: Place, directory: str) -> Manifest | None:
    """Return the manifest of a run or a batch; None where it has none, because it did not come to its end."""
    path = f"{directory}/{FILE_NAME}"
    content = place.read(path)
    return None if content is None else from_json(content, place.below(path))


def find_manifest(place: Place, table: str, day: date) -> Manifest | None:
    """Return the manifest that a closed day is read by: that of the newest run which has one."""
    for run_id in reversed(list_runs(place, table, day)):
        manifest = read_manifest(place, run_directory(table, day, run_id))
        if manifest is not None:
            return manifest
    return None


def list_batches(place: Place, table: str, day: date) -> list[BatchName]:
    """Return the batches that streams have written of a day, in their order; of a batch done again, each try."""
    matches = (_BATCH.fullmatch(name) for name in place.list_directory(day_directory(table, day)))
    return sorted(BatchName(match[1], int(match[2]), UUID(match[3])) for match in matches if match)


def list_live_manifests(place: Place, table: str, day: date) -> list[Manifest]:
    """Return the manifests that an open day is read by: of each batch that of its newest try which has one."""
    found: dict[tuple[str, int], Manifest] = {}
    for batch in list_batches(place, table, day):
        manifest = read_manifest(place, batch.directory(table, day))
        if manifest is not None:
            found[batch.stream, batch.number] = manifest
    return list(found.values())
