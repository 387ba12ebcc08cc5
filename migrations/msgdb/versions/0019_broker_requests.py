"""What operators ask of brokers: a row for each connection that is to be ended, and what came of it.

Phase: expand. Brokers of earlier versions do not look at the table: what is asked of one is not carried out, and
whoever asks is told so when its time is over.
Locks: none but the new table's own.
Undo: drops the table. What is not carried out yet is forgotten.
"""

from __future__ import annotations

from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None

BROKER_REQUEST = """
CREATE TABLE broker_request (
    request_id bigint GENERATED ALWAYS AS IDENTITY,
    broker_id uuid NOT NULL,
    group_id bigint NOT NULL,
    attachment text NOT NULL,
    thing text NOT NULL,
    actor text NOT NULL,
    reason text NOT NULL,
    asked_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    expires_at timestamptz NOT NULL,
    outcome text,
    ended_at timestamptz,
    CONSTRAINT broker_request_pkey PRIMARY KEY (request_id)
)
"""
OF_BROKER = "CREATE INDEX broker_request_broker_id_idx ON broker_request (broker_id)"


def upgrade() -> None:
    """Make the table."""
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute(BROKER_REQUEST)
    op.execute(OF_BROKER)


def downgrade() -> None:
    """Drop the table."""
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("DROP TABLE broker_request")
