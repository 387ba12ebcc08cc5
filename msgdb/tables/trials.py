"""What single instances are handed to try."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Identity, Index, Table, Text, Uuid, func, text
from sqlalchemy.dialects.postgresql import JSONB

from msgdb import names
from msgdb.tables.base import metadata, timestamp

# msgdb.jobs.trials: carried out by the broker that has the instance, and by no other.
trial = Table(
    names.TRIAL,
    metadata,
    Column("trial_id", BigInteger, Identity(always=True), primary_key=True),
    # msgdb.jobs.trials.TrialState.
    Column("state", Text, nullable=False),
    Column("group_id", BigInteger, nullable=False),
    Column("instance_id", Text, nullable=False),
    # [queue_id, queue_offset, stored_at_us] of each message.
    Column("places", JSONB, nullable=False),
    # What became of the first so many of them.
    Column("outcomes", JSONB, nullable=False, server_default=text("'[]'")),
    # The broker that has the instance.
    Column("owner", Uuid),
    Column("error", Text),
    Column("created_at", timestamp(), nullable=False, server_default=func.clock_timestamp()),
    # By its owner, every second or two as long as it is at it.
    Column("changed_at", timestamp(), nullable=False, server_default=func.clock_timestamp()),
    # By whoever waits for it, every second.
    Column("waited_at", timestamp(), nullable=False, server_default=func.clock_timestamp()),
    # Of the group; commands of earlier versions do not say.
    Column("namespace", Text),
    Index("trial_wanted_idx", "trial_id", postgresql_where=text("state = 'WANTED'")),
)
