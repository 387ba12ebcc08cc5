"""The log: its queues, its messages, what became of frames, which history it is."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Identity,
    Index,
    Integer,
    LargeBinary,
    SmallInteger,
    Table,
    Text,
    UniqueConstraint,
    Uuid,
    func,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB

from msgdb import names
from msgdb.tables.base import metadata, timestamp

queue = Table(
    names.QUEUE,
    metadata,
    Column("queue_id", BigInteger, Identity(always=True), primary_key=True),
    Column("topic_id", BigInteger, nullable=False),
    # A topic's queue count changes by a new generation of queues; the old ones are sealed and read to their end.
    Column("generation", Integer, nullable=False),
    Column("ordinal", Integer, nullable=False),
    # No offset below it exists any more. Also what keeps offsets going up after all days of a queue were dropped.
    Column("start_offset", BigInteger, nullable=False, server_default=text("0")),
    # Set under the queue's append lock when a newer generation exists: nothing is appended afterwards.
    Column("sealed", Boolean, nullable=False, server_default=text("false")),
    Column("created_at", timestamp(), nullable=False, server_default=func.now()),
    UniqueConstraint("topic_id", "generation", "ordinal"),
)

message = Table(
    names.MESSAGE,
    metadata,
    Column("queue_id", BigInteger, primary_key=True),
    Column("queue_offset", BigInteger, primary_key=True),
    Column("stored_at", timestamp(), primary_key=True),
    Column("message_id", Uuid, nullable=False),
    Column("namespace", Text, nullable=False),
    Column("topic", Text, nullable=False),
    Column("event_code", Text, nullable=False),
    Column("key", Text),
    Column("ordering_key", Text),
    Column("headers", JSONB),
    Column("body", LargeBinary, nullable=False),
    Column("born_at", timestamp(), nullable=False),
    Column("born_host", Text),
    Column("publisher_group", Text),
    Column("stress", Boolean, nullable=False),
    # Redriven and replayed messages: only this group sees them.
    Column("target_group", BigInteger),
    Column("redrives", SmallInteger, nullable=False, server_default=text("0")),
    Index(None, "message_id"),
    Index(None, "topic", "key", postgresql_where=text("key IS NOT NULL")),
    postgresql_partition_by="RANGE (stored_at)",
)

publisher_frame = Table(
    names.PUBLISHER_FRAME,
    metadata,
    Column("publisher_id", Uuid, primary_key=True),
    # One row per publisher and commit: it answers for the frames first_sequence..sequence.
    Column("sequence", BigInteger, primary_key=True),
    Column("stored_at", timestamp(), primary_key=True),
    Column("first_sequence", BigInteger, nullable=False),
    # msgdb.append.outcome: landings and refusals of each of these frames.
    Column("outcome", LargeBinary, nullable=False),
    postgresql_partition_by="RANGE (stored_at)",
)

# msgdb.postgres.history: a row for each timeline that was met; the newest is the one that stands.
log_history = Table(
    names.LOG_HISTORY,
    metadata,
    Column("ordinal", BigInteger, Identity(always=True), primary_key=True),
    # The marker: unlike a timeline's number it never comes again.
    Column("history_id", Uuid, nullable=False),
    # The cluster's identifier and its timeline.
    Column("timeline", Text, nullable=False),
    Column("epoch_floor", BigInteger, nullable=False),
    Column("begun_at", timestamp(), nullable=False, server_default=func.clock_timestamp()),
)

# msgdb.log.config_mark: one row.
config_mark = Table(
    names.CONFIG_MARK,
    metadata,
    Column("singleton", SmallInteger, primary_key=True, autoincrement=False),
    # Another one where the configuration was replaced by an earlier state of it.
    Column("era", Uuid, nullable=False),
    # Of the configuration: the newest that may have been reported active.
    Column("version", BigInteger, nullable=False),
    CheckConstraint("singleton = 1", name="singleton"),
)
