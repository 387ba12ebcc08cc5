"""Which rows go into which file: sorted by topic, queue and offset, and packed by bytes. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from msgdb.archive.sizes import MeasuredRange
from spark_etl.files.digest import PAGE_OFFSETS

_CRUMB: Final = 1 / 16
"""A queue is not cut for the sake of less room in a file than this part of it."""


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
        first, end = each.range.first_offset, each.range.last_offset + 1
        while first < end:
            piece = _piece(each, first, room if pieces else float(file_bytes))
            if pieces and (piece is None or _is_crumb(piece, end, room, file_bytes)):
                parts.append(_part(len(parts), pieces))
                pieces, room = [], float(file_bytes)
                continue
            # A file of its own takes one page at least, however large that is.
            piece = piece or _page_of(each, first)
            pieces.append(piece)
            room -= (piece.end - piece.first) * each.row_bytes
            first = piece.end
    if pieces:
        parts.append(_part(len(parts), pieces))
    return parts


def _piece(measured: MeasuredRange, first: int, room: float) -> Piece | None:
    """Return what of a range fits into *room* from *first* on: to its end, or to the last page that does."""
    end = measured.range.last_offset + 1
    fitting = first + int(room / measured.row_bytes)
    if fitting < end:
        end = fitting // PAGE_OFFSETS * PAGE_OFFSETS
    return Piece(measured.range.queue_id, first, end) if end > first else None


def _page_of(measured: MeasuredRange, first: int) -> Piece:
    end = min(measured.range.last_offset + 1, (first // PAGE_OFFSETS + 1) * PAGE_OFFSETS)
    return Piece(measured.range.queue_id, first, end)


def _is_crumb(piece: Piece, end: int, room: float, file_bytes: int) -> bool:
    """Whether so little of a queue would fill a file up that its rows are better left together."""
    return piece.end < end and room < file_bytes * _CRUMB


def _part(number: int, pieces: Sequence[Piece]) -> PartPlan:
    joined: list[Piece] = []
    for piece in pieces:
        if joined and joined[-1].queue_id == piece.queue_id:
            piece = Piece(piece.queue_id, joined.pop().first, piece.end)  # noqa: PLW2901 - grown
        joined.append(piece)
    return PartPlan(number, tuple(joined), sum(piece.end - piece.first for piece in joined))
