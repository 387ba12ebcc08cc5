"""The yardstick: a bare binary COPY loop into the same table with the same indexes, from prepared buffers.

No locks, no tails, no frames, no broker: what PostgreSQL takes on this machine at this moment. Rates of the broker are
given as a ratio to it.
"""

from __future__ import annotations

import asyncio
import time
from typing import Final
from urllib.parse import urlsplit, urlunsplit

from msgdb import ids
from msgdb.append.copy_rows import SIGNATURE, TRAILER, row_head, row_middle, row_prefix
from msgdb.append.sql import COPY_MESSAGES
from msgdb.postgres.connections import Connection
from msgdb.schema import upgrade
from msgdb.store import MessageStore

ROWS_PER_COMMIT: Final = 1_000
_SCRATCH_DATABASE: Final = "msgcenter_bench_copy"
_SCRATCH_QUEUES: Final = (1, 2, 3, 4)


async def measure(url: str, rows: int, body_bytes: int) -> float:
    """Return rows per second into a database of its own on the server of *url*."""
    buffers = _buffers(rows, body_bytes)
    async with MessageStore.open(url) as home:
        async with home.connection() as connection:
            await connection.execute(f"CREATE DATABASE {_SCRATCH_DATABASE}".encode())
        try:
            scratch_url = urlunsplit(urlsplit(url)._replace(path=f"/{_SCRATCH_DATABASE}"))
            await asyncio.to_thread(upgrade, scratch_url)
            async with MessageStore.open(scratch_url) as scratch, scratch.dedicated_connection() as connection:
                started_at = time.perf_counter()
                for buffer in buffers:
                    await _copy(connection, buffer)
                seconds = time.perf_counter() - started_at
        finally:
            async with home.connection() as connection:
                await connection.execute(f"DROP DATABASE {_SCRATCH_DATABASE} WITH (FORCE)".encode())
    return len(buffers) * ROWS_PER_COMMIT / seconds


async def _copy(connection: Connection, buffer: bytes) -> None:
    async with connection.transaction(), connection.cursor() as cursor, cursor.copy(COPY_MESSAGES) as copy:
        await copy.write(buffer)


def _buffers(rows: int, body_bytes: int) -> list[bytes]:
    prefix = row_prefix("default", "TP_BENCH", "EC_BENCH", "127.0.0.1", "")
    body = bytes(body_bytes)
    buffers: list[bytes] = []
    offset = 0
    for _ in range(max(1, rows // ROWS_PER_COMMIT)):
        now_us = time.time_ns() // 1_000
        number = ids.mint_run(now_us)
        parts = [SIGNATURE]
        for place in range(ROWS_PER_COMMIT):
            key = f"order-{offset % 4_096}" if offset % 2 else ""
            queue_id = _SCRATCH_QUEUES[offset % len(_SCRATCH_QUEUES)]
            parts.append(row_head(queue_id, offset, now_us, ids.to_bytes(number + place)))
            parts.append(row_middle(prefix, key, "", b"", born_at_us=now_us, body_bytes=len(body), stress=False))
            parts.append(body)
            offset += 1
        parts.append(TRAILER)
        buffers.append(b"".join(parts))
    return buffers


def run(url: str, rows: int, body_bytes: int) -> float:
    """Return rows per second, from blocking code."""
    return asyncio.run(measure(url, rows, body_bytes))
