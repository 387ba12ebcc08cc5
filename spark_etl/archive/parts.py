"""One file of an archive: what a Spark task does. It reads its rows, writes them, reads them back, and compares.

What a task that failed or was killed has left behind has a name of its own, and is in no manifest.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from msgbroker.contract.errors import ArchiveDiffersError
from spark_etl.archive.planning import PartPlan, Piece
from spark_etl.files.digest import PAGE_OFFSETS, DigestKind, PageDigest, PageDigests, page_digests_sql
from spark_etl.files.manifest import ArchiveFile
from spark_etl.files.parquet import RowNames, read_back, write_file
from spark_etl.files.places import Place
from spark_etl.source.contract import SOURCES, SourceTable
from spark_etl.source.literals import identifier
from spark_etl.source.pages import Connection, connect, read_range


@dataclass(frozen=True, slots=True)
class PartInputs:
    """What all tasks of a run have in common."""

    url: str = field(repr=False)
    """Of the store, or of its replica."""
    place_url: str = field(repr=False)
    directory: str
    """The run's, below the archive's root."""
    table: str
    rows_from: str
    """The table that the day's rows are read from: its partition, or the whole table."""
    conditions: tuple[str, ...]
    """What tells the day's rows from others there."""
    digest_kind: DigestKind


class PieceDigest(NamedTuple):
    """What a piece was found to be, in the store as in the file."""

    piece: Piece
    pages: tuple[PageDigest, ...]


class WrittenPart(NamedTuple):
    """A file that was read back, and found to be what the store has."""

    number: int
    file: ArchiveFile
    digests: tuple[PieceDigest, ...]


def write_part(inputs: PartInputs, plan: PartPlan) -> WrittenPart:
    """Write the file of *plan* and compare it with the store. Raises ArchiveDiffersError where they differ."""
    source = SOURCES[inputs.table]
    place = Place.at(inputs.place_url)
    path = f"{inputs.directory}/part-{plan.number:05}-{secrets.token_hex(6)}.parquet"
    with connect(inputs.url) as connection:
        file = write_file(
            place, path, _rows(connection, source, inputs, plan.pieces), schema=source.schema, names=names_of(source)
        )
        with place.settling(path):
            found = digests_of_file(place, path, inputs.table, inputs.digest_kind, plan.pieces)
            for piece, pages in zip(plan.pieces, found, strict=True):
                _compare(piece, pages, _digests_of_store(connection, source, inputs, piece))
    digests = tuple(PieceDigest(piece, tuple(pages)) for piece, pages in zip(plan.pieces, found, strict=True))
    return WrittenPart(plan.number, file, digests)


def names_of(source: SourceTable) -> RowNames:
    """Return by which columns the rows of an archived table are told apart."""
    assert source.offset_column is not None, "what is archived is read by ranges"
    assert source.day_column is not None, "what is archived has days"
    return RowNames(source.queue_column, source.offset_column, source.day_column)


def _rows(
    connection: Connection, source: SourceTable, inputs: PartInputs, pieces: Sequence[Piece]
) -> Iterator[pa.RecordBatch]:
    for queue_id, first, end in pieces:
        yield from read_range(connection, source, inputs.rows_from, queue_id, first, end, conditions=inputs.conditions)


def digests_of_file(
    place: Place, path: str, table: str, kind: DigestKind, pieces: Sequence[Piece]
) -> list[list[PageDigest]]:
    """Return the digests of each piece of a file, in the order in which the file must have them."""
    names = names_of(SOURCES[table])
    # In a queue offsets have no gaps.
    digests = [PageDigests(kind, names.offset, dense=names.queue is not None) for _ in pieces]
    position = 0
    for batch in read_back(place, path):
        for queue_id, rows in _by_queue(batch, names):
            while position < len(pieces) and pieces[position].queue_id != queue_id:
                position += 1
            if position == len(pieces):
                raise ArchiveDiffersError(f"{path} has rows of queue {queue_id} where none belong")
            digests[position].add(rows)
    return [each.finish() for each in digests]


def _by_queue(batch: pa.RecordBatch, names: RowNames) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Return the runs of rows of one queue."""
    if names.queue is None:
        yield 0, batch
        return
    encoded = pc.run_end_encode(batch.column(names.queue))
    first = 0
    for queue_id, end in zip(encoded.values.to_pylist(), encoded.run_ends.to_pylist(), strict=True):
        yield queue_id, batch.slice(first, end - first)
        first = end


def _digests_of_store(
    connection: Connection, source: SourceTable, inputs: PartInputs, piece: Piece
) -> list[PageDigest]:
    names = names_of(source)
    of_queue = () if names.queue is None else (f"t.{names.queue} = {piece.queue_id}",)
    select = source.select.format(table=f"{identifier(inputs.rows_from)} AS t")
    rows = " WHERE ".join((select, *filter(None, [" AND ".join((*inputs.conditions, *of_queue))])))
    statement = page_digests_sql(inputs.digest_kind, rows, names.offset, source.schema.names)
    with connection.cursor() as cursor:
        cursor.execute(statement.format(first=piece.first, end=piece.end))
        columns = cursor.fetch_arrow_table().columns
    return [PageDigest(*row) for row in zip(*(column.to_pylist() for column in columns), strict=True)]


def _compare(piece: Piece, found: Sequence[PageDigest], wanted: Sequence[PageDigest]) -> None:
    if list(found) == list(wanted):
        return
    differing = next((page for page, other in zip(found, wanted, strict=False) if page != other), (*found, *wanted)[-1])
    first = max(piece.first, differing.page * PAGE_OFFSETS)
    raise ArchiveDiffersError(
        f"queue {piece.queue_id} from offset {first} on: {sum(page.rows for page in found)} rows were read back,"
        f" the store has {sum(page.rows for page in wanted)}"
    )
