"""${message}

Phase: expand | backfill | contract
Locks: which tables, how strong, how long.
Undo: what downgrade does, and what it cannot bring back.
"""

from __future__ import annotations

from alembic import op
${imports if imports else ""}
revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}
branch_labels = ${repr(branch_labels)}
depends_on = ${repr(depends_on)}


def upgrade() -> None:
    """Say what it adds."""
    op.execute("SET LOCAL lock_timeout = '5s'")
    ${upgrades if upgrades else "raise NotImplementedError"}


def downgrade() -> None:
    """Say what it takes away."""
    op.execute("SET LOCAL lock_timeout = '5s'")
    ${downgrades if downgrades else "raise NotImplementedError"}
