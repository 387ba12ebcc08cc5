"""Where a queue ends, as pieces of the statements that ask for it: one definition for all of them."""

from __future__ import annotations

from msgdb import names


def last_message(queue_id: str, *, table: str = names.MESSAGE, since: str = "") -> str:
    """Return a subquery of a queue's last message: its `queue_offset` and `stored_at`, or no row where there is none.

    Index: the primary key, backwards, one row per partition. *since* is a time that the message is known not to be
    before: PostgreSQL leaves out the partitions of earlier days. *table* may be one partition.
    """
    later = f" AND m.stored_at >= {since}" if since else ""
    return f"""(
        SELECT m.queue_offset, m.stored_at FROM {table} AS m WHERE m.queue_id = {queue_id}{later}
        ORDER BY m.queue_offset DESC LIMIT 1
    )"""


def next_offset(queue: str, last: str) -> str:
    """Return the offset that a queue goes on with: behind *last*, its last message, or at its start if days are gone.

    The row *queue* remembers the start, and so the end of a queue of which all days are gone.
    """
    return f"greatest({queue}.start_offset, {last}.queue_offset + 1)"
