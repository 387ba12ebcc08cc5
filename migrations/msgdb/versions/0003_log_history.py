"""The marker of the history that the database goes on with: a promotion that lost the log's end is noticed by it.

Phase: expand.
Locks: none that anyone waits for: the table is new.
Undo: drops it; brokers of this version do not start without it.
"""

from __future__ import annotations

from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

LOG_HISTORY = """
CREATE TABLE log_history (
    ordinal bigint GENERATED ALWAYS AS IDENTITY,
    history_id uuid NOT NULL,
    timeline text NOT NULL,
    epoch_floor bigint NOT NULL,
    begun_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT log_history_pkey PRIMARY KEY (ordinal)
)
"""
# Nothing came before it that anyone could remember.
FIRST = """
INSERT INTO log_history (history_id, timeline, epoch_floor, begun_at)
SELECT gen_random_uuid(), system_identifier || '/' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8), 0,
       '-infinity'
FROM pg_control_system()
"""


def upgrade() -> None:
    """Make the table, with the marker of today's history."""
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute(LOG_HISTORY)
    op.execute(FIRST)


def downgrade() -> None:
    """Drop the table."""
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("DROP TABLE log_history")
