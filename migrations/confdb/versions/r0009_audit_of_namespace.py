"""The audit trail of one namespace, by an index.

What: an index of audit_entry. Services of before read and write it without knowing.
Phase: expand
Locks: SHARE on one table for as long as it takes to read its rows, a second for a million: changes of the configuration
wait, as they do for each other, and those who read do not
Undo: drops the index
"""

from __future__ import annotations

from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

# Those who change something hold the row of the version before they touch a table. Who takes it first waits for nobody
# who waits for him.
_NO_CHANGES = "SELECT version FROM config_version FOR UPDATE"


def upgrade() -> None:
    """Make the index."""
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute(_NO_CHANGES)
    op.execute("CREATE INDEX audit_entry_namespace_audit_id_idx ON audit_entry (namespace, audit_id)")


def downgrade() -> None:
    """Drop the index."""
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute(_NO_CHANGES)
    op.execute("DROP INDEX audit_entry_namespace_audit_id_idx")
