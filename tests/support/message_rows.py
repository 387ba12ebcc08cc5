"""Rows of the table of messages, put there as they are, and read; for tests without an event loop."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime, timedelta

import psycopg

from msgdb.names import partition_name

NOON = datetime.now(UTC).replace(hour=12, minute=0, second=0, microsecond=0)
"""Today at noon: messages of the tests are of today, unless they say otherwise."""

_QUEUE = """
INSERT INTO queue (queue_id, topic_id, generation, ordinal) OVERRIDING SYSTEM VALUE
VALUES (%(queue_id)s, %(queue_id)s, 1, 0) ON CONFLICT DO NOTHING
"""


@dataclass(frozen=True, kw_only=True)
class StoredMessage:
    """A row, with something in each of its columns."""

    queue_id: int = 1
    queue_offset: int
    stored_at: datetime = NOON
    message_id: uuid.UUID = field(default_factory=uuid.uuid4)
    namespace: str = "default"
    topic: str = "TP_TRADE"
    event_code: str = "EC_PAID"
    key: str | None = None
    ordering_key: str | None = None
    headers: dict[str, str] | None = None
    body: bytes = b"body"
    born_at: datetime = NOON
    born_host: str | None = None
    publisher_group: str | None = None
    stress: bool = False
    target_group: int | None = None
    redrives: int = 0


COLUMNS = tuple(each.name for each in fields(StoredMessage))


def run_of(
    queue_id: int, count: int, *, first: int = 0, stored_at: datetime = NOON, body: bytes = b"body"
) -> list[StoredMessage]:
    """Return messages of a queue, one after the other, a second between them."""
    return [
        StoredMessage(
            queue_id=queue_id, queue_offset=first + place, stored_at=stored_at + timedelta(seconds=place), body=body
        )
        for place in range(count)
    ]


def put_rows(url: str, messages: Iterable[StoredMessage]) -> None:
    """Store the rows, and the rows of their queues; their days are made where they are missing."""
    rows = [asdict(message) for message in messages]
    for row in rows:
        row["headers"] = None if row["headers"] is None else json.dumps(row["headers"])
    statement = f"INSERT INTO message ({', '.join(COLUMNS)}) VALUES ({', '.join(f'%({name})s' for name in COLUMNS)})"
    with psycopg.connect(url, autocommit=True) as connection, connection.transaction(), connection.cursor() as cursor:
        for day in {row["stored_at"].astimezone(UTC).date() for row in rows}:
            name = partition_name("message", day.strftime("%Y%m%d"))
            first, end = (datetime(day.year, day.month, day.day, tzinfo=UTC) + timedelta(days=days) for days in (0, 1))
            cursor.execute(
                f"CREATE TABLE IF NOT EXISTS {name} PARTITION OF message FOR VALUES FROM ('{first}') TO ('{end}')"
            )
        cursor.executemany(_QUEUE, [{"queue_id": queue_id} for queue_id in {row["queue_id"] for row in rows}])
        cursor.executemany(statement, rows)


def read_rows(url: str, where: str = "true") -> list[tuple[object, ...]]:
    """Return what psycopg reads of the rows, in their order, each as Spark is to say it."""
    names = ", ".join(
        {"message_id": "message_id::text", "headers": "headers::text"}.get(name, name) for name in COLUMNS
    )
    with psycopg.connect(url) as connection:
        connection.execute("SET TIME ZONE 'UTC'")
        return connection.execute(
            f"SELECT {names} FROM message WHERE {where} ORDER BY queue_id, queue_offset"
        ).fetchall()


def drop_day(url: str, day: datetime, starts: Sequence[tuple[int, int]]) -> None:
    """Drop a day as maintenance does: first each of these queues begins at its offset, then the day goes."""
    with psycopg.connect(url, autocommit=True) as connection:
        for queue_id, start_offset in starts:
            connection.execute("UPDATE queue SET start_offset = %s WHERE queue_id = %s", (start_offset, queue_id))
        connection.execute(f"DROP TABLE {partition_name('message', day.strftime('%Y%m%d'))}")
