"""What the store has, by whom it was published."""

from __future__ import annotations

from msgdb.store import MessageStore


async def stored_in(store: MessageStore) -> list[list[str]]:
    """Return bodies and ids of all messages, in the order of the bodies."""
    async with store.connection() as connection:
        rows = await (await connection.execute("SELECT body, message_id FROM message")).fetchall()
    return sorted([bytes(body).decode(), str(message_id)] for body, message_id in rows)


async def publishers_of(store: MessageStore) -> int:
    """Return how many publishers have stored something."""
    async with store.connection() as connection:
        found = await connection.execute("SELECT count(DISTINCT publisher_id) FROM publisher_frame")
        (count,) = await found.fetchone() or (0,)
    return int(count)
