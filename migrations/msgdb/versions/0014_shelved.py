"""Shelved messages: which paused subscriptions a redelivery waits for.

Phase: expand. Brokers of earlier versions leave the column empty; what is shelved is due in a hundred years to them.
Locks: `redelivery`, for a moment, exclusively: checkpoints in flight are waited for. No row is looked at.
Undo: drops the column. What is shelved waits for a hundred years then: let subscriptions go on before.
"""

from __future__ import annotations

from alembic import op

revision = "0014"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column."""
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("ALTER TABLE redelivery ADD COLUMN shelved_by text")


def downgrade() -> None:
    """Drop the column."""
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("ALTER TABLE redelivery DROP COLUMN shelved_by")
