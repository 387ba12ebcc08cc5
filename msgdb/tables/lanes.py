"""What lanes persist: cursors, redeliveries, dead letters."""

from __future__ import annotations

from sqlalchemy import (
    REAL,
    BigInteger,
    Boolean,
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
from sqlalchemy.dialects.postgresql import INT8MULTIRANGE, JSONB

from msgdb import names
from msgdb.tables.base import UPDATED_IN_PLACE, metadata, timestamp

cursor = Table(
    names.CURSOR,
    metadata,
    Column("group_id", BigInteger, primary_key=True),
    Column("member", Text, primary_key=True),
    Column("queue_id", BigInteger, primary_key=True),
    # Every offset below it is settled for the group ...
    Column("acked_offset", BigInteger, nullable=False),
    # ... and so are these above it.
    Column("acked_ranges", INT8MULTIRANGE, nullable=False, server_default=text("'{}'")),
    # The broker that owns the lane, while lease_until (by this database's clock) has not passed; or the version of the
    # configuration that its beginning is kept for (msgdb.log.beginnings).
    Column("owner", Uuid),
    # Bumped by every claim and every reset: writes of a former owner match no row.
    Column("epoch", BigInteger, nullable=False, server_default=text("0")),
    Column("lease_until", timestamp()),
    # Where the group was put by hand the last time: from there on the subscriptions count that there were then, up to
    # that id, though they may start later (msgdb.lanes.resets).
    Column("reset_offset", BigInteger),
    Column("reset_subscription_id", BigInteger),
    # Which share matched of what was read lately, from how many messages that was learnt, and what the subscriptions
    # asked for then, as a number (msgbroker.engine.matching_share).
    Column("matching_asked", BigInteger, nullable=False, server_default=text("0")),
    Column("matching_share", REAL, nullable=False, server_default=text("0")),
    Column("matching_read", REAL, nullable=False, server_default=text("0")),
    postgresql_with=UPDATED_IN_PLACE,
)

redelivery = Table(
    names.REDELIVERY,
    metadata,
    Column("group_id", BigInteger, primary_key=True),
    Column("member", Text, primary_key=True),
    Column("queue_id", BigInteger, primary_key=True),
    Column("queue_offset", BigInteger, primary_key=True),
    # Of the message: names its partition.
    Column("stored_at", timestamp(), nullable=False),
    # The attempt that comes next.
    Column("attempt", Integer, nullable=False),
    Column("due_at", timestamp(), nullable=False),
    Column("ordering_key", Text),
    Column("last_error", Text),
    # The paused subscriptions that want it, where only these do: it waits for them, whenever it is due.
    Column("shelved_by", Text),
    postgresql_with=UPDATED_IN_PLACE,
)

dead_letter = Table(
    names.DEAD_LETTER,
    metadata,
    Column("id", BigInteger, Identity(always=True), primary_key=True),
    Column("group_id", BigInteger, nullable=False),
    Column("group_name", Text, nullable=False),
    # Of the insert, not of its transaction's start (msgdb.archive.closing).
    Column("died_at", timestamp(), nullable=False, server_default=func.clock_timestamp()),
    Column("attempts", Integer, nullable=False),
    # ATTEMPTS_EXHAUSTED, REJECTED, UNREADABLE_BODY, EXPIRED or SKIPPED.
    Column("reason", Text, nullable=False),
    Column("last_error", Text),
    # A full copy of the message: it outlives the message's day.
    Column("queue_id", BigInteger, nullable=False),
    Column("queue_offset", BigInteger, nullable=False),
    Column("stored_at", timestamp(), nullable=False),
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
    Column("redrives", SmallInteger, nullable=False, server_default=text("0")),
    # A checkpoint whose answer to COMMIT was lost is written again. With the time: after a promotion that lost the
    # log's end an offset may belong to another message.
    UniqueConstraint("group_id", "queue_id", "queue_offset", "stored_at"),
    Index(None, "group_id", "id"),
    Index(None, "died_at"),
)
