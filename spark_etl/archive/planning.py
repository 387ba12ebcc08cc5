"""Which rows go into which file: sorted by topic, queue and offset, and packed by bytes. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from msgdb.archive.sizes import MeasuredRange
from spark_etl.files.digest import PAGE_OFFSETS


class Piece(NamedTuple):
    """A part of one queue's range that is in one file."""

    queue_id: int
    first: int
    end: int
    """The offset behind its last."""


@dataclass(frozen=True, slots=True)
class PartPlan:
    """What one file is to contain, in this order."""

    number: int
    pieces: tuple[Piece, ...]
    rows_about: int
    """How many offsets they have: as many rows, if offsets have no gaps."""


def plan_parts(ranges: Sequence[MeasuredRange], file_bytes: int) -> list[PartPlan]:
    """Pack *ranges*, in their order, into files of about *file_bytes* of rows each.

    A range is cut only between two pages of the digest: so the digest of a queue is put together from its pieces.
    """
    parts: list[PartPlan] = []
    pieces: list[Piece] = []
    room = float(file_bytes)
    for each in ranges:
        for piece in _pieces(each, file_bytes):
            piece_bytes = (piece.end - piece.first) * each.row_bytes
            if pieces and piece_bytes > room:
                parts.append(_part(len(parts), pieces))
                pieces, room = [], float(file_bytes)
            pieces.append(piece)
            room -= piece_bytes
    if pieces:
        parts.append(_part(len(parts), pieces))
    return parts


def _pieces(measured: MeasuredRange, file_bytes: int) -> Iterator[Piece]:
    """Cut a range where a piece of it alone fills a file."""
    pages = max(1, int(file_bytes / (measured.row_bytes * PAGE_OFFSETS)))
    first, end = measured.range.first_offset, measured.range.last_offset + 1
    while first < end:
        cut = min(end, (first // PAGE_OFFSETS + pages) * PAGE_OFFSETS)
        yield Piece(measured.range.queue_id, first, cut)
        first = cut


def _part(number: int, pieces: Sequence[Piece]) -> PartPlan:
    joined: list[Piece] = []
    for piece in pieces:
        if joined and joined[-1].queue_id == piece.queue_id:
            piece = Piece(piece.queue_id, joined.pop().first, piece.end)  # noqa: PLW2901 - grown
        joined.append(piece)
    return PartPlan(number, tuple(joined), sum(piece.end - piece.first for piece in joined))
