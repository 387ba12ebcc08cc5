"""Verifying an archived day: its files are there, as they were written, with the rows that their digests name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import partial
from itertools import pairwise

from pyspark.sql import SparkSession

from msgbroker.contract.errors import ArchiveDiffersError, DayNotFoundError
from msgdb import names
from spark_etl.archive.parts import PieceDigest, digests_of_file
from spark_etl.archive.planning import Piece
from spark_etl.archive.task_errors import task_errors
from spark_etl.files.digest import DigestKind, PageDigest, combine
from spark_etl.files.manifest import ArchiveFile, Manifest, QueueDigest
from spark_etl.files.parquet import checksum
from spark_etl.files.places import Place, find_manifest, place_errors


@dataclass(frozen=True, slots=True)
class _FileInputs:
    place_url: str = field(repr=False)
    table: str


def verify(spark: SparkSession, place_url: str, day: date, *, table: str = names.MESSAGE) -> Manifest:
    """Read a day's files again and return its manifest, if they are what it says.

    Raises:
        DayNotFoundError: The day is not archived here.
        ArchiveDiffersError: A file is missing or was changed, or its rows are not those that were archived.
    """
    place = Place.at(place_url)
    manifest = find_manifest(place, table, day)
    if manifest is None:
        raise DayNotFoundError(table, str(day), place.shown)
    if manifest.files:
        files = [(_kind_of(manifest, file), file) for file in manifest.files]
        check = partial(_check_file, _FileInputs(place.url, table))
        with task_errors():
            found = spark.sparkContext.parallelize(files, len(files)).map(check).collect()
        _compare(manifest, [each for digests in found for each in digests])
    return manifest


def _kind_of(manifest: Manifest, file: ArchiveFile) -> DigestKind:
    """Return by which function a file was digested: the base of a supplement may be of an older PostgreSQL."""
    found = file.ranges[0]
    for each in manifest.digests:
        if each.queue_id == found.queue_id and each.first_offset <= found.first_offset <= each.last_offset:
            return _kind(each)
    raise ArchiveDiffersError(f"{file.path} has rows of queue {found.queue_id} that were not archived")


def _kind(digest: QueueDigest) -> DigestKind:
    return DigestKind(digest.digest.partition(":")[0])


def _check_file(inputs: _FileInputs, digested: tuple[DigestKind, ArchiveFile]) -> list[PieceDigest]:
    place = Place.at(inputs.place_url)
    kind, file = digested
    with place_errors(place):
        try:
            found = checksum(place, file.path)
        except FileNotFoundError:
            raise ArchiveDiffersError(f"{file.path} is missing") from None
    if found != (file.bytes, file.sha256):
        raise ArchiveDiffersError(f"{file.path} was changed since it was written")
    pieces = [Piece(each.queue_id, each.first_offset, each.last_offset + 1) for each in file.ranges]
    digests = digests_of_file(place, file.path, inputs.table, kind, pieces)
    return [PieceDigest(piece, tuple(pages)) for piece, pages in zip(pieces, digests, strict=True)]


def _compare(manifest: Manifest, found: Sequence[PieceDigest]) -> None:
    """Hold the digests of files against those of the queues, which files may have cut between two pages."""
    for wanted in manifest.digests:
        own = [
            each
            for each in found
            if each.piece.queue_id == wanted.queue_id and wanted.first_offset <= each.piece.first <= wanted.last_offset
        ]
        own.sort(key=lambda each: each.piece.first)
        pages: list[PageDigest] = [page for each in own for page in each.pages]
        if any(page.page >= following.page for page, following in pairwise(pages)):
            raise ArchiveDiffersError(f"queue {wanted.queue_id} has rows twice")
        if combine(_kind(wanted), pages) != wanted.digest:
            raise ArchiveDiffersError(f"queue {wanted.queue_id} does not have the rows that were archived")
