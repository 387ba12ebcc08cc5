"""What happened to messages: an event of some consecutive messages of a queue, by days, never updated."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Index, Integer, Table, Text, text

from msgdb import names
from msgdb.tables.base import metadata, timestamp

# msgdb.trace. No primary key: nothing refers to an event, and an index that nobody reads costs as much as the rows.
trace_event = Table(
    names.TRACE_EVENT,
    metadata,
    Column("at", timestamp(), nullable=False),
    # msgdb.trace.records.TraceKind.
    Column("kind", Text, nullable=False),
    # The address of the broker that noted it.
    Column("broker", Text, nullable=False),
    # Of messages that lie beside each other the same is said once: last_offset is the last of them.
    Column("queue_id", BigInteger, nullable=False),
    Column("first_offset", BigInteger, nullable=False),
    Column("last_offset", BigInteger, nullable=False),
    Column("group_id", BigInteger),
    Column("instance", Text),
    Column("attempt", Integer),
    # When what ends with this event was handed out; of what was left out, when that began.
    Column("handed_at", timestamp()),
    Column("detail", Text),
    Column("left_out", BigInteger),
    Index(None, "queue_id", "first_offset"),
    Index("trace_event_left_out_idx", "at", postgresql_where=text("kind = 'LEFT_OUT'")),
    postgresql_partition_by="RANGE (at)",
)
