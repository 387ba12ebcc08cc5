"""Rows that are packed by hand are taken by PostgreSQL, and read back as they were."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from msgdb.append.copy_rows import SIGNATURE, TRAILER, row_head, row_middle, row_prefix
from msgdb.append.sql import COPY_MESSAGES
from msgdb.log.partitions import ensure_for
from msgdb.log.reads import read_range
from msgdb.postgres.connections import Connection

_STORED_AT_US = 1_700_000_000_123_456


@pytest.mark.parametrize("text", ["", "plain", "文字 ☂ 𝄞", "quote ' \" \\ \n\t", "x" * 128], ids=ascii)
@pytest.mark.parametrize("body", [b"", b"\0\xff" * 4_096], ids=["no body", "any bytes"])
async def test_a_row_reads_as_it_was_written(conn: Connection, text: str, body: bytes) -> None:
    await ensure_for(conn, datetime.fromtimestamp(_STORED_AT_US / 1_000_000, UTC).date())
    headers = b'{"header":"\\u6587 \xe6\x96\x87"}' if text else b""
    prefix = row_prefix("default", "TP_TRADE", "EC_PAID", text, text)
    row = row_middle(prefix, text, text, headers, born_at_us=_STORED_AT_US + 1, body_bytes=len(body), stress=bool(text))
    row += body
    async with conn.cursor() as cursor, cursor.copy(COPY_MESSAGES) as copy:
        await copy.write(b"".join((SIGNATURE, row_head(7, 3, _STORED_AT_US, b"i" * 16), row, TRAILER)))

    (read,) = await read_range(conn, 7, 0, 10, 1 << 20)
    assert (read.queue_id, read.queue_offset, read.stored_at_us, read.message_id) == (7, 3, _STORED_AT_US, b"i" * 16)
    assert (read.topic, read.event_code, read.born_at_us) == ("TP_TRADE", "EC_PAID", _STORED_AT_US + 1)
    assert (read.key, read.ordering_key) == (text or None, text or None)
    assert (read.born_host, read.publisher_group, read.stress) == (text or None, text or None, bool(text))
    assert (read.body, read.headers) == (body, {"header": "文 文"} if text else None)
