"""A publisher that does not pause, as PostgreSQL sees one."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import psycopg

ROWS_AT_ONCE: Final = 200
"""So many messages are one transaction."""
_LAST_QUEUE: Final = "SELECT max(queue_id) + 1000 FROM queue"
# Rows of a queue of its own.
_LOAD: Final = """
INSERT INTO message (queue_id, queue_offset, stored_at, message_id, namespace, topic, event_code, key, body, born_at,
                     stress)
SELECT %(queue_id)s, %(first)s + n, clock_timestamp(), gen_random_uuid(), 'default', 'TP_LOAD', 'EC_LOAD',
       'load-' || n, convert_to(repeat('x', 1000), 'UTF8'), clock_timestamp(), false
FROM generate_series(1, %(count)s) AS n
"""


@contextmanager
def publishing(url: str) -> Iterator[list[int]]:
    """Store messages without a pause while the block lasts; how many they are is in what is given."""
    stop, stored = threading.Event(), [0]

    def publish() -> None:
        with psycopg.connect(url, autocommit=True) as connection:
            (queue_id,) = connection.execute(_LAST_QUEUE).fetchone() or (0,)
            while not stop.is_set():
                connection.execute(_LOAD, {"queue_id": queue_id, "first": stored[0], "count": ROWS_AT_ONCE})
                stored[0] += ROWS_AT_ONCE

    thread = threading.Thread(target=publish)
    thread.start()
    try:
        yield stored
    finally:
        stop.set()
        thread.join()
