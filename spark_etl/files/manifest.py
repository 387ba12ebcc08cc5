"""The manifest of a run: which files a day consists of, and what is in each of them.

It is written last, and is all that readers go by: a file that no manifest lists is not part of the archive. A manifest
is always the whole day: that of a supplement lists the files of the runs before it, too. Pure: text in, values out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date, datetime
from typing import Any, Final
from uuid import UUID

from msgbroker.contract.errors import ManifestUnreadableError

FORMAT: Final = "msgcenter-archive"
VERSION: Final = 1
"""Raised when a reader of the former version would read a file wrongly; a column more is none of these."""
FILE_NAME: Final = "_manifest.json"


@dataclass(frozen=True, slots=True)
class FileRange:
    """What a file has of one queue; of dead letters all of it, with queue 0 and ids as offsets."""

    queue_id: int
    first_offset: int
    last_offset: int
    rows: int


@dataclass(frozen=True, slots=True)
class Extent:
    """The smallest and the largest value of a column, as text; both None where there is no value."""

    min: str | None
    max: str | None


@dataclass(frozen=True, slots=True)
class ArchiveFile:
    """One file of the archive, and what is in it."""

    path: str
    """Below the archive's root."""
    bytes: int
    sha256: str
    rows: int
    ranges: tuple[FileRange, ...]
    topics: tuple[str, ...]
    """As `namespace/topic`, in order."""
    message_id: Extent
    key: Extent
    time: Extent
    """Of when messages were stored, or dead letters died."""


@dataclass(frozen=True, slots=True)
class QueueDigest:
    """What a run has of one queue, and the digest that PostgreSQL and the file's reader agreed on."""

    queue_id: int
    first_offset: int
    last_offset: int
    rows: int
    digest: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """A day of a table, as it is archived."""

    table: str
    day: date
    run_id: UUID
    base_run_id: UUID | None
    """Of a supplement: the run whose files are listed, too."""
    system_identifier: str
    """Of the PostgreSQL cluster it was read from."""
    timeline: str
    closed_at: datetime | None
    """When it was known that nothing more comes for the day; None while it is open: then these are the files of one
    batch of a stream."""
    written_at: datetime
    columns: tuple[tuple[str, str], ...]
    """Name and Arrow type of each column of these files; files of a base may have fewer."""
    digests: tuple[QueueDigest, ...]
    files: tuple[ArchiveFile, ...]

    @property
    def rows(self) -> int:
        """How many rows the day has."""
        return sum(file.rows for file in self.files)

    @property
    def bytes(self) -> int:
        """How many bytes its files have."""
        return sum(file.bytes for file in self.files)


def to_json(manifest: Manifest) -> str:
    """Return the manifest as it is stored: indented, for people read it, too."""
    fields = asdict(manifest) | {
        "day": manifest.day.isoformat(),
        "run_id": str(manifest.run_id),
        "base_run_id": None if manifest.base_run_id is None else str(manifest.base_run_id),
        "closed_at": None if manifest.closed_at is None else manifest.closed_at.isoformat(),
        "written_at": manifest.written_at.isoformat(),
        "columns": [{"name": name, "type": kind} for name, kind in manifest.columns],
    }
    totals = {"rows": manifest.rows, "bytes": manifest.bytes, "files": len(manifest.files)}
    return json.dumps({"format": FORMAT, "version": VERSION, "totals": totals} | fields, indent=1) + "\n"


def from_json(text: str | bytes, place: str) -> Manifest:
    """Return the manifest that was found at *place*.

    Raises ManifestUnreadableError where it is none, or of a version that this reader does not know.
    """
    try:
        fields = json.loads(text)
        if fields.get("format") != FORMAT:
            raise ManifestUnreadableError(place, f"it is not of format {FORMAT!r}")
        if fields["version"] != VERSION:
            raise ManifestUnreadableError(place, f"it is of version {fields['version']}, and {VERSION} is read here")
        manifest = _manifest_of(fields)
        totals = (fields["totals"]["rows"], fields["totals"]["files"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ManifestUnreadableError(place, f"{type(error).__name__}: {error}") from error
    if (manifest.rows, len(manifest.files)) != totals:
        raise ManifestUnreadableError(place, "its totals are not those of its files")
    return manifest


def _manifest_of(fields: Mapping[str, Any]) -> Manifest:
    return Manifest(
        table=str(fields["table"]),
        day=date.fromisoformat(fields["day"]),
        run_id=UUID(fields["run_id"]),
        base_run_id=None if fields["base_run_id"] is None else UUID(fields["base_run_id"]),
        system_identifier=str(fields["system_identifier"]),
        timeline=str(fields["timeline"]),
        closed_at=None if fields["closed_at"] is None else datetime.fromisoformat(fields["closed_at"]),
        written_at=datetime.fromisoformat(fields["written_at"]),
        columns=tuple((str(column["name"]), str(column["type"])) for column in fields["columns"]),
        digests=tuple(QueueDigest(**each) for each in fields["digests"]),
        files=tuple(file_of(each) for each in fields["files"]),
    )


def file_of(fields: Mapping[str, Any]) -> ArchiveFile:
    """Return one file's facts, of its fields as they are stored."""
    return ArchiveFile(
        path=str(fields["path"]),
        bytes=int(fields["bytes"]),
        sha256=str(fields["sha256"]),
        rows=int(fields["rows"]),
        ranges=tuple(FileRange(**each) for each in fields["ranges"]),
        topics=_texts(fields["topics"]),
        message_id=Extent(**fields["message_id"]),
        key=Extent(**fields["key"]),
        time=Extent(**fields["time"]),
    )


def _texts(values: Sequence[object]) -> tuple[str, ...]:
    return tuple(str(value) for value in values)
