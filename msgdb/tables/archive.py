"""What may be dropped: archived before, by which runs."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Date, Index, Integer, Table, Text, Uuid, func

from msgdb import names
from msgdb.tables.base import UPDATED_IN_PLACE, metadata, timestamp

# What is dropped only once it is archived: a row for each table that this holds for. The trigger `archive_guard_start`
# on `queue` keeps brokers that do not know of it from dropping.
archive_policy = Table(
    names.ARCHIVE_POLICY,
    metadata,
    Column("table_name", Text, primary_key=True),
    # Days from this one on.
    Column("required_from", Date, nullable=False),
    Column("changed_at", timestamp(), nullable=False, server_default=func.clock_timestamp()),
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
    Column("changed_at", timestamp(), nullable=False, server_default=func.clock_timestamp()),
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
    Column("begun_at", timestamp(), nullable=False, server_default=func.clock_timestamp()),
    # In no index, so that a renewal stays on its page.
    Column("lease_until", timestamp(), nullable=False),
    # The cluster's identifier and its timeline, as the day was closed.
    Column("timeline", Text),
    Column("closed_at", timestamp()),
    # What a replica must have replayed before it is read.
    Column("closed_lsn", Text),
    Column("ended_at", timestamp()),
    Column("failure", Text),
    Column("manifest", Text),
    Column("row_count", BigInteger),
    Column("file_count", Integer),
    Column("file_bytes", BigInteger),
    Index(None, "table_name", "day"),
    postgresql_with=UPDATED_IN_PLACE,
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
