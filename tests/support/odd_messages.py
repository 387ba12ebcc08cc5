"""Messages with whatever the store takes in each of their columns, by a seed."""

from __future__ import annotations

import random
import string
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from uuid import UUID

from msgdb.log.partitions import ensure_for
from msgdb.log.queues import ensure_queues
from msgdb.postgres.connections import Connection

_INT8 = (1 << 63) - 1
_TEXTS = ("", "'", '"', "\\", "a,b\n\tc\r", "𐍈🎉", "ÄÖÜß", "NULL", "\x01\x7f", "e\u0301", "\u2028", " ")
_HEADERS = (
    None, "{}", "[]", "null", '"text"', "1e400", "-0.0", "true", '{"a": {"b": [1, null, "\\u0001"]}}', '{"": "🎉"}',
)  # fmt: skip
_EVERY_BYTE = bytes(range(256))
_INSERT = """
INSERT INTO message (queue_id, queue_offset, stored_at, message_id, namespace, topic, event_code, key, ordering_key,
                     headers, body, born_at, born_host, publisher_group, stress, target_group, redrives)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s::jsonb, %s, %s, %s, %s, %s, %s, %s)
"""


async def put_odd_messages(conn: Connection, day: date, seed: int, *, topics: Sequence[str], count: int) -> None:
    """Store *count* messages in each of two queues for every one of *topics*, which are `namespace/topic`."""
    chance = random.Random(seed)
    await ensure_for(conn, day)
    rows = []
    for topic_id, name in enumerate(topics, 1):
        namespace, _, topic = name.partition("/")
        for queue in await ensure_queues(conn, topic_id, 1, 2):
            first, at = chance.choice((0, 1_000, 1 << 40)), datetime(day.year, day.month, day.day, tzinfo=UTC)
            for offset in range(first, first + count):
                at += timedelta(microseconds=chance.randrange(1_000_000))
                rows.append((queue.queue_id, offset, at, *_content(chance, namespace, topic)))
    async with conn.cursor() as cursor:
        await cursor.executemany(_INSERT, rows)


def _content(chance: random.Random, namespace: str, topic: str) -> tuple[object, ...]:
    optional: Callable[[], str | None] = lambda: chance.choice((None, _text(chance)))  # noqa: E731 - seven times below
    return (
        UUID(int=chance.getrandbits(128)),
        namespace,
        topic,
        _text(chance),
        optional(),
        optional(),
        chance.choice(_HEADERS),
        _body(chance),
        datetime(chance.choice((1, 1969, 2026, 9999)), 1, 1, 0, 0, 0, chance.randrange(1_000_000), UTC),
        optional(),
        optional(),
        chance.random() < 0.5,
        chance.choice((None, 0, -1, _INT8, -_INT8 - 1)),
        chance.choice((0, 1, 32_767, -32_768)),
    )


def _text(chance: random.Random) -> str:
    return chance.choice((*_TEXTS, "".join(chance.choices(string.printable, k=chance.randrange(40)))))


def _body(chance: random.Random) -> bytes:
    kind = chance.randrange(12)
    if kind == 0:
        # Where digests begin to take a body's SHA-256 instead.
        return chance.randbytes(65_536 + chance.choice((-1, 0, 1)))
    return (b"", _EVERY_BYTE, chance.randbytes(chance.randrange(2_000)))[kind % 3]
