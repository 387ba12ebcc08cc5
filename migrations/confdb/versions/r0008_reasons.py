"""Why a change of the configuration was made.

What: `reason` of audit_entry. Services of before write an empty one, and read all there is.
Phase: expand
Locks: ACCESS EXCLUSIVE on one table for a moment: a constant as default rewrites nothing, nothing is checked. Changes
of the configuration wait, as they do for each other
Undo: drops the column
"""

from __future__ import annotations

from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

# Those who change something hold the row of the version before they touch a table. Who takes it first waits for nobody
# who waits for him.
_NO_CHANGES = "SELECT version FROM config_version FOR UPDATE"


def upgrade() -> None:
    """Add the column."""
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute(_NO_CHANGES)
    op.execute("ALTER TABLE audit_entry ADD COLUMN reason text DEFAULT '' NOT NULL")


def downgrade() -> None:
    """Drop the column."""
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute(_NO_CHANGES)
    op.execute("ALTER TABLE audit_entry DROP COLUMN reason")
