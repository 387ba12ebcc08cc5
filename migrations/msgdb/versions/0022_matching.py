"""The matching estimate: which share of what a lane read its group gets, and how much of a backlog that comes to.

Phase: expand. Brokers of earlier versions neither read nor write the columns: a lane keeps the share that it had, and
a minute whose last look was theirs keeps the estimate of the look before, or none.
Locks: `cursor`, then `backlog_minute` with its days, for a moment, exclusively: checkpoints and looks in flight are
waited for. No row is looked at.
Undo: drops the columns. What lanes have learnt is forgotten, and so are the estimates of minutes that are over.
"""

from __future__ import annotations

from alembic import op

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None

CURSOR = """
ALTER TABLE cursor
    ADD COLUMN matching_asked bigint NOT NULL DEFAULT 0,
    ADD COLUMN matching_share real NOT NULL DEFAULT 0,
    ADD COLUMN matching_read real NOT NULL DEFAULT 0
"""


def upgrade() -> None:
    """Add the columns."""
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute(CURSOR)
    op.execute("ALTER TABLE backlog_minute ADD COLUMN matching bigint")


def downgrade() -> None:
    """Drop the columns."""
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("ALTER TABLE cursor DROP COLUMN matching_asked, DROP COLUMN matching_share, DROP COLUMN matching_read")
    op.execute("ALTER TABLE backlog_minute DROP COLUMN matching")
