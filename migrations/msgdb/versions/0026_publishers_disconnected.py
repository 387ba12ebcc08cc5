"""What operators ask of brokers: to end the stream of a publisher as well, which is of no group.

Phase: expand. Brokers of earlier versions give no names to publishers' streams, so nothing is asked of them; should one
find such a row all the same, it says that the connection is not there.
Locks: broker_request, for a moment. No row is looked at.
Undo: what was asked of publishers is deleted with it.
"""

from __future__ import annotations

from alembic import op

revision = "0026"
down_revision = "0025"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Let the group be empty."""
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("ALTER TABLE broker_request ALTER COLUMN group_id DROP NOT NULL")


def downgrade() -> None:
    """Have a group in each row again."""
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("DELETE FROM broker_request WHERE group_id IS NULL")
    op.execute("ALTER TABLE broker_request ALTER COLUMN group_id SET NOT NULL")
