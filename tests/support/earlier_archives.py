"""An archived day as an earlier version would have left it: of another PostgreSQL, and with a column less."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from pathlib import Path

import pyarrow.parquet as pq

from spark_etl.archive.parts import digests_of_file
from spark_etl.archive.planning import Piece
from spark_etl.files.digest import DigestKind, combine
from spark_etl.files.manifest import ArchiveFile, QueueDigest, to_json
from spark_etl.files.parquet import checksum
from spark_etl.files.places import Place, find_manifest, run_directory


def make_earlier(place_url: str, day: date, *, without: str, kind: DigestKind) -> None:
    """Take a column from the only file of a day of messages, and digest it by another function."""
    place = Place.at(place_url)
    manifest = find_manifest(place, "message", day)
    assert manifest is not None
    (file,), (digest,) = manifest.files, manifest.digests
    _drop_column(Path(place.below(file.path)), without)
    byte_count, sha256 = checksum(place, file.path)
    earlier = replace(
        manifest,
        columns=tuple(column for column in manifest.columns if column[0] != without),
        files=(replace(file, bytes=byte_count, sha256=sha256),),
        digests=(replace(digest, digest=_digest(place, file, digest, kind)),),
    )
    path = Path(place.below(run_directory("message", day, manifest.run_id)), "_manifest.json")
    path.write_text(to_json(earlier))


def _drop_column(path: Path, name: str) -> None:
    pq.write_table(pq.ParquetFile(path).read().drop_columns([name]), path)


def _digest(place: Place, file: ArchiveFile, digest: QueueDigest, kind: DigestKind) -> str:
    piece = Piece(digest.queue_id, digest.first_offset, digest.last_offset + 1)
    (pages,) = digests_of_file(place, file.path, "message", kind, [piece])
    return combine(kind, pages)
