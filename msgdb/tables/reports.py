"""What brokers report to everybody who can read the store."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Identity, Index, Table, Text, Uuid, func, text

from msgdb import names
from msgdb.tables.base import UPDATED_IN_PLACE, metadata, timestamp

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
    Column("raised_at", timestamp(), nullable=False, server_default=func.clock_timestamp()),
    # Repeated by its broker while it stands; in no index, so that this stays on its page.
    Column("seen_at", timestamp(), nullable=False, server_default=func.clock_timestamp()),
    Column("cleared_at", timestamp()),
    Index("alarm_standing_key", "broker_id", "kind", "thing", unique=True, postgresql_where=text("cleared_at IS NULL")),
    postgresql_with=UPDATED_IN_PLACE,
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
    Column("first_failed_at", timestamp(), nullable=False, server_default=func.clock_timestamp()),
    Column("last_failed_at", timestamp(), nullable=False, server_default=func.clock_timestamp()),
    postgresql_with=UPDATED_IN_PLACE,
)
