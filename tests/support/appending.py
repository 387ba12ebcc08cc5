"""Frames and appenders for the tests of appending, without a broker around them."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import date

from msgdb.append.appender import AppendConfig, Appender
from msgdb.append.copy_rows import row_middle, row_prefix
from msgdb.append.outcome import Refused
from msgdb.append.plan import AppendFrame, Buffer, Stored
from msgdb.log.partitions import ensure_for
from msgdb.log.reads import MessageRow, read_range
from msgdb.postgres.connections import BlockingConnection, Connection
from msgdb.store import MessageStore

BORN_AT_US = 1_700_000_000_000_000
REFUSED = ("BODY_TOO_LARGE", "INVALID_ARGUMENT", "too large", {"body_bytes_max": "8192"})


@dataclass(slots=True)
class Outgoing:
    """A message as the committer would hand it to the appender."""

    queue_id: int
    row_middle: bytes
    body: Buffer
    queue_offset: int = -1


def message(queue_id: int, body: str = "hello", *, event_code: str = "EC_PAID") -> Outgoing:
    """Return a message for that queue."""
    prefix = row_prefix("default", "TP_TRADE", event_code, "host", "PG_SHOP")
    encoded = body.encode()
    middle = row_middle(
        prefix, "key", "", b'{"region":"hz"}', born_at_us=BORN_AT_US, body_bytes=len(encoded), stress=False
    )
    return Outgoing(queue_id, middle, encoded)


def frame(
    publisher_id: bytes, sequence: int, messages: Sequence[Outgoing], refused_indexes: Sequence[int] = ()
) -> AppendFrame:
    """Return a frame of *messages*; those at *refused_indexes* of the whole were refused by the edge."""
    refusals = tuple(Refused(index, *REFUSED) for index in refused_indexes)
    return AppendFrame(publisher_id, sequence, list(messages), refusals)


def new_publisher() -> bytes:
    """Return the id of a publisher that has sent nothing yet."""
    return secrets.token_bytes(16)


def places(result: object) -> list[tuple[int, int]]:
    """Return (queue, offset) of each message of a stored frame."""
    assert isinstance(result, Stored), result
    return list(zip(result.outcome.queue_ids, result.outcome.queue_offsets, strict=True))


async def bodies(conn: Connection, queue_id: int) -> list[str]:
    """Return the bodies of a queue in the order of their offsets, which must be gapless from 0."""
    rows = await rows_of(conn, queue_id)
    assert [row.queue_offset for row in rows] == list(range(len(rows)))
    return [row.body.decode() for row in rows]


async def rows_of(conn: Connection, queue_id: int) -> list[MessageRow]:
    """Return all rows of a queue."""
    return await read_range(conn, queue_id, 0, 100_000, 1 << 30)


@asynccontextmanager
async def open_appender(
    store: MessageStore,
    config: AppendConfig | None = None,
    connect: Callable[[], BlockingConnection] | None = None,
) -> AsyncIterator[Appender]:
    """Open an appender as a broker has it."""

    async def ensure_partitions(days: Collection[date]) -> None:
        async with store.connection() as conn:
            for day in days:
                await ensure_for(conn, day)

    appender = Appender(connect or store.connect_blocking, ensure_partitions, config=config)
    try:
        yield appender
    finally:
        await appender.close()
