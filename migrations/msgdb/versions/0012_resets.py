"""Resets of groups: from which offset on a cursor's subscriptions count, whatever they say themselves.

Phase: expand. Brokers of earlier versions neither read nor write the columns; that they do not go by them is why no
group is reset while one runs.
Locks: `cursor`, for a moment, exclusively: checkpoints in flight are waited for. No row is looked at.
Undo: drops the columns. A group that was reset to before its subscriptions' starts, and has not read so far yet, gets
nothing from before them any more.
"""

from __future__ import annotations

from alembic import op

revision = "0012"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns."""
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("ALTER TABLE cursor ADD COLUMN reset_offset bigint, ADD COLUMN reset_subscription_id bigint")


def downgrade() -> None:
    """Drop the columns."""
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("ALTER TABLE cursor DROP COLUMN reset_offset, DROP COLUMN reset_subscription_id")
