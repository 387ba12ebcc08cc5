"""Alarms: what is set aside or at its limit, written by brokers.

Phase: expand.
Locks: none that anyone waits for: the table is new.
Undo: drops it, and what it says.
"""

from __future__ import annotations

from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

ALARM = """
CREATE TABLE alarm (
    alarm_id bigint GENERATED ALWAYS AS IDENTITY,
    broker_id uuid NOT NULL,
    broker text NOT NULL,
    kind text NOT NULL,
    thing text NOT NULL,
    detail text NOT NULL,
    group_id bigint,
    topic_id bigint,
    queue_id bigint,
    raised_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    seen_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    cleared_at timestamptz,
    CONSTRAINT alarm_pkey PRIMARY KEY (alarm_id)
)
WITH (fillfactor = 50, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_scale_factor = 0.02, vacuum_truncate = off)
"""
STANDING = "CREATE UNIQUE INDEX alarm_standing_key ON alarm (broker_id, kind, thing) WHERE cleared_at IS NULL"


def upgrade() -> None:
    """Make the table of alarms."""
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute(ALARM)
    op.execute(STANDING)


def downgrade() -> None:
    """Drop the table of alarms."""
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("DROP TABLE alarm")
