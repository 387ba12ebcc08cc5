"""Of which share of a topic's messages all that happens is traced.

What: `trace_rate` of topic. Brokers of before trace nothing, whatever it says; services of before write its default.
Phase: expand
Locks: ACCESS EXCLUSIVE on one table for a moment: a constant as default rewrites nothing, and there are not so many
topics that to check them takes long. Changes of the configuration wait, as they do for each other; so do loads of
snapshots
Undo: drops the column
"""

from __future__ import annotations

from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

# Those who change something hold the row of the version before they touch a table. Who takes it first waits for nobody
# who waits for him.
_NO_CHANGES = "SELECT version FROM config_version FOR UPDATE"


def upgrade() -> None:
    """Add the column."""
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute(_NO_CHANGES)
    op.execute(
        "ALTER TABLE topic ADD COLUMN trace_rate double precision DEFAULT 0.01 NOT NULL"
        " CONSTRAINT topic_trace_rate_check CHECK (trace_rate >= 0 AND trace_rate <= 1)"
    )


def downgrade() -> None:
    """Drop the column."""
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute(_NO_CHANGES)
    op.execute("ALTER TABLE topic DROP COLUMN trace_rate")
