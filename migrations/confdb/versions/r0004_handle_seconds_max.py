"""How long an instance may keep what it has begun, by extending its time to answer.

What: `handle_seconds_max` of subscriber_group. Brokers of before extend nothing, whatever it says, and tell their
instances so; services of before write its default.
Phase: expand
Locks: ACCESS EXCLUSIVE on one table for a moment: a constant as default rewrites nothing. Changes of the configuration
wait, as they do for each other; so do loads of snapshots
Undo: drops the column
"""

from __future__ import annotations

from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

# Those who change something hold the row of the version before they touch a table. Who takes it first waits for nobody
# who waits for him.
_NO_CHANGES = "SELECT version FROM config_version FOR UPDATE"


def upgrade() -> None:
    """Add the column."""
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute(_NO_CHANGES)
    op.execute("ALTER TABLE subscriber_group ADD COLUMN handle_seconds_max double precision DEFAULT 3600 NOT NULL")


def downgrade() -> None:
    """Drop the column."""
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute(_NO_CHANGES)
    op.execute("ALTER TABLE subscriber_group DROP COLUMN handle_seconds_max")
