"""A store with millions of messages over several days, made by PostgreSQL itself."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import date, timedelta
from pathlib import Path
from typing import Final

import psycopg

import confdb.schema
import msgdb.schema
from confdb.services import ConfigService
from confdb.store import ConfigStore
from msgconsole.operations.stores import Stores
from msgdb.embedded import EmbeddedPostgres
from msgdb.log.partitions import day_bounds, ensure_for, today
from msgdb.log.queues import ensure_queues
from msgdb.store import MessageStore

TOPIC: Final = "TP_TRADE"
QUEUES: Final = 4
KEYS_APART: Final = 3
"""So many messages have the same key."""

# Ids as brokers give them: the first 48 bits are the time. What is random in a row comes from its number, so that the
# bench can name each.
_FILL: Final = """
INSERT INTO message (queue_id, queue_offset, stored_at, message_id, namespace, topic, event_code, key, headers, body,
                     born_at, born_host, publisher_group, stress)
SELECT %(queue_id)s, %(first)s + n, at, (
           lpad(to_hex((extract(epoch FROM at) * 1000)::bigint), 12, '0') || '7'
           || substr(md5(%(queue_id)s::text || '/' || (%(first)s + n)::text), 1, 3) || '8'
           || substr(md5(%(queue_id)s::text || '/' || (%(first)s + n)::text), 4, 15)
       )::uuid, 'default', %(topic)s, 'EC_' || n %% 10,
       'order-' || (%(first)s + n) / %(keys_apart)s || '-' || %(queue_id)s,
       jsonb_build_object('region', CASE WHEN n %% 100000 = 99999 THEN 'rare' ELSE 'hz' END, 'amount', n::text),
       convert_to(rpad(n::text, %(body_bytes)s, md5(n::text)), 'UTF8'), at, '10.0.0.17', 'PG_SHOP', false
FROM generate_series(0, %(count)s - 1) AS n
CROSS JOIN LATERAL (SELECT %(from)s::timestamptz + n * (interval '24 hours' / %(count)s::float8) AS at) AS moment
"""


@asynccontextmanager
async def filled(directory: Path, messages: int, days: int, body_bytes: int) -> AsyncIterator[tuple[Stores, str]]:
    """Give both databases and the URL of a PostgreSQL that has so many messages, while the block lasts."""
    with EmbeddedPostgres(directory / "postgres") as postgres:
        postgres.create_database("msgcenter")
        url = postgres.url("msgcenter")
        confdb.schema.upgrade(url)
        msgdb.schema.upgrade(url)
        async with ConfigStore.open(url) as config, MessageStore.open(url, pool_size=4) as store:
            topic_id = (await ConfigService(config, "bench").topics.create("default", TOPIC)).thing.topic_id
            await _fill(store, url, topic_id, messages // (days * QUEUES), days, body_bytes)
            yield Stores(config, store), url


async def _fill(store: MessageStore, url: str, topic_id: int, each: int, days: int, body_bytes: int) -> None:
    async with store.connection() as conn:
        queues = await ensure_queues(conn, topic_id, 1, QUEUES)
        last_day = await today(conn)
        for place in range(days):
            await ensure_for(conn, last_day - timedelta(days=days - place))
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET synchronous_commit = off")
        for place in range(days):
            day: date = last_day - timedelta(days=days - place)
            for queue in queues:
                parameters = {
                    "queue_id": queue.queue_id,
                    "first": place * each,
                    "count": each,
                    "from": day_bounds(day)[0],
                    "topic": TOPIC,
                    "keys_apart": KEYS_APART,
                    "body_bytes": body_bytes,
                }
                connection.execute(_FILL, parameters)
        connection.execute("VACUUM (ANALYZE) message")
        connection.execute("CHECKPOINT")
