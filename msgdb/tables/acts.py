"""What operators do to messages: acts, jobs, and which dead letters were redriven."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Double, ForeignKey, Identity, Index, Integer, Table, Text, Uuid, func, text
from sqlalchemy.dialects.postgresql import JSONB

from msgdb import names
from msgdb.tables.base import UPDATED_IN_PLACE, metadata, timestamp
from msgdb.tables.lanes import dead_letter

# Who did what to messages and why: written in the transaction of the act, and kept for a year.
act = Table(
    names.ACT,
    metadata,
    Column("act_id", BigInteger, Identity(always=True), primary_key=True),
    Column("at", timestamp(), nullable=False, server_default=func.clock_timestamp()),
    Column("actor", Text, nullable=False),
    # As in `archive.waive`.
    Column("action", Text, nullable=False),
    Column("thing", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("detail", JSONB),
    # Of what concerns the center as a whole there is none; nor of what versions of before wrote.
    Column("namespace", Text),
    Index(None, "at"),
    Index("act_of_namespace_idx", "namespace", "act_id"),
)

# msgdb.jobs: acts on many messages, carried out step by step by whichever broker holds the lease.
job = Table(
    names.JOB,
    metadata,
    Column("job_id", BigInteger, Identity(always=True), primary_key=True),
    # msgdb.jobs.records.JobKind and JobState.
    Column("kind", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("namespace", Text, nullable=False),
    Column("thing", Text, nullable=False),
    # All that it goes by, as it was asked for.
    Column("spec", JSONB, nullable=False),
    Column("total", BigInteger, nullable=False),
    Column("done", BigInteger, nullable=False, server_default=text("0")),
    Column("failed", BigInteger, nullable=False, server_default=text("0")),
    Column("skipped", BigInteger, nullable=False, server_default=text("0")),
    Column("scanned", BigInteger, nullable=False, server_default=text("0")),
    Column("rate", Double, nullable=False),
    # How far it is.
    Column("position", JSONB),
    # What is on its way into the store, written down before: whoever ends it stores it under the same publisher id.
    Column("batch", JSONB),
    Column("batch_at", timestamp()),
    Column("actor", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("created_at", timestamp(), nullable=False, server_default=func.clock_timestamp()),
    Column("started_at", timestamp()),
    # In no index, so that a step stays on its page.
    Column("changed_at", timestamp(), nullable=False, server_default=func.clock_timestamp()),
    Column("ended_at", timestamp()),
    # The broker that is at it, while lease_until has not passed.
    Column("owner", Uuid),
    Column("epoch", BigInteger, nullable=False, server_default=text("0")),
    Column("lease_until", timestamp()),
    # After a try that failed.
    Column("not_before", timestamp(), nullable=False, server_default=func.clock_timestamp()),
    Column("tries", Integer, nullable=False, server_default=text("0")),
    Column("last_error", Text),
    Index("job_of_namespace_idx", "namespace", "job_id"),
    Index("job_to_do_idx", "job_id", postgresql_where=text("state = 'RUNNING' OR batch IS NOT NULL")),
    postgresql_with=UPDATED_IN_PLACE,
)

# Of the messages that a job could not do, the first thousand.
job_failure = Table(
    names.JOB_FAILURE,
    metadata,
    Column("job_id", BigInteger, ForeignKey(job.c.job_id, ondelete="CASCADE"), primary_key=True, autoincrement=False),
    Column("failure_id", BigInteger, Identity(always=True), primary_key=True),
    Column("item", Text, nullable=False),
    Column("error", Text, nullable=False),
)

# Which dead letters were delivered again, and where their messages lie since. Beside them, not in them: an archive of a
# day of dead letters is of rows that do not change.
redrive = Table(
    names.REDRIVE,
    metadata,
    Column(
        "dead_letter_id",
        BigInteger,
        ForeignKey(dead_letter.c.id, ondelete="CASCADE"),
        primary_key=True,
        autoincrement=False,
    ),
    Column("job_id", BigInteger, primary_key=True, autoincrement=False),
    Column("redriven_at", timestamp(), nullable=False, server_default=func.clock_timestamp()),
    Column("queue_id", BigInteger),
    Column("queue_offset", BigInteger),
)

# msgdb.requests: what operators ask of one broker, for an hour. Some rows at a time, each updated once.
broker_request = Table(
    names.BROKER_REQUEST,
    metadata,
    Column("request_id", BigInteger, Identity(always=True), primary_key=True),
    # Of confdb's registry: a broker that is started anew has another one.
    Column("broker_id", Uuid, nullable=False),
    # Of the instance; empty: it is a publisher.
    Column("group_id", BigInteger),
    # A connection there, by a name that it gives once.
    Column("attachment", Text, nullable=False),
    Column("thing", Text, nullable=False),
    Column("actor", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("asked_at", timestamp(), nullable=False, server_default=func.clock_timestamp()),
    Column("expires_at", timestamp(), nullable=False),
    # msgdb.requests.RequestOutcome; empty: nobody has carried it out yet.
    Column("outcome", Text),
    Column("ended_at", timestamp()),
    Index(None, "broker_id"),
)
