"""Trials: when whoever waits for one said so last.

Phase: expand. Brokers of earlier versions go on with a trial though nobody waits for it. Commands of earlier versions
say nothing: their trials end soon at brokers of this one. For trials of before nobody waits: those of commands that
were killed are not taken up.
Locks: trial, for a moment. No row is looked at.
Undo: drops the column.
"""

from __future__ import annotations

from alembic import op

revision = "0024"
down_revision = "0022"
branch_labels = None
depends_on = None

WAITED_AT = "ALTER TABLE trial ADD COLUMN waited_at timestamptz NOT NULL DEFAULT 'epoch'"
FROM_NOW_ON = "ALTER TABLE trial ALTER COLUMN waited_at SET DEFAULT clock_timestamp()"


def upgrade() -> None:
    """Add the column."""
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute(WAITED_AT)
    op.execute(FROM_NOW_ON)


def downgrade() -> None:
    """Drop the column."""
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("ALTER TABLE trial DROP COLUMN waited_at")
