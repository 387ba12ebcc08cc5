"""The timeline of the version: after a promotion no version and no id is given out again.

What: `timeline` of config_version, filled in with the present one.
Phase: expand
Locks: ACCESS EXCLUSIVE on one table with one row for a moment. Changes of the configuration wait, as they do for each
other
Undo: drops the column
"""

from __future__ import annotations

from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column, and what it says now."""
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("ALTER TABLE config_version ADD COLUMN timeline text")
    op.execute(
        "UPDATE config_version SET timeline = "
        "(SELECT system_identifier || '/' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8)"
        " FROM pg_control_system())"
    )


def downgrade() -> None:
    """Drop the column."""
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("ALTER TABLE config_version DROP COLUMN timeline")
