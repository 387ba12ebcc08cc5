"""Paused subscriptions: what they want waits until they go on.

What: `paused` of subscription. Brokers of before do not serve a topic to a group with a paused subscription to it: the
row requires what they do not understand. Services of before write its default.
Phase: expand
Locks: ACCESS EXCLUSIVE on one table for a moment: a constant as default rewrites nothing. Changes of the configuration
wait, as they do for each other; so do loads of snapshots
Undo: drops the column. Let paused subscriptions go on before, or what waits for them waits for a hundred years
"""

from __future__ import annotations

from alembic import op

revision = "0006"
down_revision = "0004"
branch_labels = None
depends_on = None

# Those who change something hold the row of the version before they touch a table. Who takes it first waits for nobody
# who waits for him.
_NO_CHANGES = "SELECT version FROM config_version FOR UPDATE"


def upgrade() -> None:
    """Add the column."""
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute(_NO_CHANGES)
    op.execute("ALTER TABLE subscription ADD COLUMN paused boolean DEFAULT false NOT NULL")


def downgrade() -> None:
    """Drop the column."""
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute(_NO_CHANGES)
    op.execute("ALTER TABLE subscription DROP COLUMN paused")
