"""Figures of each minute: what brokers counted, and how far groups were behind."""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, Column, Index, Table, Text, Uuid, text
from sqlalchemy.dialects.postgresql import ARRAY

from msgdb import names
from msgdb.tables.base import UPDATED_IN_PLACE, metadata, timestamp

# msgdb.figures.usage: for each minute and broker a row of what it has counted of a type of messages, for one group or
# of publishing. Written up to six times while the minute goes on, and then left alone.
usage_minute = Table(
    names.USAGE_MINUTE,
    metadata,
    Column("minute", timestamp(), primary_key=True),
    # Of confdb, as group_id: no foreign keys, and ids that are never used again. 0: it is about the minute itself.
    Column("topic_id", BigInteger, primary_key=True, autoincrement=False),
    # 0: it is of publishing.
    Column("group_id", BigInteger, primary_key=True, autoincrement=False),
    Column("event_code", Text, primary_key=True),
    Column("stress", Boolean, primary_key=True),
    Column("broker_id", Uuid, primary_key=True),
    Column("published", BigInteger, nullable=False),
    Column("redriven", BigInteger, nullable=False),
    Column("replayed", BigInteger, nullable=False),
    Column("delivered", BigInteger, nullable=False),
    Column("retried", BigInteger, nullable=False),
    Column("dead_lettered", BigInteger, nullable=False),
    Column("size_bytes", BigInteger, nullable=False),
    # msgdb.figures.latency: how many of what was delivered took how long. Empty where nothing was.
    Column("latency", ARRAY(BigInteger), nullable=False),
    # Something of this minute may not be counted.
    Column("lacks", Boolean, nullable=False, server_default=text("false")),
    Index(None, "topic_id", "minute"),
    Index(None, "group_id", "minute"),
    postgresql_partition_by="RANGE (minute)",
)

# A row for each broker of the last weeks: how far it has counted.
usage_broker = Table(
    names.USAGE_BROKER,
    metadata,
    Column("broker_id", Uuid, primary_key=True),
    Column("broker", Text, nullable=False),
    Column("counted_until", timestamp(), nullable=False),
    # It has ended in good order, and all that it counted is written.
    Column("has_ended", Boolean, nullable=False),
    # When it last looked how far groups are behind.
    Column("looked_at", timestamp()),
    postgresql_with=UPDATED_IN_PLACE,
)

# msgdb.figures.backlog: how far a lane was behind when that was last looked at in a minute. Lanes that are not behind
# have no row; one that has caught up has one that says so.
backlog_minute = Table(
    names.BACKLOG_MINUTE,
    metadata,
    # 0 is the row that says that this minute was looked at, with the sums over all lanes.
    Column("group_id", BigInteger, primary_key=True, autoincrement=False),
    Column("queue_id", BigInteger, primary_key=True, autoincrement=False),
    Column("minute", timestamp(), primary_key=True),
    Column("topic_id", BigInteger, nullable=False),
    Column("behind", BigInteger, nullable=False),
    Column("behind_max", BigInteger, nullable=False),
    Column("redeliveries", BigInteger, nullable=False),
    # When the oldest message was stored that is not settled.
    Column("oldest_at", timestamp()),
    # Since when it has not got what was stored in time. NULL: it is not late.
    Column("late_since", timestamp()),
    # How many of `behind` the group will get, about. NULL: nobody knows.
    Column("matching", BigInteger),
    Index(None, "minute"),
    postgresql_partition_by="RANGE (minute)",
)
