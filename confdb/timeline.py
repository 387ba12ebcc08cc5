"""Which life of the configuration database it is, and how far versions skip where another one begins."""

from __future__ import annotations

from typing import Final

import sqlalchemy as sa

VERSIONS_SKIPPED: Final = 1 << 20
"""So far at least: no configuration has as many changes in the time that a promotion can lose."""

# As in msgdb.postgres.history: neither package sees the other.
TIMELINE: Final[sa.ColumnElement[str]] = sa.literal_column(
    "(SELECT system_identifier || '/' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8)"
    " FROM pg_control_system())"
)
"""What names the cluster and its timeline, of a primary."""
