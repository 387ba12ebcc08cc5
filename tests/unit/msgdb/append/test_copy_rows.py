"""The binary COPY format, read back by its definition in PostgreSQL's manual."""

from __future__ import annotations

import struct

from hypothesis import given
from hypothesis import strategies as st

from msgdb.append.copy_rows import COLUMNS, POSTGRES_EPOCH_US, SIGNATURE, TRAILER, row_head, row_middle, row_prefix

_TEXT = st.text(
    'aZ é文𝄞"\
',
    max_size=20,
)
_TIME_US = st.integers(0, 4_102_444_800_000_000)


def fields_of(row: bytes) -> dict[str, bytes | None]:
    """Return the columns of one row, and check that nothing is left over."""
    (count,) = struct.unpack_from(">h", row)
    at = 2
    values: list[bytes | None] = []
    for _ in range(count):
        (size,) = struct.unpack_from(">i", row, at)
        at += 4
        values.append(None if size < 0 else row[at : at + size])
        at += max(size, 0)
    assert at == len(row)
    return dict(zip(COLUMNS, values, strict=True))


def as_time_us(value: bytes | None) -> int:
    assert value is not None
    (since_2000,) = struct.unpack(">q", value)
    return int(since_2000) + POSTGRES_EPOCH_US


@given(
    head=st.tuples(st.integers(-(2**62), 2**62), st.integers(0, 2**62), _TIME_US, st.binary(min_size=16, max_size=16)),
    prefix=st.tuples(_TEXT, _TEXT, _TEXT, _TEXT, _TEXT),
    keys=st.tuples(_TEXT, _TEXT),
    headers=st.sampled_from([b"", b'{"region":"hz"}']),
    born_at_us=_TIME_US,
    body=st.binary(max_size=100),
    stress=st.booleans(),
)
def test_a_row_has_every_column_in_its_place(
    head: tuple[int, int, int, bytes],
    prefix: tuple[str, str, str, str, str],
    keys: tuple[str, str],
    headers: bytes,
    born_at_us: int,
    body: bytes,
    stress: bool,
) -> None:
    middle = row_middle(row_prefix(*prefix), *keys, headers, born_at_us=born_at_us, body_bytes=len(body), stress=stress)
    row = fields_of(row_head(*head) + middle + body)

    queue_id, queue_offset, stored_at_us, message_id = head
    assert (row["queue_id"], row["queue_offset"]) == (struct.pack(">q", queue_id), struct.pack(">q", queue_offset))
    assert (as_time_us(row["stored_at"]), row["message_id"]) == (stored_at_us, message_id)
    namespace, topic, event_code, born_host, publisher_group = (text.encode() for text in prefix)
    assert (row["namespace"], row["topic"], row["event_code"]) == (namespace, topic, event_code)
    # Not said is NULL.
    assert (row["born_host"], row["publisher_group"]) == (born_host or None, publisher_group or None)
    assert (row["key"], row["ordering_key"]) == (keys[0].encode() or None, keys[1].encode() or None)
    assert row["headers"] == (b"\x01" + headers if headers else None)
    assert (as_time_us(row["born_at"]), row["body"]) == (born_at_us, body)
    assert (row["stress"], row["target_group"], row["redrives"]) == (bytes([stress]), None, b"\0\0")


def test_the_frame_around_the_rows_is_that_of_the_format() -> None:
    assert b"PGCOPY\n\xff\r\n\0" + bytes(8) == SIGNATURE
    assert TRAILER == b"\xff\xff"
