"""The message that examples of the command line name by its id."""

from __future__ import annotations

from uuid import UUID

from tests.support.message_rows import StoredMessage, put_rows

EXAMPLE_ID = UUID("019a9f6c-7d2a-7c31-b2a4-5d1f0e3c9a10")


def put_example(url: str) -> None:
    """Store it, in a queue of its own."""
    put_rows(url, [StoredMessage(queue_id=4711, queue_offset=0, message_id=EXAMPLE_ID, key="order-4711")])
