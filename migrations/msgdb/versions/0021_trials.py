"""Trials: messages that one instance of a group is to be handed beside its lanes, and what it made of each.

Phase: expand. Brokers of earlier versions neither read nor write the table: what they should try waits in vain.
Locks: none that anybody waits for.
Undo: drops the table. Trials that were not done are forgotten.
"""

from __future__ import annotations

from alembic import op

revision = "0021"
down_revision = "0019"
branch_labels = None
depends_on = None

TRIAL = """
CREATE TABLE trial (
    trial_id bigint GENERATED ALWAYS AS IDENTITY,
    state text NOT NULL,
    group_id bigint NOT NULL,
    instance_id text NOT NULL,
    places jsonb NOT NULL,
    outcomes jsonb NOT NULL DEFAULT '[]',
    owner uuid,
    error text,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    changed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT trial_pkey PRIMARY KEY (trial_id)
)
"""
TRIAL_WANTED = "CREATE INDEX trial_wanted_idx ON trial (trial_id) WHERE state = 'WANTED'"


def upgrade() -> None:
    """Make the table."""
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute(TRIAL)
    op.execute(TRIAL_WANTED)


def downgrade() -> None:
    """Drop the table."""
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("DROP TABLE trial")
