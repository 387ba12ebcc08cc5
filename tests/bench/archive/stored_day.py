"""A day of messages that is over, stored quickly: blocks of binary COPY rows, over several connections.

What differs from row to row is put in its place by numpy: all rows of a queue are equally long.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from typing import Final

import numpy as np
import psycopg

from msgdb import ids
from msgdb.append.copy_rows import POSTGRES_EPOCH_US, SIGNATURE, TRAILER, row_head, row_middle, row_prefix
from msgdb.append.sql import COPY_MESSAGES
from msgdb.log.partitions import day_bounds, ensure_for
from msgdb.log.queues import ensure_queues
from msgdb.names import MESSAGE, partition_name
from msgdb.store import MessageStore

BODY_BYTES: Final = 1_024
TOPICS: Final = {101: "TP_ORDER", 102: "TP_PAYMENT"}
QUEUES: Final = 16
_CONNECTIONS: Final = 4
_BLOCK_ROWS: Final = 8_192
_DAY_US: Final = 86_400_000_000
_DIGITS: Final = 7
_NUMBERS_APART: Final = 1_000
_KEY: Final = "order-0000000"
_HEADERS: Final = b'{"amount": "0000000", "region": "hz", "channel": "web"}'

# Where a row has what differs, as `row_head` packs it: each value behind its length.
_OFFSET_AT: Final = 18
_STORED_AT: Final = 30
_LOW_ID_AT: Final = 50
_HIGH_ID_AT: Final = 42

Bytes = np.ndarray[tuple[int, int], np.dtype[np.uint8]]


def store_day(url: str, day: date, messages: int) -> list[int]:
    """Store so many messages in 16 queues of two topics, spread over the day; return the queues."""
    queue_topics = asyncio.run(_prepare(url, day))
    each = -(-messages // len(queue_topics))
    with ThreadPoolExecutor(_CONNECTIONS) as pool:
        for stored in [pool.submit(_store_queue, url, day, queue, each) for queue in queue_topics.items()]:
            stored.result()
    # As it is with any day that is over: what it left to write is written, and nobody's row has to be looked up.
    with psycopg.connect(url, autocommit=True) as connection:
        partition = partition_name(MESSAGE, f"{day:%Y%m%d}")
        connection.execute(f"VACUUM (ANALYZE) {partition}".encode())
        connection.execute("CHECKPOINT")
    return [*queue_topics]


async def _prepare(url: str, day: date) -> dict[int, str]:
    async with MessageStore.open(url, pool_size=1) as store, store.connection() as connection:
        await ensure_for(connection, day)
        return {
            queue.queue_id: topic
            for topic_id, topic in TOPICS.items()
            for queue in await ensure_queues(connection, topic_id, 1, QUEUES // len(TOPICS))
        }


def _store_queue(url: str, day: date, queue: tuple[int, str], messages: int) -> None:
    with psycopg.connect(url, autocommit=True) as connection, connection.cursor() as cursor:
        connection.execute("SET synchronous_commit = off")
        with cursor.copy(COPY_MESSAGES) as copy:
            copy.write(SIGNATURE)
            for block in _blocks(day, *queue, messages):
                copy.write(block)
            copy.write(TRAILER)


def _blocks(day: date, queue_id: int, topic: str, messages: int) -> Iterator[bytes]:
    """Give the rows of a queue, in the order of their offsets."""
    midnight_us = int(day_bounds(day)[0].timestamp() * 1_000_000)
    template = _template(queue_id, topic, midnight_us)
    digits_at = [template.index(each) for each in (b"0000000", b'0000000"')]
    random = np.random.default_rng(queue_id)
    for first in range(0, messages, _BLOCK_ROWS):
        count = min(_BLOCK_ROWS, messages - first)
        rows = np.empty((count, len(template)), np.uint8)
        rows[:] = np.frombuffer(template, np.uint8)
        offsets = np.arange(first, first + count)
        stored_us = midnight_us + offsets * (_DAY_US // messages)
        high, low = struct.unpack(">QQ", ids.to_bytes(ids.mint_run(int(stored_us[0]))))
        _put(rows, _OFFSET_AT, offsets)
        _put(rows, _STORED_AT, stored_us - POSTGRES_EPOCH_US)
        _put(rows, _HIGH_ID_AT, np.full(count, high, np.uint64))
        _put(rows, _LOW_ID_AT, np.uint64(low) + np.arange(count, dtype=np.uint64))
        # Of the moment, more or less, as keys mostly are.
        numbers = offsets + random.integers(0, _NUMBERS_APART, count)
        for at in digits_at:
            powers = 10 ** np.arange(_DIGITS - 1, -1, -1)
            rows[:, at : at + _DIGITS] = numbers[:, None] // powers % 10 + ord("0")
        rows[:, -BODY_BYTES:] = np.frombuffer(random.bytes(count * BODY_BYTES), np.uint8).reshape(count, BODY_BYTES)
        yield rows.tobytes()


def _template(queue_id: int, topic: str, midnight_us: int) -> bytes:
    head = row_head(queue_id, 0, midnight_us, bytes(16))
    prefix = row_prefix("default", topic, "EC_STORED", "10.0.0.17", "PG_SHOP")
    middle = row_middle(prefix, _KEY, "", _HEADERS, born_at_us=midnight_us, body_bytes=BODY_BYTES, stress=False)
    return head + middle + bytes(BODY_BYTES)


def _put(rows: Bytes, at: int, values: np.ndarray[tuple[int, ...], np.dtype[np.int64] | np.dtype[np.uint64]]) -> None:
    rows[:, at : at + 8] = values.astype(values.dtype.newbyteorder(">")).view(np.uint8).reshape(-1, 8)
