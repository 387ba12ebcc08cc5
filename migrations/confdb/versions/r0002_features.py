"""Features: what a row requires of whoever serves it, and what each broker understands.

What: `requires` of topic, subscriber_group and subscription; `features` and `withheld` of broker. Their defaults say
"nothing", which is what brokers of before write, and what they are taken to understand.
Phase: expand
Locks: ACCESS EXCLUSIVE on the four tables for a moment: constants as defaults rewrite nothing. Changes of the
configuration wait, as they do for each other; so do loads of snapshots, and heartbeats
Undo: drops the columns, and what they say. Not while anything requires a feature: brokers of before would guess
"""

from __future__ import annotations

from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

# Those who change something hold the row of the version before they touch a table. Who takes it first waits for nobody
# who waits for him.
_NO_CHANGES = "SELECT version FROM config_version FOR UPDATE"

# In the order in which snapshots read them.
_REQUIRING = ("topic", "subscriber_group", "subscription")


def upgrade() -> None:
    """Add the columns."""
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute(_NO_CHANGES)
    for table in _REQUIRING:
        op.execute(f"ALTER TABLE {table} ADD COLUMN requires text[] DEFAULT '{{}}' NOT NULL")
    op.execute(
        "ALTER TABLE broker ADD COLUMN features text[] DEFAULT '{}' NOT NULL,"
        " ADD COLUMN withheld jsonb DEFAULT '{}' NOT NULL"
    )


def downgrade() -> None:
    """Drop the columns."""
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute(_NO_CHANGES)
    for table in _REQUIRING:
        op.execute(f"ALTER TABLE {table} DROP COLUMN requires")
    op.execute("ALTER TABLE broker DROP COLUMN features, DROP COLUMN withheld")
