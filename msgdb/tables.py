"""The store's tables (SQLAlchemy Core). Columns and why they are so; `migrations/msgdb` makes them.

Nothing here is updated or deleted per message: `message` and `publisher_frame` are append-only and dropped by whole
days; `cursor` is one row per (group, member, queue). No foreign keys into partitioned tables.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Date,
    DateTime,
    Identity,
    Index,
    Integer,
    LargeBinary,
    MetaData,
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

metadata = MetaData(
    naming_convention={
        "pk": "%(table_name)s_pkey",
        "ix": "%(table_name)s_%(column_0_N_name)s_idx",
        "uq": "%(table_name)s_%(column_0_N_name)s_key",
        "ck": "%(table_name)s_%(constraint_name)s_check",
    }
)

# Bounds on what a dead tuple costs: these two are updated in place, all the time.
_UPDATED_IN_PLACE = {
    "fillfactor": "50",
    "autovacuum_vacuum_threshold": "500",
    "autovacuum_vacuum_scale_factor": "0.02",
    "vacuum_truncate": "off",
}


def _timestamp() -> DateTime:
    return DateTime(timezone=True)


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
    Column("created_at", _timestamp(), nullable=False, server_default=func.now()),
    UniqueConstraint("topic_id", "generation", "ordinal"),
)

message = Table(
    names.MESSAGE,
    metadata,
    Column("queue_id", BigInteger, primary_key=True),
    Column("queue_offset", BigInteger, primary_key=True),
    Column("stored_at", _timestamp(), primary_key=True),
    Column("message_id", Uuid, nullable=False),
    Column("namespace", Text, nullable=False),
    Column("topic", Text, nullable=False),
    Column("event_code", Text, nullable=False),
    Column("key", Text),
    Column("ordering_key", Text),
    Column("headers", JSONB),
    Column("body", LargeBinary, nullable=False),
    Column("born_at", _timestamp(), nullable=False),
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
    Column("stored_at", _timestamp(), primary_key=True),
    Column("first_sequence", BigInteger, nullable=False),
    # msgdb.append.outcome: landings and refusals of each of these frames.
    Column("outcome", LargeBinary, nullable=False),
    postgresql_partition_by="RANGE (stored_at)",
)

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
    Column("lease_until", _timestamp()),
    postgresql_with=_UPDATED_IN_PLACE,
)

redelivery = Table(
    names.REDELIVERY,
    metadata,
    Column("group_id", BigInteger, primary_key=True),
    Column("member", Text, primary_key=True),
    Column("queue_id", BigInteger, primary_key=True),
    Column("queue_offset", BigInteger, primary_key=True),
    # Of the message: names its partition.
    Column("stored_at", _timestamp(), nullable=False),
    # The attempt that comes next.
    Column("attempt", Integer, nullable=False),
    Column("due_at", _timestamp(), nullable=False),
    Column("ordering_key", Text),
    Column("last_error", Text),
    postgresql_with=_UPDATED_IN_PLACE,
)

dead_letter = Table(
    names.DEAD_LETTER,
    metadata,
    Column("id", BigInteger, Identity(always=True), primary_key=True),
    Column("group_id", BigInteger, nullable=False),
    Column("group_name", Text, nullable=False),
    # Of the insert, not of its transaction's start (msgdb.archive.closing).
    Column("died_at", _timestamp(), nullable=False, server_default=func.clock_timestamp()),
    Column("attempts", Integer, nullable=False),
    # ATTEMPTS_EXHAUSTED, REJECTED, UNREADABLE_BODY or EXPIRED.
    Column("reason", Text, nullable=False),
    Column("last_error", Text),
    # A full copy of the message: it outlives the message's day.
    Column("queue_id", BigInteger, nullable=False),
    Column("queue_offset", BigInteger, nullable=False),
    Column("stored_at", _timestamp(), nullable=False),
    Column("message_id", Uuid, nullable=False),
    Column("namespace", Text, nullable=False),
    Column("topic", Text, nullable=False),
    Column("event_code", Text, nullable=False),
    Column("key", Text),
    Column("ordering_key", Text),
    Column("headers", JSONB),
    Column("body", LargeBinary, nullable=False),
    Column("born_at", _timestamp(), nullable=False),
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
    Column("begun_at", _timestamp(), nullable=False, server_default=func.clock_timestamp()),
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

alarm = Table(
    names.ALARM,
    metadata,
    Column("alarm_id", BigInteger, Identity(always=True), primary_key=True),
    # Of confdb's registry; all zeros where the alarm is about the store itself.
    Column("broker_id", Uuid, nullable=False),
    Column("broker", Text, nullable=False),
    # msgdb.reports.alarms.AlarmKind.
    Column("kind", Text, nullable=False),
    Column("thing", Text, nullable=False),
    Column("detail", Text, nullable=False),
    Column("group_id", BigInteger),
    Column("topic_id", BigInteger),
    Column("queue_id", BigInteger),
    Column("raised_at", _timestamp(), nullable=False, server_default=func.clock_timestamp()),
    # Repeated by its broker while it stands; in no index, so that this stays on its page.
    Column("seen_at", _timestamp(), nullable=False, server_default=func.clock_timestamp()),
    Column("cleared_at", _timestamp()),
    Index("alarm_standing_key", "broker_id", "kind", "thing", unique=True, postgresql_where=text("cleared_at IS NULL")),
    postgresql_with=_UPDATED_IN_PLACE,
)

# msgdb.reports.expression_failures: a row for each subscription that fails, added to by every broker that evaluates it.
expression_failure = Table(
    names.EXPRESSION_FAILURE,
    metadata,
    # Both of confdb, where subscriptions come and go: no foreign keys, and ids that are never used again.
    Column("group_id", BigInteger, primary_key=True, autoincrement=False),
    Column("subscription_id", BigInteger, primary_key=True, autoincrement=False),
    Column("failures", BigInteger, nullable=False),
    # The header that was missing, where that was why.
    Column("last_header", Text),
    Column("last_error", Text, nullable=False),
    Column("first_failed_at", _timestamp(), nullable=False, server_default=func.clock_timestamp()),
    Column("last_failed_at", _timestamp(), nullable=False, server_default=func.clock_timestamp()),
    postgresql_with=_UPDATED_IN_PLACE,
)

# What is dropped only once it is archived: a row for each table that this holds for. The trigger `archive_guard_start`
# on `queue` keeps brokers that do not know of it from dropping.
archive_policy = Table(
    names.ARCHIVE_POLICY,
    metadata,
    Column("table_name", Text, primary_key=True),
    # Days from this one on.
    Column("required_from", Date, nullable=False),
    Column("changed_at", _timestamp(), nullable=False, server_default=func.clock_timestamp()),
)

archive_day = Table(
    names.ARCHIVE_DAY,
    metadata,
    Column("table_name", Text, primary_key=True),
    Column("day", Date, primary_key=True),
    # msgdb.archive.records.DayState. A day without a row is pending.
    Column("state", Text, nullable=False),
    # The verified run that readers go by.
    Column("run_id", Uuid),
    # Why it is waived, or pending again.
    Column("reason", Text),
    Column("changed_at", _timestamp(), nullable=False, server_default=func.clock_timestamp()),
)

archive_run = Table(
    names.ARCHIVE_RUN,
    metadata,
    # In the order of their beginnings.
    Column("run_id", Uuid, primary_key=True),
    Column("table_name", Text, nullable=False),
    Column("day", Date, nullable=False),
    # msgdb.archive.records.RunState.
    Column("state", Text, nullable=False),
    # Of a supplement: the run whose files its manifest lists, too.
    Column("base_run_id", Uuid),
    # Who does it: a host and a process.
    Column("holder", Text, nullable=False),
    Column("begun_at", _timestamp(), nullable=False, server_default=func.clock_timestamp()),
    # In no index, so that a renewal stays on its page.
    Column("lease_until", _timestamp(), nullable=False),
    # The cluster's identifier and its timeline, as the day was closed.
    Column("timeline", Text),
    Column("closed_at", _timestamp()),
    # What a replica must have replayed before it is read.
    Column("closed_lsn", Text),
    Column("ended_at", _timestamp()),
    Column("failure", Text),
    Column("manifest", Text),
    Column("row_count", BigInteger),
    Column("file_count", Integer),
    Column("file_bytes", BigInteger),
    Index(None, "table_name", "day"),
    postgresql_with=_UPDATED_IN_PLACE,
)

# What a run is to contain, one row for each queue of the day; of dead letters one row, with ids as offsets and queue 0.
archive_range = Table(
    names.ARCHIVE_RANGE,
    metadata,
    Column("run_id", Uuid, primary_key=True),
    Column("queue_id", BigInteger, primary_key=True, autoincrement=False),
    Column("first_offset", BigInteger, nullable=False),
    Column("last_offset", BigInteger, nullable=False),
    # After a promotion that lost the log's end another message may have the same offset.
    Column("last_message_id", Uuid, nullable=False),
    # Of what was read back.
    Column("row_count", BigInteger),
    Column("digest", Text),
)

# Who did what to messages and why: written in the transaction of the act, and kept for a year.
act = Table(
    names.ACT,
    metadata,
    Column("act_id", BigInteger, Identity(always=True), primary_key=True),
    Column("at", _timestamp(), nullable=False, server_default=func.clock_timestamp()),
    Column("actor", Text, nullable=False),
    # As in `archive.waive`.
    Column("action", Text, nullable=False),
    Column("thing", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("detail", JSONB),
    Index(None, "at"),
)
