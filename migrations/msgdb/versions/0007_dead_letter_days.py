"""Dead letters by the day they died: an index that finds a day, and a time that says when a row was written.

The time is that of the insert, not of its transaction's start: whoever has waited after midnight for the writers in
flight knows that nothing more comes for the day before.

Phase: expand. Brokers of earlier versions leave the time to the column's default.
Locks: `dead_letter`, for a moment, exclusively: checkpoints in flight are waited for. The index is made concurrently.
Undo: drops the index; the time is that of the transaction's start again.
"""

from __future__ import annotations

from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Change the default, then make the index: each is nothing new where it was done before."""
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("ALTER TABLE dead_letter ALTER COLUMN died_at SET DEFAULT clock_timestamp()")
    with op.get_context().autocommit_block():
        # What an interrupted build left behind is there, and invalid. Whoever holds a snapshot is waited for.
        op.execute("SET lock_timeout = '60s'")
        op.execute("DROP INDEX CONCURRENTLY IF EXISTS dead_letter_died_at_idx")
        op.execute("CREATE INDEX CONCURRENTLY dead_letter_died_at_idx ON dead_letter (died_at)")
        op.execute("RESET lock_timeout")


def downgrade() -> None:
    """Drop the index and put the default back."""
    with op.get_context().autocommit_block():
        op.execute("DROP INDEX CONCURRENTLY IF EXISTS dead_letter_died_at_idx")
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("ALTER TABLE dead_letter ALTER COLUMN died_at SET DEFAULT now()")
