"""A digest of rows that PostgreSQL and the reader of a file compute each for itself, and that must be the same.

Rows are digested by pages of 1,024 offsets, in the order of their offsets. A row enters as PostgreSQL's `record_send`
writes it: the number of columns, and of each column its type, its length and its bytes. So the rows of the contract's
SELECT are digested as they are, with every column, and nothing about a row can differ unnoticed. Here the same bytes
are made of Arrow's columns, without an object for a row. A body of more than 64 KiB enters as its SHA-256, so that a
page of large ones is not put together in memory.

The function is CRC-32C where PostgreSQL has it (from 18 on), and SHA-256 before: see docs/decisions.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from itertools import pairwise
from typing import Any, Final, NamedTuple, Protocol

import google_crc32c
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from msgbroker.contract.errors import ArchiveDiffersError

PAGE_OFFSETS: Final = 1_024
LARGE_BODY_BYTES: Final = 65_536
_CRC32C_FROM: Final = 180_000
_POSTGRES_EPOCH_US: Final = 946_684_800_000_000
_NULL_LENGTH: Final = -1

Bytes = np.ndarray[tuple[int, ...], np.dtype[np.uint8]]


class DigestKind(StrEnum):
    """The function that digests a page. Stored in manifests: never renamed."""

    CRC32C = "crc32c"
    SHA256 = "sha256"


class PageDigest(NamedTuple):
    """What became of one page."""

    page: int
    rows: int
    value: bytes


class _Running(Protocol):
    def update(self, data: Any, /) -> None: ...
    def digest(self) -> bytes: ...


_START: Final[dict[DigestKind, Callable[[], _Running]]] = {
    DigestKind.CRC32C: google_crc32c.Checksum,
    DigestKind.SHA256: hashlib.sha256,
}

# Of PostgreSQL's types, as `record_send` names them.
_OIDS: Final[dict[pa.DataType, int]] = {
    pa.bool_(): 16,
    pa.binary(): 17,
    pa.int64(): 20,
    pa.int16(): 21,
    pa.int32(): 23,
    pa.string(): 25,
    pa.timestamp("us", tz="UTC"): 1184,
}


def kind_for(server_version: int) -> DigestKind:
    """Return the function that a server of this version (`server_version_num`) can compute."""
    return DigestKind.CRC32C if server_version >= _CRC32C_FROM else DigestKind.SHA256


def page_digests_sql(kind: DigestKind, rows: str, offset_column: str, columns: Sequence[str]) -> str:
    """Return the statement that digests the pages of a range, one row a page: page, rows, digest.

    *rows* is a SELECT of the range with the columns named; `{{first}}` and `{{end}}` are for the range. By page and
    lateral, so that each is a range of the primary key: grouped by page, PostgreSQL would sort all of it on disk.
    """
    digested = ", ".join(_DIGESTED.get(column, column) for column in columns)
    value = f"{kind}(string_agg(record_send(r), ''::bytea))"
    of_bytes = f"int4send(({value})::bit(32)::integer)" if kind is DigestKind.CRC32C else value
    return f"""
SELECT p AS page, d.rows, d.value
FROM generate_series({{first}}::bigint / {PAGE_OFFSETS}, ({{end}}::bigint - 1) / {PAGE_OFFSETS}) AS p
CROSS JOIN LATERAL (
    SELECT count(*) AS rows, {of_bytes} AS value
    FROM (
        SELECT {digested} FROM ({rows}) AS s
        WHERE s.{offset_column} >= greatest(p * {PAGE_OFFSETS}, {{first}})
          AND s.{offset_column} < least((p + 1) * {PAGE_OFFSETS}, {{end}})
        ORDER BY s.{offset_column}
    ) AS r
) AS d
WHERE d.rows > 0
ORDER BY p
"""


_DIGESTED: Final = {
    "body": f"CASE WHEN octet_length(body) > {LARGE_BODY_BYTES} THEN sha256(body) ELSE body END AS body"
}


def combine(kind: DigestKind, pages: Sequence[PageDigest]) -> str:
    """Return the digest of a queue, of those of its pages in their order."""
    whole = hashlib.sha256()
    for page in pages:
        whole.update(struct.pack(">qq", page.page, page.rows) + page.value)
    return f"{kind}:{whole.hexdigest()}"


class PageDigests:
    """Digests the rows of one queue as they are read, in the order of their offsets."""

    def __init__(self, kind: DigestKind, offset_column: str, *, dense: bool) -> None:
        """Begin with nothing; *dense* offsets have no gaps."""
        self._start = _START[kind]
        self._offset_column = offset_column
        self._dense = dense
        self._last: int | None = None
        self._page: int | None = None
        self._rows = 0
        self._running = self._start()
        self._pages: list[PageDigest] = []

    def add(self, batch: pa.RecordBatch) -> None:
        """Digest what comes next. Raises ArchiveDiffersError where it is not what comes next."""
        if batch.num_rows == 0:
            return
        offsets = batch.column(self._offset_column).to_numpy()
        self._check_order(offsets)
        rows = _rows_as_sent(batch)
        ends = np.frombuffer(rows.buffers()[1], np.int32, len(rows) + 1)
        # An array of numpy, as CRC-32C takes no view of memory, and would have each page copied.
        data = np.frombuffer(rows.buffers()[2], np.uint8)
        pages = offsets // PAGE_OFFSETS
        for first, end in _runs(pages):
            self._turn_to(int(pages[first]))
            self._running.update(data[ends[first] : ends[end]])
            self._rows += end - first

    def finish(self) -> list[PageDigest]:
        """Return the digests of all pages."""
        self._turn_to(None)
        return self._pages

    def _turn_to(self, page: int | None) -> None:
        if page == self._page:
            return
        if self._page is not None:
            self._pages.append(PageDigest(self._page, self._rows, self._running.digest()))
        self._page, self._rows, self._running = page, 0, self._start()

    def _check_order(self, offsets: np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> None:
        steps = np.diff(offsets, prepend=offsets[0] - 1 if self._last is None else self._last)
        if (steps < 1).any() or (self._dense and (steps != 1).any()):
            at = int(np.argmax((steps < 1) | (self._dense & (steps != 1))))
            raise ArchiveDiffersError(f"offset {offsets[at]} follows {offsets[at] - steps[at]}")
        self._last = int(offsets[-1])


def _runs(pages: np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> Iterator[tuple[int, int]]:
    """Return where each run of equal pages begins and ends."""
    bounds = [0, *(np.flatnonzero(np.diff(pages)) + 1).tolist(), len(pages)]
    yield from pairwise(bounds)


def _rows_as_sent(batch: pa.RecordBatch) -> pa.Array:
    """Return each row as PostgreSQL's `record_send` writes it."""
    count = np.frombuffer(struct.pack(">i", batch.num_columns), np.uint8)
    # What is equally long in all rows is put side by side first: fewer pieces to be joined.
    pieces: list[pa.Array] = []
    fixed: list[Bytes] = [np.broadcast_to(count, (batch.num_rows, len(count)))]
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        for piece in _as_sent(_without_large(column) if name == "body" else column):
            if isinstance(piece, np.ndarray):
                fixed.append(piece)
                continue
            if fixed:
                pieces.append(_fixed_width(np.concatenate(fixed, axis=1)))
                fixed = []
            pieces.append(piece)
    if fixed:
        pieces.append(_fixed_width(np.concatenate(fixed, axis=1)))
    return pieces[0] if len(pieces) == 1 else pc.binary_join_element_wise(*pieces, b"")


def _as_sent(column: pa.Array) -> list[Bytes | pa.Array]:
    """Return type, length and bytes of each value: as matrices what is equally long in all rows, the rest apart."""
    kind = column.type
    oid = struct.pack(">i", _OIDS[kind])
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        lengths = pc.fill_null(pc.binary_length(column), _NULL_LENGTH).to_numpy(zero_copy_only=False)
        head = _with_head(oid, lengths.astype(">i4"))
        if (lengths == lengths[0]).all():
            return [head, _equally_long(column, max(0, int(lengths[0])))]
        return [head, pc.fill_null(column.cast(pa.binary()), b"")]
    values = _big_endian(column)
    head = np.broadcast_to(np.frombuffer(oid + struct.pack(">i", values.itemsize), np.uint8), (len(column), 8))
    present = [head, values.view(np.uint8).reshape(len(column), values.itemsize)]
    if column.null_count == 0:
        return [*present]
    absent = pa.scalar(oid + struct.pack(">i", _NULL_LENGTH), pa.binary())
    return [pc.if_else(column.is_valid(), _fixed_width(np.concatenate(present, axis=1)), absent)]


def _equally_long(column: pa.Array, width: int) -> Bytes:
    """Return texts or bytes of the same length as a matrix, where they lie."""
    if width == 0:
        return np.empty((len(column), 0), np.uint8)
    _, offsets, data = column.buffers()
    (first,) = np.frombuffer(offsets, np.int32, 1, column.offset * np.dtype(np.int32).itemsize)
    return np.frombuffer(data, np.uint8, len(column) * width, int(first)).reshape(len(column), width)


def _with_head(oid: bytes, lengths: np.ndarray[tuple[int, ...], Any]) -> Bytes:
    head = np.empty((len(lengths), 8), np.uint8)
    head[:, :4] = np.frombuffer(oid, np.uint8)
    head[:, 4:] = lengths.view(np.uint8).reshape(len(lengths), 4)
    return head


def _big_endian(column: pa.Array) -> np.ndarray[tuple[int, ...], Any]:
    kind = column.type
    if pa.types.is_boolean(kind):
        column = pc.fill_null(column, False).cast(pa.uint8())  # noqa: FBT003 - the value
    integers = column.cast(pa.int64()) if pa.types.is_timestamp(kind) else column
    values: np.ndarray[tuple[int, ...], Any] = pc.fill_null(integers, 0).to_numpy(zero_copy_only=False)
    if pa.types.is_timestamp(kind):
        values = values - _POSTGRES_EPOCH_US
    return values.astype(values.dtype.newbyteorder(">"))


def _fixed_width(matrix: Bytes) -> pa.Array:
    """Return the rows of a matrix of bytes as values of their own."""
    count, width = matrix.shape
    ends = np.arange(count + 1, dtype=np.int32) * width
    return pa.Array.from_buffers(
        pa.binary(), count, [None, pa.py_buffer(ends), pa.py_buffer(np.ascontiguousarray(matrix))]
    )


def _without_large(bodies: pa.Array) -> pa.Array:
    large = pc.greater(pc.binary_length(bodies), LARGE_BODY_BYTES)
    if not pc.any(large).as_py():
        return bodies
    values = [hashlib.sha256(body.as_buffer()).digest() for body in bodies.filter(large)]
    return pc.replace_with_mask(bodies, pc.fill_null(large, False), pa.array(values, pa.binary()))  # noqa: FBT003 - the value
