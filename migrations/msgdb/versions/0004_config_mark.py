"""The mark of the newest configuration that may have been reported active: for brokers that cannot reach confdb.

Phase: expand.
Locks: none that anyone waits for: the table is new.
Undo: drops it; brokers of this version do not start without it.
"""

from __future__ import annotations

from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

CONFIG_MARK = """
CREATE TABLE config_mark (
    singleton smallint NOT NULL,
    era uuid NOT NULL,
    version bigint NOT NULL,
    CONSTRAINT config_mark_pkey PRIMARY KEY (singleton),
    CONSTRAINT config_mark_singleton_check CHECK (singleton = 1)
)
"""
# Nothing was reported active yet that anybody could be behind.
FIRST = "INSERT INTO config_mark (singleton, era, version) VALUES (1, gen_random_uuid(), 0)"


def upgrade() -> None:
    """Make the table, with its one row."""
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute(CONFIG_MARK)
    op.execute(FIRST)


def downgrade() -> None:
    """Drop the table."""
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("DROP TABLE config_mark")
