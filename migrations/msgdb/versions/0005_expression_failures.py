"""How often expressions failed on messages, and of which header the last time: written by brokers.

Phase: expand. Brokers of earlier versions neither write nor read it.
Locks: none that anyone waits for: the table is new.
Undo: drops it, and what it counted.
"""

from __future__ import annotations

from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

EXPRESSION_FAILURE = """
CREATE TABLE expression_failure (
    group_id bigint NOT NULL,
    subscription_id bigint NOT NULL,
    failures bigint NOT NULL,
    last_header text,
    last_error text NOT NULL,
    first_failed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    last_failed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT expression_failure_pkey PRIMARY KEY (group_id, subscription_id)
)
WITH (fillfactor = 50, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_scale_factor = 0.02, vacuum_truncate = off)
"""


def upgrade() -> None:
    """Make the table."""
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute(EXPRESSION_FAILURE)


def downgrade() -> None:
    """Drop the table."""
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("DROP TABLE expression_failure")
